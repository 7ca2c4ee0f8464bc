"""Results of `show LOCK`, and of `diff OLD NEW` and `check`: kernels before and after."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from operator import attrgetter
from typing import Any, ClassVar, Protocol, TypeVar

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from tritonhook._util.demangle import function_name
from tritonhook._util.schema import Count, Fields, Positive, like
from tritonhook.capture.model import front_end_name
from tritonhook.capture.selection import title
from tritonhook.report.result import (
    UNKNOWN,
    Result,
    Summary,
    Table,
    Tone,
    count,
    duration,
    mangled_note,
    number,
    spills,
)
from tritonhook.snapshot.changes import By, Change, ChangeStatus
from tritonhook.snapshot.facts import COUNTERS, FIGURES, Identity, KernelFacts

TITLES = {name: name.replace("_", " ") for name in FIGURES} | {"loop_instructions": "in loops"}
_LOCKED = {"stack": "stack", "shared": "shared"}
_COUNTED_FIGURES = {"instrs": "instructions", "in loops": "loop_instructions"}
_OF_SOME = ("local_bytes", "code_bytes", *COUNTERS)
_BUILT = {"local": "local_bytes", "code": "code_bytes"}
_GROUPS = {
    ChangeStatus.NEW: "New kernels",
    ChangeStatus.GONE: "Gone kernels",
    ChangeStatus.UNKNOWN: "Kernels whose machine code is not known",
}
_SHOWN = (ChangeStatus.CHANGED, ChangeStatus.FAILED)
_COUNTED = (ChangeStatus.FAILED, ChangeStatus.CHANGED, ChangeStatus.NEW, ChangeStatus.GONE, ChangeStatus.UNKNOWN)
_ALL = attrgetter(*FIGURES)
_WORSE = "worse"  # a key of `counts`, beside the statuses


class Named(Protocol):
    """Fields that identify a kernel."""

    @property
    def kernel(self) -> str: ...
    @property
    def arch(self) -> str: ...
    @property
    def specialisation(self) -> tuple[str, ...]: ...
    @property
    def number(self) -> int: ...


def namer(kernels: Sequence[Named], with_arch: bool = True) -> Callable[[Named], str]:
    """Return a function that makes a kernel's title: name, architecture, and the parts of its specialisation that not
    all kernels of its name have."""
    common: dict[str, frozenset[str]] = {}
    for kernel in kernels:
        own = frozenset(kernel.specialisation)
        common[kernel.kernel] = common.get(kernel.kernel, own) & own

    def name(kernel: Named) -> str:
        own = [text for text in kernel.specialisation if text not in common[kernel.kernel]]
        further = [] if kernel.number == 1 else [f"#{kernel.number}"]
        arch = [kernel.arch] if with_arch else []
        return " ".join([title(function_name(kernel.kernel), own), *arch, *further])

    return name


def page_key(kernel: Named) -> str:
    """Hash a kernel's identity: the key that links its rows with its page."""
    parts = (kernel.kernel, kernel.arch, *kernel.specialisation, str(kernel.number))
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]


class KernelFigures(Fields):
    """One kernel on one side. null: not known; all are null if ptxas made no code.

    spill_stores, spill_loads, stack: bytes per thread. shared: bytes per block. loop_instructions: instructions in
    innermost loops. ptxas, options: what assembled it. ptx: SHA-256 of its text without source positions. codes: hashes
    of its machine code; several if ptxas gives different code for the same input. classes: number of instructions in
    each class of work. launch_bounds: limits on threads and clusters of its launches, as PTX directives. code_bytes:
    size of the code, only for built libraries, whose instructions are not counted. local_bytes: bytes of all
    instructions that access local memory, only for built libraries. executed: instructions that warps executed in a
    launch on the CPU. sectors: sectors of global memory that this launch requested. conflicts: excess wavefronts of
    shared memory in this launch.
    """

    spill_stores: Count | None
    spill_loads: Count | None
    stack: Count | None
    registers: Count | None
    shared: Count | None
    instructions: Count | None
    loop_instructions: Count | None
    ptxas: str | None
    options: tuple[str, ...] | None
    ptx: str | None
    codes: tuple[str, ...]
    classes: dict[str, Count]
    launch_bounds: tuple[str, ...]
    local_bytes: Count | UnsetType = UNSET
    code_bytes: Count | UnsetType = UNSET
    executed: Count | UnsetType = UNSET
    sectors: Count | UnsetType = UNSET
    conflicts: Count | UnsetType = UNSET

    @classmethod
    def of(cls: type[_Sided], facts: KernelFacts, **identity: Any) -> _Sided:
        """Build from a kernel's facts. identity: further fields of a subclass."""
        figures = {name: facts.figures.get(name) for name in FIGURES}
        known = {name: UNSET if name in _OF_SOME and value is None else value for name, value in figures.items()}
        return like(facts, cls, ptx=facts.ptx_sha256, **known, **identity)

    @property
    def figures(self) -> dict[str, int | None]:
        return {name: None if value is UNSET else value for name, value in zip(FIGURES, _ALL(self), strict=True)}


_Sided = TypeVar("_Sided", bound=KernelFigures)


# --- a lock --------------------------------------------------------------------------------------


class LockedFields(KernelFigures, kw_only=True):
    """One kernel of a lock. specialisation: constexprs, argument types, warps, stages. number: distinguishes kernels
    with equal name, arch and specialisation. rewrites: tritonhook's changes to its PTX; null: none."""

    kernel: str
    arch: str
    front_end: str
    specialisation: tuple[str, ...]
    number: Positive
    rewrites: str | None


class LockContent(Result, tag="lock"):
    """The kernels of a lock. path: its file. tests: files and folders whose tests compile all of its kernels; null: not
    known."""

    verbs: ClassVar = "show LOCK"

    path: str
    tests: tuple[str, ...] | None
    kernels: tuple[LockedFields, ...]

    @classmethod
    def of(cls, path: str, kernels: Sequence[KernelFacts], tests: Sequence[str] | None) -> LockContent:
        """Build from a lock's kernels, in its order."""
        locked = tuple(LockedFields.of(facts, **asdict(facts.identity)) for facts in kernels)
        return cls(path, None if tests is None else tuple(tests), locked)

    def summary(self) -> Summary:
        """Summarise: a row for each kernel."""
        kernels, name = self.kernels, namer(self.kernels)
        texts = {
            "ptxas": [number(kernel.ptxas) for kernel in kernels],
            "front end": [front_end_name(kernel.front_end) for kernel in kernels],
        }
        built = any(kernel.code_bytes is not UNSET for kernel in kernels)
        counted = not built or any(kernel.instructions is not None for kernel in kernels)
        headings = {**_LOCKED, **(_COUNTED_FIGURES if counted else {}), **(_BUILT if built else {})}
        headings |= {name: name for name in COUNTERS if any(getattr(kernel, name) is not UNSET for kernel in kernels)}
        same = {heading: column[0] for heading, column in texts.items() if len(set(column)) == 1}
        columns = {
            "kernel": [name(kernel) for kernel in kernels],
            "regs": [number(kernel.registers) for kernel in kernels],
            "spills": [spills(kernel.spill_stores, kernel.spill_loads) for kernel in kernels],
            **{heading: [number(k.figures[figure]) for k in kernels] for heading, figure in headings.items()},
        }
        left = len(columns)
        columns |= {heading: column for heading, column in texts.items() if heading not in same}
        title, rows = "Kernels (stack, spill stores/loads, shared: bytes)", tuple(zip(*columns.values(), strict=True))
        table = Table(title, tuple(columns), rows, words=tuple(range(left, len(columns))), one_line=True)
        return Summary(
            "Lock",
            self.path,
            f"{count(len(kernels), 'kernel')} locked",
            Tone.NEUTRAL,
            ("; ".join(f"{heading}: {text}" for heading, text in same.items()),) if same else (),
            (table,) if kernels else (),
            (f"`tritonhook check {self.path} CAPTURES` shows what has changed since",),
        )


# --- before and after ----------------------------------------------------------------------------


class FourBuilds(Fields):
    """One figure of old and new PTX under old and new ptxas, each ptxas with its side's options. figure: its name, or
    "code"; the values of "code" are hashes. old, new: value on each side as it is. new_ptx: value of the new PTX under
    the old ptxas. new_ptxas: value of the old PTX under the new ptxas. by: the cause of the change; null if a build is
    not known."""

    figure: str
    old: int | str | None
    new_ptx: int | str | None
    new_ptxas: int | str | None
    new: int | str | None
    by: By | None

    @classmethod
    def all_of(cls, change: Change) -> tuple[FourBuilds, ...]:
        """Build one for each figure that changed; if no figure changed, one for the code."""
        names = dict.fromkeys((change.leading, *change.deltas))
        figures = ((name, change.values(name)) for name in names)
        return tuple(cls(name, of.old, of.new_ptx, of.new_ptxas, of.new, of.by) for name, of in figures)

    @property
    def row(self) -> tuple[str, ...]:
        values = (self.old, self.new_ptx, self.new_ptxas, self.new)
        shown = (value[:8] if isinstance(value, str) else number(value) for value in values)
        return (
            {**TITLES, **_HEADINGS}.get(self.figure, self.figure),
            *shown,
            UNKNOWN if self.by is None else self.by.value,
        )


class KernelChange(Fields):
    """One kernel. number: distinguishes kernels with equal name, arch and specialisation.

    status: "not known" if the machine code of a side is not known. specialisation: constexprs, argument types, warps,
    stages. by: the cause of the code's change; "" if it did not change; the reason if ptxas did not assemble it. worse:
    figures that grew; registers and shared only if fewer warps fit. threads: threads per block, old and new, if they
    differ; figures per thread are then not judged. fails: the rules of `--fail-on` that it breaks. blocks: how many
    blocks an SM holds at a time, old and new. old, new: null if the kernel is missing on that side. loaded_changed: the
    parts besides code that the driver loads and that differ: parameters, attributes, data, relocations. builds: if PTX
    and ptxas both changed, the effect of each alone; the first entry explains `by`. compile_us: microseconds of its
    compiles, old and new, if both are known.
    """

    kernel: str
    arch: str
    specialisation: tuple[str, ...]
    number: Positive
    status: ChangeStatus
    code_changed: bool
    by: str
    worse: tuple[str, ...]
    fails: tuple[str, ...]
    blocks: tuple[Count, Count] | None
    old: KernelFigures | None
    new: KernelFigures | None
    loaded_changed: tuple[str, ...] | UnsetType = UNSET
    builds: tuple[FourBuilds, ...] | UnsetType = UNSET
    compile_us: tuple[Count, Count] | UnsetType = UNSET
    threads: tuple[Count, Count] | UnsetType = UNSET

    @classmethod
    def of(cls, change: Change, fails: Sequence[str]) -> KernelChange:
        return like(
            change,
            cls,
            **asdict(change.identity),
            by=change.blame,
            fails=tuple(fails),
            old=None if change.old is None else KernelFigures.of(change.old),
            new=None if change.new is None else KernelFigures.of(change.new),
            loaded_changed=change.loaded_changed or UNSET,
            builds=UNSET if change.crossed is None else FourBuilds.all_of(change),
            compile_us=change.compile_us or UNSET,
            threads=change.threads or UNSET,
        )

    @property
    def figures(self) -> dict[str, tuple[int | None, int | None]]:
        """Old and new figures, by name."""
        old, new = ({} if side is None else side.figures for side in (self.old, self.new))
        return {name: (old.get(name), new.get(name)) for name in FIGURES}

    @property
    def has_equal_figures(self) -> bool:
        """Whether all figures are equal on both sides, and spills, stack and registers are known."""
        if self.old is None or self.new is None or (figures := self.old.figures) != self.new.figures:
            return False
        return all(figures[name] is not None for name in FIGURES[:4])

    @property
    def judgement(self) -> str:
        """How the kernel changed: "failed", "worse" or "better"; "" if no figure decides."""
        if self.status is ChangeStatus.FAILED:
            return "failed"
        if self.worse:
            return _WORSE
        shrunk = any(a is not None and b is not None and b < a for a, b in self.figures.values())
        return "better" if shrunk and not self.threads else ""

    @property
    def bounds(self) -> str:
        """Launch bounds that only one side has, as "old → new"; "" if there are none, or if a side is not known."""
        if self.old is None or self.new is None or not (self.old.codes and self.new.codes):
            return ""
        a, b = set(self.old.launch_bounds), set(self.new.launch_bounds)
        return "" if a == b else " → ".join(", ".join(sorted(own)) or "none" for own in (a - b, b - a))


class NotCompiled(Fields):
    """A kernel that failed to compile. reason: includes the first error."""

    kernel: str
    reason: str


class KernelChanges(Result, tag="kernel changes"):
    """Kernels before and after.

    old, new: what was compared: two capture folders, or a lock and the current kernels. counts: number of kernels with
    each status, and under `worse` the number of those with a figure that grew. kernels: the worst change first. notes:
    what else was done. hidden: how many kernels `--top`, `--filter` and `--only` left out. titles: titles of the shown
    kernels, unique among all kernels, by the key of their page. not_compiled: kernels of the new side that failed to
    compile; absent if none did.
    """

    verbs: ClassVar = "diff OLD NEW`, `check"

    old: str
    new: str
    counts: dict[str, Count]
    kernels: tuple[KernelChange, ...]
    notes: tuple[str, ...]
    hidden: Count | UnsetType = UNSET
    titles: dict[str, str] | UnsetType = UNSET
    not_compiled: tuple[NotCompiled, ...] | UnsetType = UNSET

    @classmethod
    def of(
        cls,
        old: str,
        new: str,
        changes: Sequence[Change],
        failures: Mapping[Identity, Sequence[str]],
        notes: Sequence[str] = (),
        not_compiled: Sequence[tuple[str, str]] = (),
    ) -> KernelChanges:
        """Build from changes. old, new: what was compared. failures: by kernel, the rules of --fail-on that it
        breaks."""
        kernels = tuple(KernelChange.of(change, failures.get(change.identity, ())) for change in changes)
        seen = Counter(kernel.status for kernel in kernels)
        counts = {status.value: seen[status] for status in ChangeStatus}
        return cls(
            old=old,
            new=new,
            counts=counts | {_WORSE: sum(bool(kernel.worse) for kernel in kernels)},
            kernels=kernels,
            notes=tuple(notes),
            not_compiled=tuple(NotCompiled(*failed) for failed in not_compiled) or UNSET,
        )

    def summary(self) -> Summary:
        name = self._namer(with_arch=True)
        without_code = (f"{one.kernel}: {one.reason}" for one in self.not_compiled or ())
        return Summary(
            "Kernels before and after",
            f"{self.old} → {self.new}",
            *self._verdict(),
            (*self.who(), *self._fails(name)),
            tuple(self._tables(self._namer(with_arch=len({kernel.arch for kernel in self.kernels}) > 1))),
            (*without_code, *self.notes, *mangled_note(kernel.kernel for kernel in self.kernels)),
        )

    def chosen(self, top: int | None, pattern: re.Pattern[str] | None, only: str | None) -> KernelChanges:
        """Keep the first `top` of the kernels whose title or cause matches the pattern. only: "worse" or "better", to
        keep only such kernels."""
        name = namer(self.kernels)
        fitting = [
            kernel
            for kernel in self.kernels
            if (only is None or kernel.judgement == only)
            and (pattern is None or pattern.search(f"{name(kernel)}  {kernel.judgement}  {kernel.by}"))
        ][:top]
        short = namer(self.kernels, with_arch=False)
        titles = {page_key(kernel): short(kernel) for kernel in fitting}
        return replace(self, kernels=tuple(fitting), hidden=len(self.kernels) - len(fitting), titles=titles)

    def _namer(self, with_arch: bool) -> Callable[[Named], str]:
        if not self.titles:
            return namer(self.kernels, with_arch)
        known = self.titles
        return lambda kernel: f"{known[page_key(kernel)]}{f' {kernel.arch}' if with_arch else ''}"

    def _verdict(self) -> tuple[str, Tone]:
        gone = {kernel.kernel for kernel in self.kernels if kernel.status is ChangeStatus.GONE}
        known, failed = len(self.kernels) + (self.hidden or 0), self.not_compiled or ()
        missing = sum(one.kernel not in gone for one in failed)
        of_all = f"{known:,} of " if missing else ""
        total = f"{of_all}{count(known + missing, 'kernel')}"
        total += f" ({len(failed):,} not compiled)" if failed else ""
        worse = self.counts[_WORSE]
        better = sum(kernel.judgement == "better" for kernel in self.kernels)
        judged = [f"{n:,} {what}" for n, what in ((worse, _WORSE), (better, "better")) if n]
        further = {ChangeStatus.CHANGED: f" ({', '.join(judged)})"} if judged else {}
        parts = [
            f"{times:,} {status.value}{further.get(status, '')}"
            for status in _COUNTED
            if (times := self.counts.get(status.value))
        ]
        if not parts:
            if failed:
                return f"{total}: the same code", Tone.UNSURE
            return f"{total}, all with the same code", Tone.GOOD
        bad = worse or self.counts[ChangeStatus.FAILED.value] or any(kernel.fails for kernel in self.kernels)
        return f"{total}: {', '.join(parts)}", Tone.BAD if bad else Tone.CHANGED

    def who(self) -> Iterator[str]:
        """Yield for each cause how many kernels it changed."""
        by = Counter((kernel.status, kernel.by) for kernel in self.kernels if kernel.by)
        for (status, who), times in by.most_common():
            told = "not assembled: " if status is ChangeStatus.FAILED else "changed by "
            yield f"{count(times, 'kernel')} {told}{who}"
        if same := sum(kernel.code_changed and kernel.has_equal_figures for kernel in self.kernels):
            yield f"{count(same, 'kernel')} with other code, but equal figures"

    def _fails(self, name: Callable[[Named], str]) -> Iterator[str]:
        """Yield compile times, how many kernels are hidden, and which rules of --fail-on each kernel breaks."""
        pairs = [kernel.compile_us for kernel in self.kernels if kernel.compile_us]
        if pairs:
            old, new = (sum(side) for side in zip(*pairs, strict=True))
            yield f"compile time of {count(len(pairs), 'kernel')}: {duration(old)} → {duration(new)}"
        if self.hidden:
            yield f"{count(self.hidden, 'kernel')} left out by --top, --filter or --only"
        for kernel in self.kernels:
            if kernel.fails:
                yield f"fails: {name(kernel)}: {', '.join(kernel.fails)}"

    def _tables(self, name: Callable[[Named], str]) -> Iterator[Table]:
        if shown := [kernel for kernel in self.kernels if kernel.status in _SHOWN]:
            yield _changed(shown, name)
            if rows := [(name(kernel), *kernel.builds[0].row) for kernel in shown if kernel.builds]:
                columns = ("kernel", "figure", "old", "new PTX", "new ptxas", "both new", "changed by")
                keys = tuple(page_key(kernel) for kernel in shown if kernel.builds)
                title = "Changed by the PTX or by ptxas"
                yield Table(title, columns, tuple(rows), left=2, words=(6,), one_line=True, keys=keys, kept=(6,))
        for status, heading in _GROUPS.items():
            if kernels := [kernel for kernel in self.kernels if kernel.status is status]:
                cells = {"kernel": [name(kernel) for kernel in kernels]}
                if status is ChangeStatus.NEW:
                    cells["spills"] = [_spills(kernel.new) for kernel in kernels]
                    own = [kernel.figures for kernel in kernels]
                    cells |= {to: [number(of[figure][1]) for of in own] for figure, to in _HEADINGS.items()}
                cells = {to: column for to, column in cells.items() if {*column} != {UNKNOWN}}
                keys = tuple(map(page_key, kernels))
                yield Table(heading, tuple(cells), tuple(zip(*cells.values(), strict=True)), one_line=True, keys=keys)


def _changed(kernels: Sequence[KernelChange], name: Callable[[Named], str]) -> Table:
    """Make the table of changed kernels: a line for each, and a column for each figure that changes in any of them."""
    figures, judged = [kernel.figures for kernel in kernels], [kernel.judgement for kernel in kernels]
    told = len({kernel.by for kernel in kernels}) == 1 and kernels[0].by  # the only cause is already stated as a fact
    columns = {
        "kernel": [name(kernel) for kernel in kernels],
        "": judged,
        "spills": [_step(*map(_spills, (k.old, k.new))) for k in kernels],
        **{heading: [_step(*map(number, own[figure])) for own in figures] for figure, heading in _HEADINGS.items()},
        "blocks/SM": [_step(*map(number, k.blocks or (None, None))) for k in kernels],
        "compile-time": [_step(*map(duration, k.compile_us)) if k.compile_us else "" for k in kernels],
        "launch bounds": [k.bounds for k in kernels],
        "also other": [", ".join(k.loaded_changed or ()) for k in kernels],
        "changed by": ["" if told else kernel.by or "the same code" for kernel in kernels],
    }
    columns = {heading: cells for heading, cells in columns.items() if any(cells)}
    tones = tuple(map(_JUDGED.__getitem__, judged))
    words = tuple(
        n for n, heading in enumerate(columns) if heading in ("", "launch bounds", "also other", "changed by")
    )
    rows = tuple(zip(*columns.values(), strict=True))
    title, keys = "Changed kernels, the worst first", tuple(map(page_key, kernels))
    kept = tuple(n for n, heading in enumerate(columns) if heading == "changed by")
    return Table(title, tuple(columns), rows, tones=tones, words=words, one_line=True, keys=keys, kept=kept)


_SHORT = {"registers": "regs", "instructions": "instrs"}
_HEADINGS = {figure: _SHORT.get(figure, TITLES[figure]) for figure in FIGURES if not figure.startswith("spill")}
_JUDGED = {_WORSE: Tone.BAD, "failed": Tone.BAD, "better": Tone.GOOD, "": Tone.CHANGED}


def _spills(side: KernelFigures | None) -> str:
    return UNKNOWN if side is None else spills(side.spill_stores, side.spill_loads)


def _step(a: str, b: str) -> str:
    """Format "a → b"; "" if equal or one is unknown."""
    return "" if a == b or UNKNOWN in (a, b) else f"{a} → {b}"
