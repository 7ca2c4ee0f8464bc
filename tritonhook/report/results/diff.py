"""Result of `diff A B`: what differs between two kernels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar, Literal

from msgspec import UNSET, UnsetType, field

from tritonhook._util.schema import Count, Fields, Whole, like
from tritonhook.capture.model import Capture
from tritonhook.compare.diff import WORSE_WHEN_GROWING, CodeVerdict, CubinDiff, LoopDelta
from tritonhook.cubin.byte_map import file_layout
from tritonhook.cubin.image import Cubin
from tritonhook.cubin.resources import occupancy
from tritonhook.ptx.throughput_pragma import Trigger, trigger_of
from tritonhook.report.result import Result, Summary, Table, Tone, number, percent_of, ratio, short, signed, trigger
from tritonhook.report.results.capture import CodeFields

_TONES = {
    CodeVerdict.SAME_CODE: Tone.GOOD,
    CodeVerdict.LOADED_OTHERWISE: Tone.CHANGED,
    CodeVerdict.SCHEDULING: Tone.CHANGED,
    CodeVerdict.DIFFERENT_CODE: Tone.CHANGED,
}
_TAKEN = {True: "taken", False: "not taken", None: "cannot tell"}
_MOST_LOOPS = 12


class DiffSide(Fields):
    """One side of a diff.

    name: the kernel's name, with the configuration if that distinguishes the sides. kernel: the name under which it was
    assembled: `name`, or a control name. arch: such as "sm_90". ptxas: its version. file_bytes: size of the cubin.
    sha256: hash of the cubin. layout: all parts of the file in order, without gaps: lists of label, start, end.
    """

    name: str
    kernel: str
    arch: str
    ptxas: str | None
    file_bytes: Count
    sha256: str
    trigger: Trigger
    layout: tuple[tuple[str, Count, Count], ...] | UnsetType = UNSET

    @classmethod
    def of(cls, cubin: Cubin, name: str, kernel: str, ptxas: str | None, ptx: str | None) -> DiffSide:
        made_by = cubin.ptxas_version or ptxas
        return cls(
            name=name,
            kernel=kernel,
            arch=f"sm_{cubin.arch}",
            ptxas=made_by,
            file_bytes=len(cubin.data),
            sha256=cubin.sha256,
            trigger=trigger_of(kernel, ptx, made_by),
            layout=tuple((label, start, end) for label, start, end in file_layout(cubin, kernel)),
        )

    @property
    def control(self) -> str:
        """The control name under which it was assembled; "" if it was assembled under its own name."""
        return "" if self.kernel == self.name.partition("[")[0] else self.kernel

    @property
    def size(self) -> str:
        return f"{number(self.file_bytes)} bytes"


class SectionRow(Fields):
    """A section of both files. role: its name, in which {kernel} stands for the kernel's name. a_bytes, b_bytes: null
    if absent. changed: whether its bytes differ."""

    role: str
    a_bytes: Count | None
    b_bytes: Count | None
    changed: bool

    @property
    def row(self) -> tuple[str, ...]:
        sizes = ("absent" if size is None else number(size) for size in (self.a_bytes, self.b_bytes))
        return (self.role, *sizes, ratio(self.a_bytes, self.b_bytes))


_WARPS, _DECIDING = "warps_per_SM", ("registers", "threads", "shared", "dynamic_shared")


class Resource(Fields):
    """A resource of both kernels. field: `registers`, `stack`, `min_stack`, `shared`, `barriers`, `threads`,
    `spill_stores`, `spill_loads`, `externs` or `syscalls`; `warps_per_SM`, the warps that an SM holds at a time; and
    `dynamic_shared`, the bytes that launches of captured kernels add to `shared`. a, b: bytes, numbers or names;
    null: not known."""

    field: str
    a: Whole | tuple[str | Count, ...] | None
    b: Whole | tuple[str | Count, ...] | None

    @property
    def label(self) -> str:
        return self.field.replace("_", " ").replace("min stack", "smallest stack")

    def judgement(self, same_threads: bool) -> tuple[str, str, Tone]:
        """Describe the change: (figures, words, tone). same_threads: whether both kernels have equally many threads per
        block; if not, figures per thread or per block are not judged."""
        a, b = self.a, self.b
        if a is None or b is None:
            return "", "" if a == b else "known on one side only", Tone.NEUTRAL
        if a == b:
            return "", "same", Tone.NEUTRAL
        if not (isinstance(a, int) and isinstance(b, int)):
            return "", "differs", Tone.CHANGED
        change = signed(b - a)
        if self.field == _WARPS:
            return (change, "worse", Tone.BAD) if b < a else (change, "better", Tone.GOOD)
        if self.field not in WORSE_WHEN_GROWING or not same_threads:
            return change, "more" if b > a else "fewer", Tone.CHANGED
        relative = f", {percent_of(a, b)}" if a else ""
        return (change, f"worse{relative}", Tone.BAD) if b > a else (change, f"better{relative}", Tone.GOOD)


def _warps(diff: CubinDiff) -> Iterator[Resource]:
    """Yield how many warps of each kernel an SM holds at a time, if known for both."""
    known = {resource.field: (resource.a, resource.b) for resource in diff.resources}
    held = []
    for side, arch in enumerate((diff.a.arch, diff.b.arch)):
        registers, threads, shared, added = (_whole(known.get(name, (None, None))[side]) for name in _DECIDING)
        held.append(occupancy(f"sm_{arch}", registers, threads, shared, added or 0))
    if held[0] is not None and held[1] is not None:
        yield Resource(_WARPS, held[0].warps, held[1].warps)


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) else None


class CountPair(Fields):
    """A number for each side."""

    a: Count
    b: Count


class KnownCounts(Fields):
    """A number for each side; null: not known."""

    a: Count | None
    b: Count | None


def _loop_row(pair: LoopDelta) -> tuple[str, ...]:
    """List a loop's offset, each of its figures as "a → b", and whether it bears the mark of ptxas's other
    scheduler."""
    if pair.a:
        there = f"{pair.a.offset:#x}"
    elif pair.b:
        there = f"{pair.b.offset:#x} in b"
    else:
        raise ValueError("a pair of loops has neither an a nor a b")
    texts = [tuple(map(number, side.figures)) if side else ("absent",) * 3 for side in pair.sides]
    marks = ("yes" if side and side.rescheduled else "no" for side in pair.sides)
    return (there, *map(" → ".join, zip(*texts, strict=True)), " → ".join(marks))


class SassChanges(Fields):
    """How the instructions differ.

    in_place: pairs of instructions that are in the same order on both sides and equal except for register numbers and
    branch targets. identical: pairs in place in which these are equal too. moved: on both sides, but in another order.
    removed, added: only in a; only in b. control_changed: pairs in place whose stall, yield, barrier, wait or reuse
    field differs. yield_bits, stall_cycles: sums over the code: static, not measured. opcodes: counts by base opcode.
    loops: innermost loops.
    """

    instructions: CountPair
    in_place: Count
    identical: Count
    moved: Count
    removed: Count
    added: Count
    control_changed: Count
    yield_bits: CountPair
    stall_cycles: CountPair
    opcodes: dict[str, CountPair]
    loops: tuple[LoopDelta, ...]

    @classmethod
    def of(cls, diff: CubinDiff) -> SassChanges:
        s = diff.sass
        return like(
            s,
            cls,
            instructions=CountPair(s.a_instructions, s.b_instructions),
            yield_bits=CountPair(s.a_yield_bits, s.b_yield_bits),
            stall_cycles=CountPair(s.a_stall_cycles, s.b_stall_cycles),
            opcodes={name: CountPair(a, b) for name, (a, b) in s.opcodes.items()},
        )


class Flags(Fields):
    """A property of each side; null: not known."""

    a: bool | None
    b: bool | None


class Scheduler(Fields):
    """Use of ptxas's other scheduler. other_scheduler: whether it scheduled the kernel. capmerc_records: its records in
    the section .nv.capmerc. rescheduled_loops: how many loops it scheduled."""

    other_scheduler: Flags
    capmerc_records: KnownCounts
    rescheduled_loops: CountPair

    @property
    def judged_by_marks(self) -> bool:
        """Whether the other scheduler is recognised by its loops, in which nearly all yield bits are set. This is so if
        an image has no section .nv.capmerc."""
        return None in (self.capmerc_records.a, self.capmerc_records.b)


class CodePair(Fields):
    """The code of each side."""

    a: CodeFields
    b: CodeFields

    @classmethod
    def of(
        cls, diff: CubinDiff, ptx: Sequence[str | None], captures: Sequence[Capture | None] = (None, None)
    ) -> CodePair:
        """Build from a diff. ptx, captures: for each side; None if not available."""
        a, b = ((diff.a, diff.a_sass), (diff.b, diff.b_sass))
        return cls(CodeFields.of(*a, ptx[0], captures[0]), CodeFields.of(*b, ptx[1], captures[1]))


class MovedCounter(Fields):
    """A counter that differs between the kernels on a source line. A launch of each kernel was executed on the CPU.
    counter: its name on Nsight Compute's source page. a, b: null if not known."""

    line: str
    counter: str
    a: Count | None
    b: Count | None


class Diff(Result, tag="diff"):
    """What differs between two kernels.

    verdict: in a few words. summary: the verdict with the numbers that matter. notes: control names, ptxas and options
    used. loaded_changed: if the code is the same, the other parts that the driver loads and that differ: parameters,
    attributes, data, relocations, resources. code: of both sides, for an HTML page. moved: with --count, the counters
    that differ on a source line.
    """

    verbs: ClassVar = "diff A B"

    verdict: CodeVerdict
    said: str = field(name="summary")
    a: DiffSide
    b: DiffSide
    sections: tuple[SectionRow, ...]
    resources: tuple[Resource, ...]
    sass: SassChanges
    scheduler: Scheduler
    notes: tuple[str, ...] | UnsetType = UNSET
    loaded_changed: tuple[str, ...] | UnsetType = UNSET
    code: CodePair | UnsetType = UNSET
    moved: tuple[MovedCounter, ...] | UnsetType = UNSET
    format: Literal[1] = 1  # written also when the Diff is part of another result

    @classmethod
    def of(
        cls,
        diff: CubinDiff,
        ptxas: tuple[str | None, str | None] = (None, None),
        ptx: tuple[str | None, str | None] = (None, None),
        names: tuple[str, str] | None = None,
        notes: Sequence[str] | None = None,
        full: bool = False,
        captures: Sequence[Capture | None] = (None, None),
    ) -> Diff:
        """Build from a CubinDiff. ptxas: each side's version of ptxas, for images that do not name it. ptx: each side's
        PTX; None if not available. names: the kernels' own names, if an image has a control name.
        full: add the code, with source lines from the captures."""
        a_name, b_name = names or (diff.a_kernel, diff.b_kernel)
        return cls(
            verdict=diff.verdict,
            said=diff.summary,
            a=DiffSide.of(diff.a, a_name, diff.a_kernel, ptxas[0], ptx[0]),
            b=DiffSide.of(diff.b, b_name, diff.b_kernel, ptxas[1], ptx[1]),
            sections=tuple(like(section, SectionRow) for section in diff.sections),
            resources=(*(like(resource, Resource) for resource in diff.resources), *_warps(diff)),
            sass=SassChanges.of(diff),
            scheduler=Scheduler(
                Flags(*diff.other_scheduler),
                KnownCounts(*diff.scheduler_records),
                CountPair(diff.sass.a_rescheduled_loops, diff.sass.b_rescheduled_loops),
            ),
            notes=UNSET if notes is None else tuple(notes),
            loaded_changed=diff.loaded_changed if diff.verdict is CodeVerdict.LOADED_OTHERWISE else UNSET,
            code=CodePair.of(diff, ptx, captures) if full else UNSET,
        )

    def summary(self) -> Summary:
        tables = [Table("Sides", ("", "a", "b"), tuple(self._identity()), 3), self._resources(), *self._sections()]
        has_same_code = self.verdict in (CodeVerdict.SAME_CODE, CodeVerdict.LOADED_OTHERWISE)
        if not has_same_code:
            tables += [
                self._code(),
                self._opcodes(),
                *([self._loops()] if any(p.differs for p in self.sass.loops) else []),
            ]
        if self.moved:
            moved = tuple((one.line, one.counter, number(one.a), number(one.b)) for one in self.moved)
            tables.append(Table("Counters that moved", ("line", "counter", "a", "b"), moved, 2))
        subject = f"{short(self.a.name)} → {short(self.b.name)}"
        tone = Tone.BAD if self._worse else _TONES[self.verdict]
        notes = tuple(self.notes or ())
        other = " and ".join(self.loaded_changed or ())
        verdict = f"{CodeVerdict.SAME_CODE.value}, other {other}" if other else self.verdict.value
        return Summary("Diff", subject, verdict, tone, tuple(self._facts()), tuple(tables), notes)

    def scheduler_rows(self) -> tuple[tuple[str, str, str], ...]:
        """List for each side whether ptxas's other scheduler was used, and the evidence: records in the image, or, if
        an image cannot have them, the loops with this scheduler's mark."""
        s, other = self.scheduler, self.scheduler.other_scheduler
        pairs: list[tuple[str, CountPair | KnownCounts]] = [
            ("loops that it has scheduled", s.rescheduled_loops)
            if s.judged_by_marks
            else ("its records in .nv.capmerc", s.capmerc_records),
            ("yield bits", self.sass.yield_bits),
            ("stall cycles, static", self.sass.stall_cycles),
        ]
        figures = ((label, number(pair.a), number(pair.b)) for label, pair in pairs)
        return ("ptxas's other scheduler", _TAKEN[other.a], _TAKEN[other.b]), *figures

    def changed_opcodes(self) -> list[tuple[str, int, int]]:
        """List opcodes whose count differs, with both counts; the largest differences first."""
        counts = ((name, pair.a, pair.b) for name, pair in self.sass.opcodes.items() if pair.a != pair.b)
        return sorted(counts, key=lambda c: (-abs(c[2] - c[1]), c[0]))

    @property
    def same_threads(self) -> bool:
        """Whether both kernels declare the same number of threads, or neither declares one."""
        return all(row.a == row.b for row in self.resources if row.field == "threads")

    @property
    def _worse(self) -> list[Resource]:
        return [row for row in self.resources if row.judgement(self.same_threads)[2] is Tone.BAD]

    def _facts(self) -> Iterator[str]:
        if worse := self._worse:
            yield "worse in b: " + ", ".join(f"{row.label} {number(row.a)} → {number(row.b)}" for row in worse)
        # The parts about resources, "a -> b", are left out: the table has them.
        for fact in self.said.removeprefix(f"{self.verdict.value}: ").split("; "):
            if " -> " not in fact:
                yield fact

    def _identity(self) -> Iterator[tuple[str, str, str]]:
        a, b = self.a, self.b
        yield "kernel", a.name, b.name
        if a.control or b.control:
            yield "control name", a.control, b.control
        yield "target", a.arch, b.arch
        yield "ptxas", number(a.ptxas), number(b.ptxas)
        yield "trigger", trigger(a.trigger), trigger(b.trigger)
        yield "file", a.size, b.size
        yield "sha256", a.sha256[:16], b.sha256[:16]

    def _resources(self) -> Table:
        judged = [(row, *row.judgement(self.same_threads)) for row in self.resources]
        return Table(
            "Resources",
            ("resource", "a", "b", "change", ""),
            tuple((row.label, number(row.a), number(row.b), change, words) for row, change, words, _ in judged),
            tones=tuple(tone for *_, tone in judged),
            words=(4,),
        )

    def _sections(self) -> Iterator[Table]:
        """Show sections whose bytes differ. Sections can overlap, so they need not add up to the file."""
        rows = tuple(section.row for section in self.sections if section.changed)
        if rows:
            a, b = self.a.file_bytes, self.b.file_bytes
            whole = ("the whole file", number(a), number(b), ratio(a, b))
            yield Table("Sections that differ (bytes)", ("section", "a", "b", "b/a"), (*rows, whole))

    def _code(self) -> Table:
        s = self.sass
        rows = (
            ("instructions", number(s.instructions.a), number(s.instructions.b)),
            ("in the same order", number(s.in_place), number(s.in_place)),
            ("of these, also with equal registers", number(s.identical), number(s.identical)),
            ("moved", number(s.moved), number(s.moved)),
            ("only on this side", number(s.removed), number(s.added)),
        )
        title = "Code (compared without register numbers and branch targets)"
        return Table(title, ("", "a", "b"), rows + self.scheduler_rows())

    def _opcodes(self) -> Table:
        rows = tuple((name, number(a), number(b), signed(b - a)) for name, a, b in self.changed_opcodes())
        return Table("Opcodes whose count differs", ("opcode", "a", "b", "change"), rows or (("none", "", "", ""),))

    def _loops(self) -> Table:
        """Show the largest innermost loops that differ, each figure as "a → b"."""
        pairs = self.sass.loops
        changed = [pair for pair in pairs if pair.differs]
        largest = sorted(changed, key=lambda pair: -pair.longest)[:_MOST_LOOPS]
        title = f"Innermost loops that differ, of 8 instructions or more ({len(changed):,} of {len(pairs):,})"
        if len(changed) > len(largest):
            title += f", the {len(largest)} largest"
        columns: tuple[str, ...] = ("offset", "instructions", "yield bits", "stall cycles")
        if self.scheduler.judged_by_marks:
            columns += ("other scheduler's mark",)
        rows = tuple(_loop_row(pair)[: len(columns)] for pair in largest)
        return Table(title, columns, rows, words=(4,) if self.scheduler.judged_by_marks else ())
