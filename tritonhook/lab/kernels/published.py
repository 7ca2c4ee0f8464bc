"""The kernels of the published table of the name effect: one minimal PTX kernel per condition.

The published table has two ratios for each condition, for sm_100a and ptxas 12.8.93: the size of the file and of
`.nv.capmerc` with "cutlass" in the name, over that without. Two rows are added here: a loop without any MMA, and the
MMA loop without its warp predicate. Text only; published_table.py assembles it.
"""

from __future__ import annotations

from dataclasses import dataclass

from tritonhook.ptx.module import Ptx

TARGET = "sm_100a"
PTX_VERSION = "8.7"  # what ptxas 12.8 reads

# Every condition has the same prologue, so that they differ in the body alone. %p0: this is warp 0;
# %p1: n != 0, which makes the MMA accumulate; %r6: instruction descriptor; %rd2, %rd3: matrix descriptors.
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
    """A state machine with brx.idx: the next state comes from memory."""
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
    """One row of the table.

    published: the published ratios (file size, .nv.capmerc size); None for rows added here.
    note: what a reader of the row must know.
    """

    key: str
    title: str
    body: str
    published: tuple[float, float] | None = None
    note: str = ""

    def ptx(self, name: str = "kernel_x", target: str = TARGET, version: str = PTX_VERSION) -> Ptx:
        """The kernel under a name. It is made to be assembled, not to be launched."""
        return Ptx(_HEADER.format(name=name, target=target, version=version) + self.body + _FOOTER)


CONDITIONS = (
    Condition("none", "no GEMM", "", (1.00, 1.00)),
    Condition(
        "single",
        "one tcgen05.mma, no loop",
        _OPERANDS + " " + _mma() + "\n",
        (1.02, 1.00),
        "the published 1.02 comes from the length of the name: see the column of equal length",
    ),
    Condition(
        "brx",
        "brx.idx state machine, no MMA",
        _branch_machine(),
        (1.02, 1.00),
        "the published 1.02 comes from the length of the name: see the column of equal length",
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
    """The condition of that key. Raises KeyError with the list of keys."""
    for item in CONDITIONS:
        if item.key == key:
            return item
    raise KeyError(f"no condition {key!r}; there are: {', '.join(c.key for c in CONDITIONS)}")
