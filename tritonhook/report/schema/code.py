"""Machine code and diffs of it: `diff`, `ab FILE`, `demo`, `table`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta

from tritonhook._util.schema import Count, Fields, Number, Whole

Instruction = tuple[str, str, str, Count, tuple[Count, Count] | None, Count | None]

Verdict = Literal["same code", "only scheduling differs", "different code"]


class Trigger(Fields):
    """What makes ptxas take its other scheduler for a kernel. name: whether its name contains `cutlass`. pragma:
    whether it has the pragma; null: not known."""

    name: bool
    pragma: bool | None


class Code(Fields):
    """A kernel's code.

    indirect_targets: offsets. files: source files. ptx: its text; null if it is not at hand. instructions: lists of
    predicate, opcode, operands, control field, [index into `files`, line] or null, line of the PTX or null; instruction
    *i* is at byte 16 *i*.
    """

    kernel: str
    indirect_targets: list[Count]
    files: list[str]
    ptx: str | None
    instructions: list[Instruction]


class Side(Fields):
    """One side of a diff.

    name: the user's. kernel: the name under which it was assembled: `name`, or a control name. arch: such as "sm_90".
    ptxas: its version. file_bytes, sha256: of the cubin. layout: the whole file in order, without a gap: lists of
    label, start, end.
    """

    name: str
    kernel: str
    arch: str
    ptxas: str | None
    file_bytes: Count
    sha256: str
    trigger: Trigger
    layout: list[tuple[str, Count, Count]] | None = None


class Section(Fields):
    """A section of both files. role: its name, with the kernel's as {kernel}. a_bytes, b_bytes: null where it is
    absent. changed: whether its bytes differ."""

    role: str
    a_bytes: Count | None
    b_bytes: Count | None
    changed: bool


class Resource(Fields):
    """A resource of both kernels. field: `registers`, `stack`, `min_stack`, `shared`, `barriers`, `threads`,
    `spill_stores`, `spill_loads`, `externs` or `syscalls`; and `dynamic_shared`, what launches of captured kernels add
    to `shared`, where they do. a, b: bytes, numbers or names; null: not known."""

    field: str
    a: Whole | list[str | Count] | None
    b: Whole | list[str | Count] | None


class Counts(Fields):
    """A number on both sides."""

    a: Count
    b: Count


class KnownCounts(Fields):
    """A number on both sides; null: not known."""

    a: Count | None
    b: Count | None


class Loop(Fields):
    """An innermost loop. offset: in bytes. yield_bits, stall_cycles: sums; static, not time. rescheduled: whether it
    has the mark of the other scheduler. opcodes: how often each occurs."""

    offset: Count
    instructions: Count
    yield_bits: Count
    stall_cycles: Count
    rescheduled: bool | None
    opcodes: dict[str, Count]


class LoopPair(Fields):
    """A loop on both sides; null: on the other side only."""

    a: Loop | None
    b: Loop | None


class Sass(Fields):
    """How the instructions differ.

    in_place: pairs in the same order with registers erased. identical: those of them that are equal in every character.
    moved: on both sides, in another order. removed, added: only in a; only in b. control_changed: pairs in place whose
    stall, yield, barrier, wait or reuse field differs. yield_bits, stall_cycles: sums; static, not time. opcodes: by
    base opcode. loops: innermost loops.
    """

    instructions: Counts
    in_place: Count
    identical: Count
    moved: Count
    removed: Count
    added: Count
    control_changed: Count
    yield_bits: Counts
    stall_cycles: Counts
    opcodes: dict[str, Counts]
    loops: list[LoopPair]


class Flags(Fields):
    """A property of both sides; null: cannot be told."""

    a: bool | None
    b: bool | None


class Scheduler(Fields):
    """ptxas's other scheduler: whether it was taken, its records in .nv.capmerc, loops with its mark."""

    other_scheduler: Flags
    capmerc_records: KnownCounts
    rescheduled_loops: Counts


class CodePair(Fields):
    """The code of both sides."""

    a: Code
    b: Code


class Diff(Fields):
    """What differs between two kernels.

    verdict: in three words. summary: the verdict with the numbers that matter. notes: control names, ptxas and options
    used. code: for a page.
    """

    format: Literal[1]
    verdict: Verdict
    summary: str
    a: Side
    b: Side
    sections: list[Section]
    resources: list[Resource]
    sass: Sass
    scheduler: Scheduler
    notes: list[str] = []
    code: CodePair | None = None
    kind: Literal["diff"] = "diff"


class Assembler(Fields):
    """The ptxas that assembled. version, path: null if not known."""

    version: str | None
    path: str | None
    arguments: list[str]


class Crash(Fields):
    """A run of ptxas that made no cubin. summary: in one line. signal: what ended it. command: repeats it."""

    summary: str
    signal: str | None
    returncode: Whole
    timeout: bool
    command: str
    stderr: str
    ptxas: str


class Build(Fields):
    """A kernel under one name. file_bytes: null if it crashed."""

    kernel: str
    file_bytes: Count | None
    crash: Crash | None


class CodesSeen(Fields):
    """How many different codes ptxas gave each name."""

    original: Count
    renamed: Count
    control: Count


class Names(Fields):
    """One kernel under two names and a control name.

    runs: how often each was assembled. control_is_neutral: whether the control has the code of the original; null:
    not assembled. control_diff: how it differs. diff: of the pair of equal name length; null if one crashed.
    """

    format: Literal[1]
    kind: Literal["names"]
    ptxas: Assembler
    original: Build
    renamed: Build
    control: Build
    runs: Count
    codes_seen: CodesSeen
    control_is_neutral: bool | None
    control_diff: str | None
    diff: Diff | None


class PublishedRatio(Fields):
    """What was published. size, capmerc: with the trigger, divided by without."""

    size: Number | None = None
    capmerc: Number | None = None


class Row(Fields):
    """One condition of the published table; ratios are with the trigger, divided by without.

    size_ratio, size_ratio_equal_length: of the file; with names of equal length. capmerc_ratio, capmerc_bytes: of
    .nv.capmerc. failure: of ptxas.
    """

    condition: str
    published: PublishedRatio | None
    size_ratio: Number | None
    size_ratio_equal_length: Number | None
    capmerc_ratio: Number | None
    capmerc_bytes: tuple[Count | None, Count | None]
    scheduler_records: Count | list[Count | None] | None
    code_changed: bool | None
    failure: str | None
    note: str | None


class PublishedTable(Fields):
    """The published table of the name effect, assembled here. ptxas: its version. targets: of the rows. notes: why it
    is not the published ptxas."""

    format: Literal[1]
    kind: Literal["table"]
    ptxas: str
    rows: list[Row]
    targets: list[str] = []
    notes: list[str] = []


class Demo(Fields):
    """Every step on a bundled kernel. captures: the kernels. comparisons: by title."""

    format: Literal[1]
    kind: Literal["demo"]
    captures: list[dict[str, Any]]
    comparisons: Annotated[dict[str, Names], Meta(min_length=1)]
    table: PublishedTable


class Module(Fields):
    """A module with several kernels. kernels: how many. file_bytes, sha256: of the cubin."""

    arch: str
    ptxas: str | None
    kernels: Count
    file_bytes: Count
    sha256: str


class KernelPair(Fields):
    """A kernel of both modules. a, b: its names. summary: of its diff; null for the same code. resources: by name."""

    a: str
    b: str
    verdict: Verdict
    summary: str | None
    resources: dict[str, KnownCounts]


class ModuleDiff(Fields):
    """Two modules compared.

    same_code: whether both have the same kernels with the same code. only_a, only_b: names of the kernels of one side.
    notes: ptxas and options used.
    """

    format: Literal[1]
    kind: Literal["module diff"]
    same_code: bool
    a: Module
    b: Module
    kernels: list[KernelPair]
    only_a: list[str]
    only_b: list[str]
    notes: list[str] = []
