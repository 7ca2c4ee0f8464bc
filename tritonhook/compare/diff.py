"""Compare one kernel of two cubins: sections, resources, instructions. Pure functions; the result is a CubinDiff.

The verdict is computed from the code itself. There is no default verdict, and unread code never counts as equal.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from enum import Enum
from typing import ClassVar

from tritonhook._display import Brief, Notebook
from tritonhook.compare.alignment import align_texts
from tritonhook.cubin.image import Cubin, Section
from tritonhook.cubin.loaded import PARTS, loaded_of
from tritonhook.cubin.resources import Resources, launch_shared
from tritonhook.cubin.sass import Loop, Sass
from tritonhook.errors import CubinError, listed

# Two loops with at least this fraction of common opcodes count as one source loop. Such loops had 0.95 or more.
ALIKE = 0.8
# Resources for which a larger value is worse if both kernels have the same number of threads. Others are not judged.
WORSE_WHEN_GROWING = ("registers", "stack", "spill_stores", "spill_loads", "shared")
_OF_LAUNCH = ("registers", "stack", "shared", "launch_bounds")  # resources that the driver uses at a launch


class CodeVerdict(str, Enum):
    """Result of the comparison of two kernels' code. Equal code does not mean equal files: names and debug data may
    differ.

    LOADED_OTHERWISE: the code is equal, but the driver loads other parameters, attributes or data with it, or gives it
    other resources.
    """

    SAME_CODE = "same code"
    LOADED_OTHERWISE = "same code, loaded otherwise"
    SCHEDULING = "only scheduling differs"
    DIFFERENT_CODE = "different code"


@dataclass(frozen=True, slots=True, repr=False)
class SectionDelta(Brief):
    """One section in two cubins. Sections are matched by role: the section's name with "{kernel}" instead of the
    kernel's name. a, b: None if that side has no such section."""

    role: str
    a: Section | None
    b: Section | None

    @property
    def a_bytes(self) -> int | None:
        return None if self.a is None else self.a.size

    @property
    def b_bytes(self) -> int | None:
        return None if self.b is None else self.b.size

    @property
    def changed(self) -> bool:
        if self.a is None or self.b is None:
            return True
        return self.a.data != self.b.data or self.a.size != self.b.size


@dataclass(frozen=True, slots=True)
class ResourceDelta:
    """One resource of the kernel on both sides. a, b: None if not known."""

    field: str
    a: int | tuple[str, ...] | None
    b: int | tuple[str, ...] | None

    @property
    def changed(self) -> bool:
        """Whether both sides are known and differ."""
        return None not in (self.a, self.b) and self.a != self.b


@dataclass(frozen=True, slots=True, repr=False)
class LoopSummary(Brief):
    """An innermost loop. offset: in bytes. yield_bits, stall_cycles: sums over the loop's control fields, not measured
    times. rescheduled: whether most of its blocks have the yield bits that ptxas's other scheduler sets. opcodes:
    counts by opcode."""

    offset: int
    instructions: int
    yield_bits: int
    stall_cycles: int
    rescheduled: bool | None
    opcodes: Mapping[str, int]

    @property
    def figures(self) -> tuple[int, int, int]:
        return self.instructions, self.yield_bits, self.stall_cycles


@dataclass(frozen=True, slots=True, repr=False)
class LoopDelta(Brief):
    """A pair of corresponding innermost loops. a, b: None if that side has no corresponding loop."""

    a: LoopSummary | None
    b: LoopSummary | None

    @property
    def sides(self) -> tuple[LoopSummary | None, LoopSummary | None]:
        return self.a, self.b

    @property
    def differs(self) -> bool:
        a, b = self.a, self.b
        return a is None or b is None or (a.figures, a.opcodes) != (b.figures, b.opcodes)

    @property
    def longest(self) -> int:
        """Number of instructions of the longer side. Raises ValueError if both sides are None."""
        return max(side.instructions for side in self.sides if side)

    @property
    def alike(self) -> bool:
        """Whether both come from the same loop of the source, judged by their opcodes. Only such loops are compared."""
        return self.a is not None and self.b is not None and _likeness(self.a, self.b) >= ALIKE


@dataclass(frozen=True, slots=True, repr=False)
class SassDiff(Brief):
    """Comparison of two instruction sequences, with registers and branch targets erased. Fields are counts.

    in_place: pairs in the same order on both sides. moved: pairs in a different order. removed: instructions only in a.
    added: instructions only in b. identical: pairs in place whose registers and branch targets are also equal.
    control_changed: pairs in place whose control field (stall, yield, barriers, wait, reuse) differs.
    """

    a_instructions: int
    b_instructions: int
    in_place: int
    identical: int
    moved: int
    removed: int
    added: int
    control_changed: int
    opcodes: Mapping[str, tuple[int, int]]
    a_yield_bits: int
    b_yield_bits: int
    a_stall_cycles: int
    b_stall_cycles: int
    loops: tuple[LoopDelta, ...]

    @property
    def a_rescheduled_loops(self) -> int:
        return sum(1 for loop in self.loops if loop.a and loop.a.rescheduled)

    @property
    def b_rescheduled_loops(self) -> int:
        return sum(1 for loop in self.loops if loop.b and loop.b.rescheduled)


@dataclass(frozen=True, slots=True, repr=False)
class CubinDiff(Notebook):
    """Comparison of the kernel `a_kernel` in the cubin `a` with the kernel `b_kernel` in the cubin `b`."""

    _shown: ClassVar[tuple[str, ...]] = ("verdict", "a_kernel", "b_kernel", "a", "b")

    a: Cubin
    b: Cubin
    a_kernel: str
    b_kernel: str
    sections: tuple[SectionDelta, ...]
    resources: tuple[ResourceDelta, ...]
    sass: SassDiff
    a_sass: Sass
    b_sass: Sass

    @property
    def identical_code(self) -> bool:
        """Whether the kernel's instructions, and all other parts of the program, are equal byte for byte."""
        return has_same_code(self.a, self.b, self.a_kernel, self.b_kernel)

    @property
    def changed_parts(self) -> tuple[str, ...]:
        """Roles of the differing parts of the program, without the kernel's own instructions: device functions,
        constant banks, initialised globals, and symbols that a linker puts into the code."""
        return _changed_parts(self.a, self.b, self.a_kernel, self.b_kernel)

    @property
    def loaded_changed(self) -> tuple[str, ...]:
        """Differing data that the driver loads besides the code (see cubin/loaded.py), and differing resources."""
        launched = tuple("dynamic shared" for d in self.resources if d.field == "dynamic_shared" and d.changed)
        loaded = loaded_of(self.a.data, self.a_kernel), loaded_of(self.b.data, self.b_kernel)
        return (*loaded_changed(*loaded, self.resources), *launched)

    @property
    def verdict(self) -> CodeVerdict:
        if self.identical_code:
            return CodeVerdict.LOADED_OTHERWISE if self.loaded_changed else CodeVerdict.SAME_CODE
        same_work = not (self.sass.added or self.sass.removed) and set(self.changed_parts) <= {_LINKED, _JUMP_TABLE}
        same_calls = sorted(n for _, n in _linked(self.a, self.a_kernel)) == sorted(
            n for _, n in _linked(self.b, self.b_kernel)
        )
        return CodeVerdict.SCHEDULING if same_work and same_calls else CodeVerdict.DIFFERENT_CODE

    @property
    def scheduler_records(self) -> tuple[int | None, int | None]:
        """Number of records of ptxas's other scheduler in a and in b; None if the image has no .nv.capmerc section."""
        return self.a.scheduler_records(self.a_kernel), self.b.scheduler_records(self.b_kernel)

    @property
    def other_scheduler(self) -> tuple[bool | None, bool | None]:
        """Whether ptxas used its other scheduler, for a and for b; None if not known.

        Images for sm_100 and newer have .nv.capmerc records that show it. For other images the loops show it: the other
        scheduler sets the yield bits of a whole loop. Some loops of plain arithmetic always have them, so only a loop
        with yield bits on one side and without on the other is proof.
        """
        a_records, b_records = self.scheduler_records
        if a_records is not None and b_records is not None:
            return a_records > 0, b_records > 0
        pairs = [(bool(p.a and p.a.rescheduled), bool(p.b and p.b.rescheduled)) for p in self.sass.loops]
        alike = [p.alike for p in self.sass.loops]
        proofs = [[ok and x and not y for ok, (x, y) in zip(alike, pairs, strict=True)]]
        proofs += [[ok and y and not x for ok, (x, y) in zip(alike, pairs, strict=True)]]
        return _taken(proofs[0], pairs, 0), _taken(proofs[1], pairs, 1)

    def with_launches(self, a: int | None, b: int | None) -> CubinDiff:
        """Return the diff with the dynamic shared memory of the launches: added to `shared`, and as a resource
        `dynamic_shared`. a, b: bytes per launch on each side; None: not known. Return the same object if neither launch
        uses any."""
        if not (a or b):
            return self
        deltas: list[ResourceDelta] = []
        for delta in self.resources:
            if delta.field == "shared" and isinstance(delta.a, int) and isinstance(delta.b, int):
                total = ResourceDelta("shared", launch_shared(delta.a, a), launch_shared(delta.b, b))
                deltas += (total, ResourceDelta("dynamic_shared", a, b))
            else:
                deltas.append(delta)
        return replace(self, resources=tuple(deltas))

    @property
    def worse(self) -> tuple[ResourceDelta, ...]:
        """The resources in WORSE_WHEN_GROWING of which b needs more; empty if the numbers of threads differ."""
        if any(d.a != d.b for d in self.resources if d.field == "threads"):
            return ()
        judged = (d for d in self.resources if d.field in WORSE_WHEN_GROWING)
        return tuple(d for d in judged if isinstance(d.a, int) and isinstance(d.b, int) and d.b > d.a)

    @property
    def summary(self) -> str:
        """The verdict and the most important numbers, in one line."""
        return f"{self.verdict.value}: {'; '.join(self._facts())}"

    def _facts(self) -> list[str]:
        s = self.sass
        if self.a.text(self.a_kernel) == self.b.text(self.b_kernel):
            facts = [f"{s.a_instructions:,} instructions, equal byte for byte"]
        elif self.verdict is CodeVerdict.SCHEDULING:
            facts = [
                f"the same {s.a_instructions:,} instructions apart from registers and targets, {s.moved:,} moved, "
                f"{s.in_place - s.identical:,} with other registers or targets, "
                f"control fields of {s.control_changed:,} changed"
            ]
        else:
            facts = [
                f"{s.removed:,} of {s.a_instructions:,} instructions only in a, "
                f"{s.added:,} of {s.b_instructions:,} only in b, {s.moved:,} moved"
            ]
        if parts := [part for part in self.changed_parts if part != _JUMP_TABLE]:
            facts.append(f"the program differs in {', '.join(parts)}")
        if self.verdict is CodeVerdict.LOADED_OTHERWISE:
            facts.append(f"the driver loads other {listed(self.loaded_changed)}")
        for delta in self.resources:
            if delta.changed and delta.field != "externs":
                facts.append(f"{delta.field.replace('_', ' ')} {_shown(delta.a)} -> {_shown(delta.b)}")
        if (scheduler := self._scheduler_fact()) is not None:
            facts.append(scheduler)
        return facts

    def _scheduler_fact(self) -> str | None:
        a, b = self.other_scheduler
        if not (a or b):
            return None
        side = "both sides" if a and b else "b" if b else "a"
        return f"ptxas took its other scheduler for {side}"


_LINKED = "symbols to link"
_JUMP_TABLE = ".nv.constant2.{kernel}"  # targets of indirect branches, which change when instructions move
_PARAMETERS = ".nv.constant0.{kernel}"  # parameters, which the launch fills


def has_same_code(a: Cubin, b: Cubin, a_kernel: str, b_kernel: str) -> bool:
    """Return True if a kernel's instructions, and all other parts of the program, are equal byte for byte."""
    return a.text(a_kernel) == b.text(b_kernel) and not _changed_parts(a, b, a_kernel, b_kernel)


def loaded_changed(a: Mapping[str, str], b: Mapping[str, str], resources: Iterable[ResourceDelta]) -> tuple[str, ...]:
    """List the differing parts, as CubinDiff.loaded_changed. a, b: hash of each part on each side; a missing part
    counts as empty."""
    parts = [part for part in PARTS if a.get(part, "") != b.get(part, "")]
    parts += [delta.field.replace("_", " ") for delta in resources if delta.field in _OF_LAUNCH and delta.changed]
    return tuple(parts)


def _changed_parts(a: Cubin, b: Cubin, a_kernel: str, b_kernel: str) -> tuple[str, ...]:
    parts = _program_parts(a, a_kernel), _program_parts(b, b_kernel)
    return tuple(role for role in dict.fromkeys([*parts[0], *parts[1]]) if parts[0].get(role) != parts[1].get(role))


def _program_parts(cubin: Cubin, kernel: str) -> dict[str, object]:
    parts: dict[str, object] = {
        s.role: s.data
        for s in cubin.sections_of(kernel)
        if s.role.startswith((".text.", ".nv.constant", ".nv.global.init"))
        and s.role not in (".text.{kernel}", _PARAMETERS)
    }
    return parts | {_LINKED: _linked(cubin, kernel)}


def _linked(cubin: Cubin, kernel: str) -> tuple[tuple[int, str], ...]:
    return tuple((offset, name) for offset, _, name in (cubin.relocations or {}).get(kernel, ()))


def _taken(alone: list[bool], pairs: list[tuple[bool, bool]], side: int) -> bool | None:
    if any(alone):
        return True
    return None if any(pair[side] for pair in pairs) else False


def _shown(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


def diff(a: Cubin, b: Cubin, a_sass: Sass, b_sass: Sass) -> CubinDiff:
    """Compare one kernel of each side. Raises CubinError if a side has no instructions, or if the architectures
    differ."""
    check_architectures(a, b)
    for name, sass in (("a", a_sass), ("b", b_sass)):
        if not sass.instructions:
            raise CubinError(f"side {name}: no instructions of {sass.kernel!r} were read; nothing to compare")
    a_kernel, b_kernel = a.only_kernel(a_sass.kernel), b.only_kernel(b_sass.kernel)
    return CubinDiff(
        a=a,
        b=b,
        a_kernel=a_kernel,
        b_kernel=b_kernel,
        sections=_sections(a, b, a_kernel, b_kernel),
        resources=resource_deltas(a.resources[a_kernel], b.resources[b_kernel]),
        sass=diff_sass(a_sass, b_sass),
        a_sass=a_sass,
        b_sass=b_sass,
    )


def check_architectures(a: Cubin, b: Cubin) -> None:
    """Raise CubinError if the images are for different architectures."""
    if a.arch != b.arch:
        raise CubinError(f"a is for sm_{a.arch}, b for sm_{b.arch}; compare kernels for one architecture")


def _sections(a: Cubin, b: Cubin, a_kernel: str, b_kernel: str) -> tuple[SectionDelta, ...]:
    """List the sections of the two kernels and of the module, in file order."""
    sides = [{s.role: s for s in cubin.sections_of(kernel)} for cubin, kernel in ((a, a_kernel), (b, b_kernel))]
    roles = list(dict.fromkeys([*sides[0], *sides[1]]))
    return tuple(SectionDelta(role, sides[0].get(role), sides[1].get(role)) for role in roles)


def resource_deltas(a: Resources, b: Resources) -> tuple[ResourceDelta, ...]:
    """List each resource with both values. Local-memory traffic is included only if the spills are not known."""
    names = [f.name for f in fields(Resources)]
    if None not in (a.spill_stores, b.spill_stores):
        names = [name for name in names if name not in ("local_stores", "local_loads")]
    deltas = [ResourceDelta(name, getattr(a, name), getattr(b, name)) for name in names]
    return (*deltas, ResourceDelta("syscalls", a.syscalls, b.syscalls))


def diff_sass(a: Sass, b: Sass) -> SassDiff:
    """Align two instruction sequences by shape, and count moved, removed and added instructions."""
    a_shapes, b_shapes = ([i.shape for i in side.instructions] for side in (a, b))
    rows = align_texts(a_shapes, b_shapes)
    pairs = [(i, j) for i, j, in_place in rows if in_place and i is not None and j is not None]
    left, right = Counter(a_shapes), Counter(b_shapes)
    common = sum((left & right).values())
    opcodes_a, opcodes_b = a.opcode_counts(), b.opcode_counts()
    return SassDiff(
        a_instructions=len(a_shapes),
        b_instructions=len(b_shapes),
        in_place=len(pairs),
        identical=sum(1 for i, j in pairs if a.instructions[i][1:4] == b.instructions[j][1:4]),
        moved=common - len(pairs),
        removed=len(a_shapes) - common,
        added=len(b_shapes) - common,
        control_changed=sum(1 for i, j in pairs if a.instructions[i].control != b.instructions[j].control),
        opcodes={name: (opcodes_a[name], opcodes_b[name]) for name in sorted({*opcodes_a, *opcodes_b})},
        a_yield_bits=sum(i.yield_bit for i in a.instructions),
        b_yield_bits=sum(i.yield_bit for i in b.instructions),
        a_stall_cycles=sum(i.stall for i in a.instructions),
        b_stall_cycles=sum(i.stall for i in b.instructions),
        loops=_pair_loops(a, b),
    )


def _pair_loops(a: Sass, b: Sass) -> tuple[LoopDelta, ...]:
    """Match innermost loops: in order if both sides have equally many, else by the similarity of their opcodes."""
    left = [_summarise(a, loop) for loop in a.innermost_loops]
    right = [_summarise(b, loop) for loop in b.innermost_loops]
    if len(left) == len(right):
        return tuple(LoopDelta(x, y) for x, y in zip(left, right, strict=True))
    pairs: list[LoopDelta] = []
    rest = list(right)
    for x in left:
        partner = max(rest, key=lambda y: _likeness(x, y), default=None)
        if partner is not None and _likeness(x, partner) >= ALIKE:
            rest.remove(partner)
            pairs.append(LoopDelta(x, partner))
        else:
            pairs.append(LoopDelta(x, None))
    return (*pairs, *(LoopDelta(None, y) for y in rest))


def _likeness(x: LoopSummary, y: LoopSummary) -> float:
    common = sum((Counter(x.opcodes) & Counter(y.opcodes)).values())
    return 2 * common / (x.instructions + y.instructions)


def _summarise(sass: Sass, loop: Loop) -> LoopSummary:
    code = [sass.instructions[i] for i in loop.instructions]
    return LoopSummary(
        offset=sass.instructions[sass.blocks[loop.header].first].offset,
        instructions=len(code),
        yield_bits=sum(i.yield_bit for i in code),
        stall_cycles=sum(i.stall for i in code),
        rescheduled=sass.is_rescheduled(loop),
        opcodes=dict(sass.opcode_counts(loop.instructions)),
    )
