"""Reproduce the published table of the effect of "cutlass" in a kernel's name. Its conditions are small kernels. Each
is assembled under a plain name, under a name with "cutlass", and under a control name as long as the name with
"cutlass"."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tritonhook.compare.names import NameComparison, RenamedBuild, compare_names
from tritonhook.ptx.module import Ptx
from tritonhook.ptxas.threads import tool_threads
from tritonhook.ptxas.toolchain import Toolchain
from tritonhook.rename import PREFIX, Rename

TARGET = "sm_100a"
PTX_VERSION = "8.7"  # the newest that ptxas 12.8 reads

# All conditions have the same prologue and differ only in the body. %p0: true in warp 0. %p1: n != 0, which makes the
# MMA accumulate. %r6: instruction descriptor. %rd2, %rd3: matrix descriptors.
_HEADER = """.version {version}
.target {target}
.address_size 64
.extern .shared .align 16 .b8 smem[];
.visible .entry {name}(.param .u64 {name}_param_0, .param .u32 {name}_param_1)
.reqntid 128
{{
 .reg .pred %p<16>; .reg .b32 %r<64>; .reg .b64 %rd<32>; .reg .f32 %f<256>; .reg .b16 %h<16>;
 ld.param.u64 %rd1, [{name}_param_0];
 ld.param.u32 %r1, [{name}_param_1];
 mov.u32 %r2, %tid.x; shr.u32 %r3, %r2, 5; setp.eq.u32 %p0, %r3, 0;
 mov.b64 %rd2, 0x4000004000010000; mov.b64 %rd3, 0x4000004000010000;
 mov.u32 %r5, 0; mov.u32 %r6, 0x8100010; mov.u32 %r7, 0; setp.ne.u32 %p1, %r1, 0;
"""
_FOOTER = " ret;\n}\n"
_OPERANDS = " mov.u32 %r8, 128; mov.u32 %r9, 160;\n"
_STATES = 4


def _mma(predicate: str = "@%p0 ") -> str:
    return f"{predicate}tcgen05.mma.cta_group::1.kind::f8f6f4 [%r5], %rd2, %rd3, %r6, %p1;"


def _loop(body: str) -> str:
    return f"L:\n {body}\n add.u32 %r7, %r7, 1; setp.lt.u32 %p2, %r7, %r1; @%p2 bra L;\n"


def _branch_machine() -> str:
    """Write the PTX of a state machine with brx.idx, in which each next state is loaded from memory."""
    labels = ", ".join(f"S{i}" for i in range(_STATES))
    text = f"NEXT:\n ld.global.u32 %r10, [%rd1]; setp.ge.u32 %p3, %r10, {_STATES}; @%p3 bra DONE;\n"
    text += f" T: .branchtargets {labels};\n brx.idx %r10, T;\n"
    for i in range(_STATES):
        text += f"S{i}:\n add.u32 %r11, %r10, {i + 1}; mul.lo.u32 %r11, %r11, {2 * i + 3};\n"
        text += f" st.global.u32 [%rd1+{8 + 4 * i}], %r11;\n bar.sync {i + 1}, 128; bra NEXT;\n"
    return text + "DONE:\n"


def _fma_loop() -> str:
    load = "".join(
        f" ld.global.v4.f32 {{%f{4 * i},%f{4 * i + 1},%f{4 * i + 2},%f{4 * i + 3}}}, [%rd1+{16 * i}];\n"
        for i in range(3)
    )
    body = "\n ".join(f"fma.rn.f32 %f{i}, %f{i}, %f{i + 1}, %f{i + 2};" for i in range(8))
    store = "".join(f" st.global.f32 [%rd1+{4 * i}], %f{i};\n" for i in range(8))
    return load + _loop(body) + store


@dataclass(frozen=True, slots=True)
class Condition:
    """The kernel of one row of the table.

    published: the published ratios (file size, .nv.capmerc size); None for rows that are not in the published table.
    note: remark on the row for readers.
    """

    key: str
    title: str
    body: str
    published: tuple[float, float] | None = None
    note: str = ""

    def ptx(self, name: str = "kernel_x", target: str = TARGET, version: str = PTX_VERSION) -> Ptx:
        """Write the kernel's PTX under a name. It is only for assembling: do not launch it."""
        return Ptx(_HEADER.format(name=name, target=target, version=version) + self.body + _FOOTER)


CONDITIONS = (
    Condition("none", "no GEMM", "", (1.00, 1.00)),
    Condition(
        "single",
        "one tcgen05.mma, no loop",
        _OPERANDS + " " + _mma() + "\n",
        (1.02, 1.00),
        "the published 1.02 comes from the longer name: see the column 'at equal name length'",
    ),
    Condition(
        "brx",
        "brx.idx state machine, no MMA",
        _branch_machine(),
        (1.02, 1.00),
        "the published 1.02 comes from the longer name: see the column 'at equal name length'",
    ),
    Condition("loop", "tcgen05.mma in a loop", _OPERANDS + " " + _loop(_mma()), (1.56, 4.83)),
    Condition("fma", "FFMA loop, no MMA", _fma_loop(), None, "added: no tensor core is needed for the effect"),
    Condition(
        "bare",
        "tcgen05.mma in a loop, no warp predicate",
        _OPERANDS + " " + _loop(_mma("")),
        None,
        "added: ptxas 12.8.61 to 13.0.88 were seen to crash on it under the cutlass name only",
    ),
)


def condition(key: str) -> Condition:
    """Look up a condition by its key. Raises KeyError with the list of keys."""
    for item in CONDITIONS:
        if item.key == key:
            return item
    raise KeyError(f"no condition {key!r}; there are: {', '.join(c.key for c in CONDITIONS)}")


PTXAS = "12.8.93"  # the version of the published table
_CAPMERC = ".nv.capmerc.text.{kernel}"


@dataclass(frozen=True, slots=True)
class ConditionRow:
    """One row of the table: the published ratios, and the comparison of the kernels assembled on this machine."""

    title: str
    published: tuple[float, float] | None
    note: str
    comparison: NameComparison

    @property
    def size_ratio(self) -> float | None:
        """Ratio of file sizes, cutlass name to plain name, as in the published table. The names differ in length."""
        return _ratio(_size(self.comparison.original), _size(self.comparison.renamed))

    @property
    def fair_size_ratio(self) -> float | None:
        """Ratio of file sizes, cutlass name to control name. Both names have the same length."""
        return _ratio(_size(self.comparison.control), _size(self.comparison.renamed))

    @property
    def capmerc_bytes(self) -> tuple[int | None, int | None]:
        return _capmerc(self.comparison.original), _capmerc(self.comparison.renamed)

    @property
    def capmerc_ratio(self) -> float | None:
        return _ratio(*self.capmerc_bytes)

    @property
    def records(self) -> int | None:
        """Number of records of the other scheduler under the cutlass name."""
        build = self.comparison.renamed
        return None if build.cubin is None else build.cubin.scheduler_records(build.kernel)

    @property
    def code_changed(self) -> bool | None:
        diff = self.comparison.diff
        return None if diff is None else not diff.identical_code

    @property
    def failure(self) -> str | None:
        """Why there is no cubin under the cutlass name, and whether there is none under the control name, either. None
        if there is a cubin."""
        crashes = dict(self.comparison.crashes)
        crashed = crashes.get(self.comparison.renamed.kernel)
        if crashed is None:
            return None
        control = "and under the control name" if self.comparison.control.kernel in crashes else "only"
        return f"{crashed.summary} under the cutlass name {control}"


def _size(build: RenamedBuild) -> int | None:
    return None if build.cubin is None else len(build.cubin.data)


def _capmerc(build: RenamedBuild) -> int | None:
    section = None if build.cubin is None else build.cubin.section(_CAPMERC, build.kernel)
    return None if section is None else section.size


def _ratio(a: int | None, b: int | None) -> float | None:
    return b / a if a and b is not None else None


def measure(toolchain: Toolchain) -> Iterator[ConditionRow]:
    """Assemble all conditions; yield the rows in the order of the published table. Raises AssembleError."""
    with tool_threads(2) as pool:
        yield from pool.map(lambda condition: _measured(toolchain, condition), CONDITIONS)


def _measured(toolchain: Toolchain, condition: Condition) -> ConditionRow:
    # Assemble without line info, as for the published sizes of the minimal kernels.
    comparison = compare_names(condition.ptx(), Rename(prefix=PREFIX), toolchain, ("-v",))
    return ConditionRow(condition.title, condition.published, condition.note, comparison)
