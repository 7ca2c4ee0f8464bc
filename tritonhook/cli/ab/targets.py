"""What `tritonhook ab` times: a class for each kind of target makes the Plan of the comparison.

Function: MODULE:FUNCTION, which launches. Script: run once, then timed as a CapturedRun. CapturedRun: a capture
folder; one of its recorded launches is repeated. Recorded: one capture or PTX file, with a recorded launch.
TwoCubins: two codes, with one recorded launch. capture/selection.py says which launches there are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from tritonhook.capture.selection import (
    DRY_LAUNCH,
    Launched,
    Selected,
    Skipped,
    selected,
    settings_of,
    titles,
    with_times,
)
from tritonhook.capture.store import CaptureFolder
from tritonhook.cli._inputs import (
    Input,
    RecordedLaunch,
    Tolerance,
    captures_at,
    check_entry,
    chosen_arguments,
    chosen_ptxas,
    load_input,
    load_pair,
    place,
)
from tritonhook.cli._pair import ToolOptions
from tritonhook.cli._parser import Group, given_options, option, part, rest, share
from tritonhook.cli._programs import is_function, is_script, record_launches, script_command, why_not_timed
from tritonhook.cli._renames import RenameOptions, rewrite_option
from tritonhook.cli._results import Results
from tritonhook.cubin.image import Cubin
from tritonhook.errors import DeviceError, UsageError
from tritonhook.ptxas.tool import find_ptxas
from tritonhook.ptxas.toolchain import find_toolchain, toolchain_of
from tritonhook.rename import PREFIX, Rename
from tritonhook.timing.coordinator import search_path
from tritonhook.timing.images import CandidateChange, KernelImage, Sides, change_names, sides_of_cubins, sides_of_ptx
from tritonhook.timing.plan import Plan
from tritonhook.timing.rough import rough_times

OF_SAVED = {"--from", "--band", "--fail-on"}  # timing options


@dataclass(frozen=True, kw_only=True)
class Timing(Group):
    """How a candidate is made and timed."""

    TITLE = "timing, on a GPU"
    candidate: str | None = option(metavar="MODULE:FUNCTION", help="compare with this launch instead of a rename")
    candidate_ptxas: str | None = option(metavar="VERSION|PATH", help="assemble the candidate with this ptxas")
    candidate_options: str | None = option(metavar="OPTIONS", help="further ptxas options for the candidate")
    rewrite: tuple[str, ...] = rewrite_option("rewrite the candidate")
    baseline: tuple[str, ...] = option(
        action="append", default=[], metavar="MODULE:FUNCTION", help="also time this launch"
    )
    recorded: RecordedLaunch = part(RecordedLaunch)
    tune: str | None = option(
        choices=("fixed", "each"),
        help="autotuned kernels: all sides use the reference's configuration (fixed, the default), or each is tuned",
    )
    tolerance: Tolerance = part(Tolerance)
    band: float | None = option(
        type=share(0.005),
        metavar="SHARE",
        help="smaller differences count as the same: 0.005 (the default) or 0.5%%",
    )
    processes: int | None = option(type=int, metavar="N", help="number of fresh processes at first (default: 5)")
    seconds: float | None = option(type=float, help="stop after about this many seconds (default: 50)")
    fail_on: str | None = option(
        choices=("slower", "faster"), help="exit with 1 only if the candidate is slower (or faster)"
    )
    saved: str | None = option("--from", metavar="FILE", help="read a saved comparison instead; needs no GPU")


@dataclass(frozen=True, kw_only=True)
class Options(Group):
    target: tuple[str, ...] = place(
        nargs="*",
        help="MODULE:FUNCTION, SCRIPT.py [-- ARGUMENTS], capture folder, captured kernel or its id, PTX file, or two "
        "cubins",
    )
    rest: tuple[str, ...] | None = rest()
    rename: RenameOptions = part(RenameOptions)
    tool: ToolOptions = part(ToolOptions)
    timing: Timing = part(Timing)
    results: Results = part(Results)


_LISTED = 5  # other launches of a script


@dataclass(frozen=True, slots=True)
class PreparedPlan:
    """A plan, and notes for the user on how it was made."""

    plan: Plan
    notes: tuple[str, ...] = ()


class Target(Protocol):
    """Something that can be launched."""

    def prepare(self, folder: Path) -> PreparedPlan:
        """Make the plan. folder: for files that must last as long as the comparison. Raises TritonHookError."""


def target_of(options: Options) -> Target:
    """Choose the target from the command line. Raises UsageError for options that it would ignore."""
    first, *rest = options.target
    if is_function(first):
        _refuse_script_arguments(options)
        _refuse(options, rest, ("--options", "--entry", "--args", "--launch"), f"{first} launches itself")
        return FunctionTarget(options, first)
    never = ("--candidate", "--tune")
    why = "the target is launched as recorded"
    if is_script(first):
        _refuse(options, (), never, why)
        _refuse(options, (), ("--args",), "a script's launches are recorded by running it")
        return Script(options, (first, *rest, *(options.rest or ())))
    _refuse_script_arguments(options)
    _refuse(options, rest[1:], never, why)
    if rest:
        return TwoCubins(options, first, rest[0])
    path = Path(first)
    if path.is_dir() and not (path / "capture.json").exists() and not options.timing.recorded.args:
        return CapturedRun(options, path, first)
    return Recorded(options, first)


def refuse_without_gpu(undone: str) -> None:
    """Raise DeviceError with a remedy if this machine cannot time kernels. undone: such as "nothing was timed"."""
    if (why := why_not_timed()) is not None:
        raise DeviceError(
            f"{undone}: a timed comparison needs torch and a GPU; {why}. "
            "`tritonhook diff PTX|CAPTURE --rename` compares only the code, and needs neither"
        )


def _refuse_script_arguments(options: Options) -> None:
    if options.rest is not None:
        raise UsageError(f"-- {' '.join(options.rest)}: only a script takes arguments after --")


def _refuse(options: Options, rest: Sequence[str], names: Sequence[str], why: str) -> None:
    """Raise UsageError for targets and options that would be ignored."""
    if rest:
        raise UsageError(
            f"{' '.join(rest)}: not understood; give one target, two cubins, or a script with its arguments"
        )
    if idle := [name for name in given_options(options.tool, options.timing, options.timing.recorded) if name in names]:
        raise UsageError(f"{', '.join(idle)}: not allowed here: {why}")


# --- the kinds of target -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FunctionTarget:
    """MODULE:FUNCTION: each side calls it in its own process, with the change applied while Triton compiles."""

    options: Options
    name: str

    def prepare(self, folder: Path) -> PreparedPlan:
        plan = Plan(
            target=self.name,
            out=folder,
            rename=_rename(self.options),
            candidate_options=self.options.timing.candidate_options,
            rewrites=tuple(self.options.timing.rewrite),
            **_common(self.options),
        )
        return PreparedPlan(plan)


@dataclass(frozen=True, slots=True)
class Recorded:
    """One capture or PTX file, changed by the options, launched by `launch` or by its recorded launch."""

    options: Options
    path: str
    launch: Path | None = None

    def prepare(self, folder: Path) -> PreparedPlan:
        options = self.options
        launch = self.launch or options.timing.recorded.of([self.path])
        given = load_input(self.path, options.tool.entry)
        check_entry(options.tool.entry, [given])
        if given.ptx is None:
            raise UsageError(f"{self.path}: no PTX to make a candidate of; give a second cubin, or a capture with PTX")
        change = _change(options)
        if change.rename is not None:
            change.rename.other_name(given.entry)  # raises if the rename changes nothing
        toolchain = toolchain_of(chosen_ptxas(options.tool.ptxas, options.tool.trust, [given]))
        arguments = chosen_arguments(options.tool.ptxas_options, [given])
        sides = sides_of_ptx(given.ptx, given.entry, change, toolchain, arguments)
        notes = [f"assembled by ptxas {toolchain.ptxas.version} with {' '.join(arguments) or 'no options'}"]
        if given.cubin is not None and given.cubin.text(given.entry) != _reference_code(sides):
            notes.append("the assembled code differs from the captured cubin")
        own = [given.entry]
        names = change_names(own, self.path, change.rename, change.rewrites, options.timing.candidate_options)
        return PreparedPlan(_launched_plan(options, self.path, folder, sides, launch, names), tuple(notes))


@dataclass(frozen=True, slots=True)
class TwoCubins:
    """Two cubins, captures or PTX files, compared unchanged: the reference first."""

    options: Options
    reference: str
    candidate: str

    def prepare(self, folder: Path) -> PreparedPlan:
        options, paths = self.options, [self.reference, self.candidate]
        if (
            options.rename.wanted()
            or options.timing.rewrite
            or options.timing.candidate_ptxas
            or options.timing.candidate_options
        ):
            raise UsageError(
                "two targets are compared as they are; a change (a rename, --rewrite, ...) needs a single target"
            )
        launch = options.timing.recorded.of(paths)
        given = load_pair(self.reference, self.candidate, options.tool.entry)
        sides = sides_of_cubins(*(self._assembled(path) for path in given))
        label = f"{self.candidate} against {self.reference}"
        names = (self.reference, self.candidate)
        return PreparedPlan(_launched_plan(options, label, folder, sides, launch, names))

    def _assembled(self, given: Input) -> KernelImage:
        if given.cubin is not None:
            return KernelImage(given.cubin.data, given.entry, given.ptxas)
        assert given.ptx is not None  # an input has PTX, a cubin, or both
        toolchain = toolchain_of(chosen_ptxas(self.options.tool.ptxas, self.options.tool.trust, [given]))
        options = chosen_arguments(self.options.tool.ptxas_options, [given])
        return KernelImage(
            toolchain.assemble_or_raise(given.ptx, options).cubin.data, given.entry, toolchain.ptxas.version
        )


@dataclass(frozen=True, slots=True)
class CapturedRun:
    """A capture folder: the launch that takes most GPU time in total, or the one that the options name."""

    options: Options
    path: Path
    label: str

    def prepare(self, folder: Path) -> PreparedPlan:
        captures = captures_at(self.path)
        choices = list(selected(captures, self.options.tool.entry, self.options.timing.recorded.launch))
        kernels = {choice.record: choice for choice in choices if isinstance(choice, Selected) and choice.launches}
        damaged = tuple(f"{choice.kernel}: {choice.reason}" for choice in choices if isinstance(choice, Skipped))
        if not kernels:
            raise UsageError(f"{self.label}: {'; '.join((self._why_none(captures), *damaged))}")
        chosen, notes = self._longest(kernels)
        capture = str(self.path / "kernels" / chosen.record)
        prepared = Recorded(self.options, capture, chosen.path).prepare(folder)
        named = replace(prepared.plan, target=f"{self.label}: {_titles(kernels)[chosen.record]}")
        return PreparedPlan(named, (*notes, *damaged, f"launched as recorded: {chosen.summary}", *prepared.notes))

    def _longest(self, kernels: Mapping[str, Selected]) -> tuple[Launched, tuple[str, ...]]:
        """Time every launch roughly. Returns the one with most time in total, and notes with the shares of the others.

        A single launch is not timed. Raises UsageError if none can be repeated, DeviceError without a GPU.
        """
        launches = [launch for kernel in kernels.values() for launch in kernel.launches]
        if len(launches) == 1:
            return launches[0], ()
        refuse_without_gpu("nothing was timed")
        timed = with_times(launches, rough_times(self.path))
        usable = [launch for launch in timed if launch.us is not None]
        if not usable:
            raise UsageError(f"{self.label}: none of its launches can be repeated: {timed[0].why}")
        total, called = sum(launch.total for launch in usable), _titles(kernels)
        lines = [
            f"{called[launch.record]} {launch.total / total:.0%} "
            f"({launch.count} x {launch.us:.1f} us, --launch {launch.key})"
            for launch in usable[: _LISTED + 1]
        ]
        more = f", and {len(usable) - len(lines)} more" if len(usable) > len(lines) else ""
        failed = f"{len(timed) - len(usable)} launches could not be repeated"
        shares = f"of the recorded launches' time: {'; '.join(lines)}{more}"
        return usable[0], (shares, failed) if len(usable) < len(timed) else (shares,)

    def _why_none(self, captures: CaptureFolder) -> str:
        what = f" of {self.options.tool.entry}" if self.options.tool.entry else ""
        why = "".join(f"; {note}" for note in captures.notes)
        foreign = sorted({captures.capture(record).front_end for record in captures.records} - {"Triton", "cute"})
        if foreign:
            why += f"; launches of {', '.join(foreign)} kernels are not recorded: time them as MODULE:FUNCTION"
        elif any(captures.capture(record).dry_run for record in captures.records):
            why += f"; {DRY_LAUNCH}"
        elif captures.records:
            why += "; its kernels were compiled but not launched: is there a GPU?"
        return f"no launch{what} was recorded{why}; `tritonhook diff CAPTURE --rename` compares only the code"


def _titles(kernels: Mapping[str, Selected]) -> dict[str, str]:
    captures = {record: kernel.capture for record, kernel in kernels.items()}
    return titles({record: (c.kernel, c.arch, settings_of(c.options)) for record, c in captures.items()})


@dataclass(frozen=True, slots=True)
class Script:
    """A script and its arguments: run once with launches recorded, then timed as its capture folder is."""

    options: Options
    words: tuple[str, ...]

    def prepare(self, folder: Path) -> PreparedPlan:
        captures = folder / "captures"
        self._run(captures)
        trusted = replace(self.options, tool=replace(self.options.tool, trust=True))  # this command made the capture
        return CapturedRun(trusted, captures, " ".join(self.words)).prepare(folder)

    def _run(self, out: Path) -> None:
        """Record the script's launches. Raises UsageError if the script fails, and DeviceError before it runs if this
        machine cannot time kernels."""
        script_command(list(self.words), False)  # raises if the script does not exist
        refuse_without_gpu(f"{self.words[0]} was not run")
        record_launches(self.words, out, "nothing was timed")


# --- from options to plans -----------------------------------------------------------------------


def _launched_plan(
    options: Options, label: str, folder: Path, sides: Sides, launch: Path, names: tuple[str, str]
) -> Plan:
    """Make the plan for cubins with a recorded launch. The cubins already contain the changes of the options."""
    images = sides.write(folder / "images")
    return Plan(target=label, out=folder, images=images, launch=launch, names=names, **_common(options))


def _common(options: Options) -> dict[str, Any]:
    """Return the fields that all plans share, by their names in Plan."""
    return {
        "candidate": options.timing.candidate,
        "baselines": tuple(options.timing.baseline),
        "ptxas": _ptxas_path(options.tool.ptxas),
        "candidate_ptxas": _ptxas_path(options.timing.candidate_ptxas),
        "rtol": options.timing.tolerance.rtol,
        "path": search_path(),
        "tune_each": options.timing.tune == "each",
    }


def _rename(options: Options) -> Rename | None:
    """Choose the rename; the default prefix if the options change nothing else."""
    wanted = options.rename.wanted()
    others = (
        options.timing.candidate,
        options.timing.candidate_ptxas,
        options.timing.candidate_options,
        *options.timing.rewrite,
    )
    return Rename(prefix=PREFIX) if wanted is None and not any(others) else wanted


def _change(options: Options) -> CandidateChange:
    ptxas = options.timing.candidate_ptxas
    return CandidateChange(
        _rename(options),
        tuple(options.timing.rewrite),
        None if ptxas is None else find_toolchain(ptxas),
        tuple((options.timing.candidate_options or "").split()),
    )


def _ptxas_path(wanted: str | None) -> str | None:
    return None if wanted is None else str(find_ptxas(wanted).path.absolute())


def _reference_code(sides: Sides) -> bytes:
    return Cubin.from_bytes(sides.reference.image).text(sides.reference.entry)
