"""Locks: `show LOCK`. Kernels before and after: `diff OLD NEW`, `check`, `bisect`."""

from __future__ import annotations

from typing import Literal

from tritonhook._util.schema import Count, Fields, Positive


class KernelFigures(Fields):
    """One kernel on one side. null: not known; all are, where ptxas made no code of it.

    spill_stores, spill_loads, stack, shared: bytes; of a thread, `shared` of a block. loop_instructions: of innermost
    loops. ptxas, options: what assembled it. ptx: SHA-256 of its text without positions in the source. codes: hashes of
    its machine code; several where ptxas gives one input several codes. classes: instructions by class of work.
    launch_bounds: threads and clusters that its launches must have or may not exceed, as PTX names them.
    """

    spill_stores: Count | None
    spill_loads: Count | None
    stack: Count | None
    registers: Count | None
    shared: Count | None
    instructions: Count | None
    loop_instructions: Count | None
    ptxas: str | None
    options: list[str] | None
    ptx: str | None
    codes: list[str]
    classes: dict[str, Count]
    launch_bounds: list[str]


class LockedFields(KernelFigures, kw_only=True):
    """One kernel of a lock. specialisation: constexprs, types of arguments, warps, stages. number: of several kernels
    that have name, arch and specialisation in common. rewrites: what tritonhook changed in its PTX; null: nothing."""

    kernel: str
    arch: str
    front_end: str
    specialisation: list[str]
    number: Positive
    rewrites: str | None


class LockContent(Fields):
    """The kernels of a lock. path: its file. tests: the files and folders whose tests compile all of its kernels; null:
    not known."""

    format: Literal[1]
    kind: Literal["lock"]
    path: str
    tests: list[str] | None
    kernels: list[LockedFields]


class KernelChange(Fields):
    """One kernel. number: of several kernels that have name, arch and specialisation in common.

    status: "not known" where the machine code of a side is not. specialisation: constexprs, types of arguments, warps,
    stages. by: who changed the code; "" where it did not change; why ptxas made none where it is "not assembled".
    worse: the figures that grew; registers where fewer blocks fit. fails: rules of `--fail-on` that it breaks.
    blocks_by_registers: how many blocks an SM has registers and warps for, old and new. old, new: null where it is not
    there.
    """

    kernel: str
    arch: str
    specialisation: list[str]
    number: Positive
    status: Literal["same", "changed", "new", "gone", "not known", "not assembled"]
    code_changed: bool
    by: str
    worse: list[str]
    fails: list[str]
    blocks_by_registers: tuple[Count, Count] | None
    old: KernelFigures | None
    new: KernelFigures | None


class KernelChanges(Fields):
    """Kernels before and after.

    old, new: what was compared: two capture folders, or a lock and what is there now. counts: kernels by status, and
    `worse`: those of which a figure grew. kernels: the worst change first. notes: what else was done.
    """

    format: Literal[1]
    kind: Literal["kernel changes"]
    old: str
    new: str
    counts: dict[str, Count]
    kernels: list[KernelChange]
    notes: list[str]


class TriedVersion(Fields):
    """A kernel under one version of ptxas. changed: null where that is not known. reason: why it is not assembled.

    values: what was looked at, of each code that this version gave: a figure, "stores + loads" for spills, the hash of
    the code. made: figures of each code; several where ptxas gives one input several codes.
    """

    version: str
    changed: bool | None
    reason: str
    values: list[str]
    made: list[KernelFigures]


class BisectedKernel(Fields):
    """One kernel. number, specialisation: as in KernelChange.

    first: the oldest version seen that changed it; null where the good and the bad version do the same, or where
    nothing is known of one of them: `problem` then says why. before: the newest one older than `first` that did not
    change it. between: versions between these two of which nothing is known. returned: versions after `first` that are
    as the good one again. tried: from the oldest version to the newest.
    """

    kernel: str
    arch: str
    specialisation: list[str]
    number: Positive
    first: str | None
    before: str | None
    between: list[str]
    returned: list[str]
    problem: str | None
    tried: list[TriedVersion]


class Bisect(Fields):
    """Which version of ptxas changed a kernel first.

    subject: the file or folder of the kernels. good, bad: the versions between which it was searched. on: what counts.
    versions: all there are from the good one to the bad one. all_versions: whether all of them were tried. notes: what
    else was done.
    """

    format: Literal[1]
    kind: Literal["bisect"]
    subject: str
    good: str
    bad: str
    on: Literal["spills", "stack", "registers", "shared", "instructions", "loop_instructions", "code"]
    versions: list[str]
    all_versions: bool
    kernels: list[BisectedKernel]
    notes: list[str]
