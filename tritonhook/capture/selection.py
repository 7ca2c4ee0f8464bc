"""Select kernels and launches of a capture folder for a command, e.g. by `matmul[BM=64,num_warps=4]`; and make titles,
by which users can distinguish the kernels. Kernels that lost an autotuning are left out, because the program does not
use them."""

from __future__ import annotations

import re
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import Any, TypeVar

from tritonhook._util.demangle import function_name
from tritonhook.capture.launches.record import Scalar
from tritonhook.capture.model import Capture, Stage
from tritonhook.capture.policy.model import stem
from tritonhook.capture.store.reader import CaptureFolder, RecordedLaunch, read_launch, read_launches
from tritonhook.capture.store.schema import read_capture
from tritonhook.errors import CaptureError, UsageError
from tritonhook.ptx.normal_form import normal_sha256

_COUNTS = ("num_warps", "num_stages", "num_ctas", "maxnreg")
_SELECTOR = re.compile(r"(?P<name>[^\[\]/]+?)(?:\[(?P<settings>[^\[\]]*)\])?")
Key = TypeVar("Key", bound=Hashable)
Settings = Mapping[str, str]


def settings_of(options: Mapping[str, Any]) -> dict[str, str]:
    """Return a kernel's tunable values by name: its constexprs, num_warps, num_stages, num_ctas, maxnreg. options: the
    options of its capture."""
    constants = options.get("constants")
    given = dict(constants) if isinstance(constants, Mapping) else {}
    given |= {name: options.get(name) for name in _COUNTS}
    return {str(name): str(value) for name, value in given.items() if value is not None}


def title(name: str, settings: Iterable[str]) -> str:
    """Join a kernel's name with its settings, e.g. "matmul[BM=64]"."""
    inside = ",".join(settings)
    return f"{name}[{inside}]" if inside else name


def titles(kernels: Mapping[Key, tuple[str, str, Settings]]) -> dict[Key, str]:
    """Make the title of each kernel: its name, and the settings in which kernels of the same name and target differ.
    kernels: (name, target, settings) of each kernel, by any key."""
    common: dict[tuple[str, str], frozenset[tuple[str, str]]] = {}
    for name, target, settings in kernels.values():
        own = frozenset(settings.items())
        common[name, target] = common.get((name, target), own) & own
    return {
        key: title(name, (f"{n}={value}" for n, value in settings.items() if (n, value) not in common[name, target]))
        for key, (name, target, settings) in kernels.items()
    }


def titles_of(captures: Mapping[Key, Capture]) -> dict[Key, str]:
    """Make the title of each captured kernel."""
    return titles({key: (function_name(c.kernel), c.arch, settings_of(c.options)) for key, c in captures.items()})


@dataclass(frozen=True, slots=True)
class KernelSelector:
    """Selects kernels by name and by some of their settings."""

    name: str
    settings: Settings

    @classmethod
    def of(cls, text: str) -> KernelSelector | None:
        """Read a selector, e.g. `matmul` or `matmul[BM=64,num_warps=4]`; None for any other text."""
        match = _SELECTOR.fullmatch(text)
        pairs = [part.partition("=") for part in filter(None, (match["settings"] or "").split(","))] if match else []
        if match is None or not all(name and equals for name, equals, _ in pairs):
            return None
        return cls(match["name"], {name.strip(): value.strip() for name, _, value in pairs})

    def fits(self, kernel: str, options: Mapping[str, Any]) -> bool:
        """Check whether a captured kernel matches. kernel: its name in the PTX."""
        if self.name not in (kernel, function_name(kernel)):
            return False
        own = settings_of(options) if self.settings else {}
        return all(own.get(name) == value for name, value in self.settings.items())


def fits(wanted: str | None, kernel: str, options: Mapping[str, Any]) -> bool:
    """Check whether a kernel matches a name or a selector; None matches all."""
    if wanted in (None, kernel):
        return True
    selector = KernelSelector.of(wanted or "")
    return selector is not None and selector.fits(kernel, options)


# --- which kernels and launches a command uses ----------------------------------------------------


_OTHERS = 2  # number of further launches of a kernel that are timed: a lever may make none of them slower
DRY_LAUNCH = (
    "its launches were recorded in a dry run, without values; record them on a GPU: `tritonhook run --launches`"
)
_MATTERS = 0.1  # minimum share of the kernel's total time for a further launch


@dataclass(frozen=True, slots=True)
class Launched:
    """One recorded launch of a kernel. path: its JSON file. count: number of such launches. us: approximate time of one
    launch in microseconds; None if not known. why: reason why it could not be timed. problem: text that is equal for
    launches with the same arguments. scalars: names and values of the scalar arguments. threads: threads per block.
    shared: dynamic shared memory per block, in bytes."""

    record: str
    key: str
    path: Path
    summary: str
    count: int
    us: float | None = None
    why: str | None = None
    problem: str = ""
    scalars: tuple[tuple[str, float], ...] = ()
    threads: int | None = None
    shared: int = 0

    @classmethod
    def of(cls, recorded: RecordedLaunch) -> Launched:
        launch = recorded.launch
        scalars = tuple((it.name, it.value) for it in launch.parameters if isinstance(it, Scalar))
        known = recorded.record, recorded.key, recorded.path, launch.summary, recorded.count or 1
        return cls(*known, problem=launch.problem, scalars=scalars, threads=prod(launch.block), shared=launch.shared)

    @property
    def total(self) -> float:
        return self.count * (0.0 if self.us is None else self.us)


@dataclass(frozen=True, slots=True)
class Selected:
    """A captured kernel that the program runs. launches: its recorded launches of the requested key, the most frequent
    first. unrecorded: reason why a launch could not be recorded; None if not known."""

    record: str
    capture: Capture
    launches: tuple[Launched, ...]
    unrecorded: str | None = None


@dataclass(frozen=True, slots=True)
class Skipped:
    """A kernel that a command does not process, and the reason."""

    kernel: str
    record: str
    reason: str
    share: float | None = None


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel that can be tuned: one PTX, compiled once or several times.

    record: name of its folder. settings: its tunable values. ptx: hash of its normalised PTX. launches: the launch with
    the largest total time first; the most frequent launch first if times are not known. share: its share of the GPU
    time; None if not known.

    For an autotuned kernel: function: the autotuned function. config: this configuration, as text in Triton's format.
    keys: the autotuner's keys for which it chose this configuration. siblings: the other configurations that the
    autotuner tried, with their launches of the same arguments; the fastest first, if times are known. notes: remarks on
    configurations that cannot be candidates.
    """

    record: str
    name: str
    arch: str
    front_end: str
    ptx: str
    launches: tuple[Launched, ...]
    share: float | None = None
    function: str | None = None
    config: str | None = None
    keys: tuple[tuple[str, ...], ...] = ()
    siblings: tuple[Kernel, ...] = ()
    settings: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def identity(self) -> tuple[str, str, str, str]:
        """The identity of the policy entry for this kernel."""
        return self.name, self.arch, self.front_end, self.ptx

    @property
    def others(self) -> tuple[Launched, ...]:
        """Further launches that are timed too; a lever must not make any of them slower."""
        whole = sum(launch.total for launch in self.launches) or 1.0
        return tuple(launch for launch in self.launches[1:] if launch.total / whole >= _MATTERS)[:_OTHERS]


def selected(
    captures: CaptureFolder, entry: str | None = None, key: str | None = None, dry: bool = False
) -> Iterator[Selected | Skipped]:
    """Yield the kernels that the program runs, in the order of their first use. Unreadable kernels, and kernels that
    failed to compile, are yielded as Skipped with the reason.

    entry: select kernels by this name or selector. key: select launches whose key begins with this text. dry: include
    launches of dry runs, which did not run on a GPU.
    """
    for record in captures.running:
        kernel = record
        try:
            capture = captures.capture(record)
            kernel = capture.kernel
            if not fits(entry, kernel, capture.options):
                continue
            launches = [launch for launch in captures.launches(record) if launch.key.startswith(key or "")]
        except CaptureError as error:
            yield Skipped(kernel, record, str(error))
            continue
        unrecorded = captures.unrecorded.get(record)
        if capture.dry_run and launches and not dry:
            launches, unrecorded = [], f"{kernel}: {DRY_LAUNCH}"
        yield Selected(record, capture, tuple(map(Launched.of, launches)), unrecorded)
    for record, (kernel, why) in captures.failed.items():
        if fits(entry, kernel, {}):
            yield Skipped(kernel, record, why)


def launches_of(captures: CaptureFolder) -> list[Launched]:
    """List all launches of the kernels that the program runs."""
    return [launch for kernel in selected(captures) if isinstance(kernel, Selected) for launch in kernel.launches]


# --- one launch ----------------------------------------------------------------------------------


def launch_of(args: str | None, key: str | None, targets: Sequence[str], dry: bool = False) -> Path:
    """Return the path of a launch's JSON file. If `args` is a file, return it. If it is a capture, return its most
    frequent launch. Without `args`, return the most frequent launch of the first target that has launches.

    key: the beginning of the launch's key. dry: allow launches of a dry run. Raises UsageError if there is no launch.
    """
    if args is not None and Path(args).is_file():
        read_launch(Path(args))
        if not dry:
            _refuse_dry(Path(args).absolute().parent.parent)
        return Path(args)
    if args is not None and not Path(args).exists():
        raise UsageError(f"--args {args}: no such file or folder")
    for place in (args,) if args is not None else targets:
        if frequent := _most_frequent(Path(place), key):
            if not dry:
                _refuse_dry(Path(place))
            return frequent.path
    words = f"{' '.join(targets)}{'' if len(targets) == 2 else ' --rename'}"
    raise UsageError(
        f"{args or targets[0]}: no recorded launch; record one with `tritonhook run --launches`, or give --args FILE; "
        f"`tritonhook diff {words}` compares only the code"
    )


def _refuse_dry(place: Path) -> None:
    if (place / "capture.json").exists() and (capture := read_capture(place)).dry_run:
        raise UsageError(f"{capture.kernel}: {DRY_LAUNCH}")


def _most_frequent(place: Path, key: str | None) -> RecordedLaunch | None:
    """Find the most frequent launch of one capture, even if its kernel lost an autotuning."""
    launches = list(read_launches(place))
    with suppress(CaptureError):  # a kernel folder outside of a capture folder has no counts
        counted = CaptureFolder.open(place.absolute().parent.parent).launches(place.absolute().name)
        launches = list(counted) or launches
    if key is None:
        return launches[0] if launches else None
    fitting = [launch for launch in launches if launch.key.startswith(key)]
    if len(fitting) != 1:
        listed = "\n  ".join(f"{launch.key}  {launch.launch.summary}" for launch in launches)
        raise UsageError(f"--launch {key}: {len(fitting)} launches match; recorded launches:\n  {listed or '(none)'}")
    return fitting[0]


# --- kernels that can be tuned, and their shares of the time -------------------------------------


def kernels_in(captures: CaptureFolder, entry: str | None = None, dry: bool = False) -> list[Kernel | Skipped]:
    """List the kernels that can be tuned, then the kernels that cannot, with the reason. entry, dry: as in
    `selected`."""
    kernels: dict[tuple[str, ...], Kernel] = {}
    skipped: list[Skipped] = []
    for choice in selected(captures, entry, dry=dry):
        kernel = choice if isinstance(choice, Skipped) else _kernel(choice)
        if isinstance(kernel, Skipped):
            skipped.append(kernel)
            continue
        group = (stem(kernel.name), *kernel.identity[1:])
        earlier = kernels.get(group)
        kernels[group] = kernel if earlier is None else replace(earlier, launches=earlier.launches + kernel.launches)
    return [*_configured(captures, list(kernels.values())), *skipped]


def _configured(captures: CaptureFolder, kernels: Sequence[Kernel]) -> Iterator[Kernel]:
    """Yield the kernels. Each winner of an autotuning gets the other tried configurations as siblings. A configuration
    that no process chose is not yielded itself; it is only a sibling."""
    tunings = [each for each in captures.configurations if each.by == "Triton"]  # Inductor's kernels have no launches
    chosen = {each.chosen for each in tunings}
    tried = {record for each in tunings for record in each.by_record}
    for kernel in kernels:
        rounds = [each for each in tunings if each.chosen == kernel.record]
        if not rounds:
            if kernel.record not in tried - chosen:
                yield kernel
            continue
        own = tuple(each for each in kernel.launches if any(_fits(each, it.key) for it in rounds)) or kernel.launches
        problems = {each.problem for each in own}
        texts = {record: text for each in rounds for record, text in each.by_record.items()}
        siblings: dict[str, Kernel] = {}
        for record, text in texts.items():
            sibling = _sibling(captures, record, problems)
            if sibling is not None and sibling.ptx != kernel.ptx:
                siblings.setdefault(sibling.ptx, replace(sibling, function=rounds[0].function, config=text))
        yield replace(
            kernel,
            launches=own,
            function=rounds[0].function,
            config=texts[kernel.record],
            keys=tuple(each.key for each in rounds),
            siblings=tuple(siblings.values()),
        )


def _fits(launch: Launched, key: Sequence[str]) -> bool:
    """Check whether a launch can belong to this key of an autotuning: its scalars have the values in the key."""
    wanted = dict(part.split("=", 1) for part in key if "=" in part)
    return all(wanted.get(name, str(value)) in (str(value), f"{value:.0f}") for name, value in launch.scalars)


def _sibling(captures: CaptureFolder, record: str, problems: Collection[str]) -> Kernel | None:
    """Return the kernel of another configuration, with its launches whose arguments are in `problems`; None if it has
    no such launch, or cannot be tuned."""
    try:
        capture = captures.capture(record)
        launches = tuple(launch for launch in map(Launched.of, captures.launches(record)) if launch.problem in problems)
        kernel = _kernel(Selected(record, capture, launches))
    except CaptureError:
        return None
    return kernel if isinstance(kernel, Kernel) else None


def _kernel(chosen: Selected) -> Kernel | Skipped:
    record, capture = chosen.record, chosen.capture
    name, text = capture.kernel, capture.text(Stage.PTX)
    if capture.rewritten_from is not None or capture.lever is not None:
        return Skipped(name, record, "it was already rewritten; capture the program without rewrites")
    if text is None:
        return Skipped(name, record, f"no PTX in the capture; {capture.note or 'it was not available'}")
    if not chosen.launches:
        remedy = "record launches on a GPU with `tritonhook run --launch-values`"
        return Skipped(name, record, chosen.unrecorded or f"no launch was recorded; {remedy}")
    settings = tuple(settings_of(capture.options).items())
    ptx = normal_sha256(text, name)
    return Kernel(record, name, capture.arch, capture.front_end, ptx, chosen.launches, settings=settings)


def with_times(launches: Iterable[Launched], measured: Sequence[Mapping[str, Any]]) -> list[Launched]:
    """Add times to launches, and sort the launches by total time, the largest first. measured: the result of
    rough_times."""
    by_launch = {(entry["record"], entry["launch"]): entry for entry in measured}
    missing = {"us": None, "why": "it was not timed"}
    entries = [(each, by_launch.get((each.record, each.key), missing)) for each in launches]
    return sorted((replace(each, us=it["us"], why=it.get("why")) for each, it in entries), key=lambda each: -each.total)


def with_shares(
    captures: CaptureFolder, kernels: Iterable[Kernel], measured: Sequence[Mapping[str, Any]]
) -> list[Kernel | Skipped]:
    """Add to each kernel its share of the total time of all kernels that the program runs. Returns them with the
    largest share first. A kernel without a timed launch becomes Skipped."""
    counting = set(captures.running)
    running = (entry for entry in measured if entry["record"] in counting)
    whole = sum((entry["us"] or 0.0) * entry["count"] for entry in running) or 1.0
    kept: list[Kernel | Skipped] = []
    for kernel in kernels:
        launches = with_times(kernel.launches, measured)
        timed = tuple(launch for launch in launches if launch.us is not None)
        if timed:
            share = sum(kernel.total for kernel in timed) / whole
            siblings = _by_time(kernel.siblings, measured, timed[0].problem)
            kept.append(replace(kernel, launches=timed, share=share, siblings=siblings))
        else:
            why = f"it cannot be launched again: {launches[0].why}"
            kept.append(Skipped(kernel.name, kernel.record, why))
    return sorted(kept, key=lambda kernel: -(kernel.share or 0.0))


def _by_time(siblings: Iterable[Kernel], measured: Sequence[Mapping[str, Any]], problem: str) -> tuple[Kernel, ...]:
    """Return the configurations that could be timed, the fastest first. problem: identifies the arguments with which
    they were timed."""
    timed = []
    for kernel in siblings:
        launches = tuple(it for it in with_times(kernel.launches, measured) if it.us is not None)
        if us := [it.us or 0.0 for it in launches if it.problem == problem]:
            timed.append((min(us), replace(kernel, launches=launches)))
    return tuple(kernel for _, kernel in sorted(timed, key=lambda pair: pair[0]))


def that_matter(
    kernels: Iterable[Kernel | Skipped], top: int | None, min_share: float
) -> tuple[list[Kernel], list[Skipped]]:
    """Split kernels into (kernels to tune, skipped kernels). top: maximum number of kernels to tune. min_share: minimum
    share of the total time."""
    wanted: list[Kernel] = []
    left: list[Skipped] = []
    for kernel in kernels:
        if isinstance(kernel, Skipped):
            left.append(kernel)
        elif kernel.share is not None and kernel.share < min_share:
            left.append(Skipped(kernel.name, kernel.record, f"its share is below {min_share:.1%}", kernel.share))
        elif top is not None and len(wanted) >= top:
            left.append(Skipped(kernel.name, kernel.record, f"its share is not one of the {top} largest", kernel.share))
        else:
            wanted.append(kernel)
    return wanted, left
