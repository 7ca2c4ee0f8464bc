"""Small PTX kernels for sweeps, one per instruction family and shape, for every architecture with the instruction.

Text only: the kernels are assembled, never launched. The kernels of the published table are published.py's.

Every kernel takes (in: u64, out: u64, n: u32), has `.reqntid 128`, and stores what its instruction computes, so that
nothing is optimised away. In the loop shapes each iteration has its own operands (an asynchronous MMA: other
descriptors) and updates several independent accumulators: no loop is one serial chain, and a scheduler has a choice
of orders. `straight` has no loop at all, not even a spin-wait (two tcgen05 instructions get a retry loop from ptxas).
"""

from __future__ import annotations

from dataclasses import dataclass

from tritonhook._util.versions import version_key
from tritonhook.ptx.module import Ptx

SHAPES = ("straight", "loop", "nested", "softmax")
LOOP_SHAPES = SHAPES[1:]

# Architectures, and the first PTX ISA version that knows each (PTX ISA, "PTX Module Directives: .target").
TARGETS = {
    "sm_80": "7.0",
    "sm_89": "7.8",
    "sm_90a": "8.0",
    "sm_100a": "8.6",
    "sm_103a": "8.8",
    "sm_120a": "8.7",
    "sm_121a": "8.8",
}
ARCHS = tuple(TARGETS)
_WGMMA = ("sm_90a",)
_TCGEN05 = ("sm_100a", "sm_103a")
_BLOCK_SCALED_MMA = ("sm_120a", "sm_121a")
_TMA = (*_WGMMA, *_TCGEN05, *_BLOCK_SCALED_MMA)

# Registers, the same in all kernels. %rd9: input; %rd1, %rd2: this thread's part of input and output. %r1: n.
# %r2: thread. %r3: shared memory, %r4: this thread's part of it. %r5: parity of the mbarrier. %r7, %r8: inner and
# outer counter. %p0: this is warp 0. %p1: this is thread 0.
# %f0..15: the results of an iteration after `collect`, in every family.
_HEADER = """.version {version}
.target {target}
.address_size 64
.extern .shared .align 1024 .b8 smem[];
.visible .entry {name}(.param .u64 {name}_param_0, .param .u64 {name}_param_1, .param .u32 {name}_param_2)
.reqntid 128
{{
 .reg .pred %p<8>; .reg .b16 %h<4>; .reg .b32 %r<128>; .reg .b64 %rd<32>; .reg .f32 %f<128>;
 ld.param.u64 %rd9, [{name}_param_0]; cvta.to.global.u64 %rd1, %rd9;
 ld.param.u64 %rd2, [{name}_param_1]; cvta.to.global.u64 %rd2, %rd2;
 ld.param.u32 %r1, [{name}_param_2];
 mov.u32 %r2, %tid.x; shr.u32 %r6, %r2, 5; setp.eq.u32 %p0, %r6, 0; setp.eq.u32 %p1, %r2, 0;
 mul.wide.u32 %rd3, %r2, 64; add.s64 %rd1, %rd1, %rd3; add.s64 %rd2, %rd2, %rd3;
 mov.u32 %r3, smem; shl.b32 %r6, %r2, 6; add.u32 %r4, %r3, %r6;
 mov.u32 %r5, 0; mov.u32 %r7, 0; mov.u32 %r8, 0;
"""
_FOOTER = "DONE:\n ret;\n}\n"
_RESULTS = 16  # per thread and iteration
_BLOCK_BYTES = 128 * 4 * _RESULTS  # read or written by a block in one iteration


def _text(*lines: str) -> str:
    return "".join(f" {line}\n" for line in lines)


def vector(kind: str, first: int, count: int = 4) -> str:
    """Write `count` registers as a PTX vector: {%f0,%f1,%f2,%f3}."""
    return "{" + ",".join(f"%{kind}{first + i}" for i in range(count)) + "}"


def _load(space: str, kind: str, first: int, count: int, address: str) -> str:
    """Load `count` registers in vectors of four."""
    type_ = {"f": "f32", "r": "b32"}[kind]
    return _text(
        *(f"ld.{space}.v4.{type_} {vector(kind, first + i)}, [{address}+{4 * i}];" for i in range(0, count, 4))
    )


def _store(first: int) -> str:
    return _text(*(f"st.global.v4.f32 [%rd2+{4 * i}], {vector('f', first + i)};" for i in range(0, _RESULTS, 4)))


# Wait for the mbarrier at the start of shared memory. Bodies have this marker, because `straight` must not spin.
_WAIT = " // wait\n"
_TRY = "mbarrier.try_wait.parity.shared.b64 %p3, [%r3], %r5;"
_SPIN = f"SPIN:\n {_TRY} @!%p3 bra SPIN;\n xor.b32 %r5, %r5, 1;\n"
_GIVE_UP = f" {_TRY} @!%p3 bra DONE;\n"
_NEXT_INPUT = _text(f"add.s64 %rd1, %rd1, {_BLOCK_BYTES};")
_NEXT_OUTPUT = _text(f"add.s64 %rd2, %rd2, {_BLOCK_BYTES};")
_CLEAR_FLOATS = _text(*(f"mov.f32 %f{i}, 0f00000000;" for i in range(_RESULTS)))
_CLEAR_WORDS = _text(*(f"mov.b32 %r{32 + i}, 0;" for i in range(_RESULTS)))


def _convert(from_type: str) -> str:
    """Convert accumulators %r32..47 to floats."""
    return _text(*(f"cvt.rn.f32.{from_type} %f{i}, %r{32 + i};" for i in range(_RESULTS)))


# --- the shapes ----------------------------------------------------------------------------------


def _loop(label: str, counter: str, body: str) -> str:
    return f"{label}:\n{body}" + _text(
        f"add.u32 {counter}, {counter}, 1; setp.lt.u32 %p2, {counter}, %r1; @%p2 bra {label};"
    )


def _tree(operation: str, first: int, scratch: int) -> str:
    """Reduce %f{first}..+15 into %f{scratch} in four levels."""
    lines, sources, free = [], [first + i for i in range(_RESULTS)], scratch + _RESULTS - 2
    while len(sources) > 1:
        results = []
        for a, b in zip(sources[::2], sources[1::2], strict=True):
            lines.append(f"{operation} %f{free}, %f{a}, %f{b};")
            results.append(free)
            free -= 1
        sources = results
    return _text(*lines)


# Running maximum %f60, running sum %f61, and 16 scaled outputs %f32..47, as in attention without its second product.
_SOFTMAX_SETUP = _text(
    "mov.f32 %f60, 0fFF800000; mov.f32 %f61, 0f00000000;",
    *(f"mov.f32 %f{32 + i}, 0f00000000;" for i in range(_RESULTS)),
)
_SOFTMAX = (
    _tree("max.f32", 0, 96)
    + _text(
        "max.f32 %f63, %f60, %f96;",
        "sub.f32 %f62, %f60, %f63; ex2.approx.ftz.f32 %f62, %f62; mov.f32 %f60, %f63;",
        *(f"sub.f32 %f{64 + i}, %f{i}, %f63; ex2.approx.ftz.f32 %f{64 + i}, %f{64 + i};" for i in range(_RESULTS)),
    )
    + _tree("add.f32", 64, 96)
    + _text(
        "fma.rn.f32 %f61, %f61, %f62, %f96;",
        *(f"fma.rn.f32 %f{32 + i}, %f{32 + i}, %f62, %f{64 + i};" for i in range(_RESULTS)),
        *(f"cvt.rn.f16x2.f32 %r{64 + i}, %f{65 + 2 * i}, %f{64 + 2 * i};" for i in range(_RESULTS // 2)),
        f"st.global.v4.b32 [%rd2], {vector('r', 64)}; st.global.v4.b32 [%rd2+16], {vector('r', 68)};",
    )
    + _NEXT_OUTPUT
)
_SOFTMAX_END = _text("rcp.approx.ftz.f32 %f61, %f61;", *(f"mul.f32 %f{32 + i}, %f{32 + i}, %f61;" for i in range(16)))


@dataclass(frozen=True, slots=True)
class Family:
    """One instruction, with the code around it.

    archs: the architectures that have it. version: the PTX ISA version that introduced it.
    opcode: the SASS opcode that does the work; other_opcodes: (architecture, opcode) where it is another one.
    setup: code that runs once. body: one iteration. clear: sets accumulators to zero. collect: moves the results of
    the bodies to %f0..15. edits: (architecture, old text, new text) where the code differs.
    """

    name: str
    title: str
    archs: tuple[str, ...]
    version: str
    opcode: str
    body: str
    setup: str = ""
    clear: str = ""
    collect: str = ""
    edits: tuple[tuple[str, str, str], ...] = ()
    other_opcodes: tuple[tuple[str, str], ...] = ()

    def supports(self, arch: str) -> bool:
        """Check whether the architecture has the instruction."""
        return arch in self.archs

    def opcode_on(self, arch: str) -> str:
        """Look up the SASS opcode, without modifiers, that does the work on this architecture."""
        return dict(self.other_opcodes).get(arch, self.opcode)

    def lowest_version(self, arch: str) -> str:
        """Look up the lowest PTX ISA version that has both the architecture and the instruction."""
        return max(self.version, TARGETS[arch], key=version_key)

    def ptx(self, shape: str, arch: str, name: str = "kernel_x", version: str | None = None) -> Ptx:
        """Make the kernel. version: of the PTX ISA; None: the lowest with the architecture and the instruction.

        Raises ValueError for an unknown shape, or an architecture without the instruction.
        """
        if not self.supports(arch):
            raise ValueError(f"{self.name} is not on {arch}; it is on: {', '.join(self.archs)}")
        header = _HEADER.format(name=name, target=arch, version=version or self.lowest_version(arch))
        code = self._code(shape).replace(_WAIT, _GIVE_UP if shape == "straight" else _SPIN)
        return Ptx(header + self._for_arch(code, arch) + _FOOTER)

    def _code(self, shape: str) -> str:
        begin = self.setup + self.clear
        if shape == "straight":
            return begin + self.body + self.collect + _store(0)
        if shape == "loop":
            return begin + _loop("LOOP", "%r7", self.body) + self.collect + _store(0)
        if shape == "nested":
            inner = _text("mov.u32 %r7, 0;") + self.clear + _loop("INNER", "%r7", self.body)
            outer = _loop("OUTER", "%r8", inner + self.collect + _store(0) + _NEXT_OUTPUT)
            return self.setup + outer
        if shape == "softmax":
            loop = _loop("LOOP", "%r7", self.clear + self.body + self.collect + _SOFTMAX)
            return self.setup + _SOFTMAX_SETUP + loop + _SOFTMAX_END + _store(32)
        raise ValueError(f"no shape {shape!r}; there are: {', '.join(SHAPES)}")

    def _for_arch(self, code: str, arch: str) -> str:
        for where, old, new in self.edits:
            if where == arch:
                code = code.replace(old, new)
        return code


# --- the families --------------------------------------------------------------------------------

# A: %r16..19; B: %r20..27, two registers for each of the four tiles of 8 columns.
_MMA_OPERANDS = _load("global", "r", 16, 12, "%rd1") + _NEXT_INPUT
_SCALES = ", {%r28}, {%h0,%h0}, {%r28}, {%h0,%h0}"
_SCALES_SETUP = _text("mov.b32 %r28, 0x7f7f7f7f; mov.b16 %h0, 0;")


def _mma(types: str, accumulators: str = "f", first: int = 0, tail: str = "") -> str:
    """Write four independent MMAs of one A with four B."""
    a, lines = vector("r", 16), []
    for tile in range(4):
        c = vector(accumulators, first + 4 * tile)
        lines.append(f"mma.sync.aligned.{types} {c}, {a}, {vector('r', 20 + 2 * tile, 2)}, {c}{tail};")
    return _MMA_OPERANDS + _text(*lines)


def _wgmma(types: str, k: int, tail: str) -> str:
    """Write two wgmmas of 16 columns each on tiles of their own; 0x20: 512 bytes in a matrix descriptor's units of
    16."""
    shape = f"wgmma.mma_async.sync.aligned.m64n16k{k}.f32.{types}"
    return _text(
        "wgmma.fence.sync.aligned;",
        f"{shape} {vector('f', 0, 8)}, %rd10, %rd11, 1, 1, 1{tail};",
        f"{shape} {vector('f', 8, 8)}, %rd10, %rd12, 1, 1, 1{tail};",
        "wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;",
        *(f"add.s64 %rd{10 + i}, %rd{10 + i}, 0x20;" for i in range(3)),
    )


_WGMMA_SETUP = _text(
    "mov.b64 %rd10, 0x4000004000010000; mov.b64 %rd11, 0x4000004000010100; mov.b64 %rd12, 0x4000004000010200;"
)

# The mbarrier is at the start of shared memory. %r9, %r13: accumulators in tensor memory, %r10, %r11: scale
# factors, %r12: instruction descriptor, %rd10, %rd11: matrix descriptors. Tensor memory is used without
# tcgen05.alloc, whose retries are a loop of their own. One warp issues the MMAs: without that predicate ptxas 12.8.61
# to 13.0.88 crash on such loops under some names (see published.py). `.scale_vec::1X` is spelled out because ptxas
# 12.9 and 13.0 take the short form for one of PTX ISA 8.8.
_TCGEN05_SETUP = _text(
    "@%p1 mbarrier.init.shared.b64 [%r3], 1;",
    "bar.sync 0; mov.b32 %r9, 0; mov.b32 %r10, 128; mov.b32 %r11, 160; mov.b32 %r13, 64;",
    "mov.b32 %r12, 0x8100010; mov.b64 %rd10, 0x4000004000010040; mov.b64 %rd11, 0x4000004000010140;",
    "setp.ne.u32 %p4, %r1, 0;",
)
_TCGEN05_COLLECT = (
    _text("@%p0 tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r3];")
    + _WAIT
    + _text(
        "tcgen05.fence::after_thread_sync;",
        f"tcgen05.ld.sync.aligned.32x32b.x8.b32 {vector('r', 32, 8)}, [%r9];",
        f"tcgen05.ld.sync.aligned.32x32b.x8.b32 {vector('r', 40, 8)}, [%r13];",
        "tcgen05.wait::ld.sync.aligned;",
        *(f"mov.b32 %f{i}, %r{32 + i};" for i in range(_RESULTS)),
        "tcgen05.fence::before_thread_sync; bar.sync 0; tcgen05.fence::after_thread_sync;",
    )
)


def _tcgen05(kind: str, scales: str = "") -> str:
    """Write two MMAs into accumulators of their own."""
    mma = f"@%p0 tcgen05.mma.cta_group::1.kind::{kind}"
    return _text(
        f"{mma} [%r9], %rd10, %rd11, %r12{scales}, %p4;",
        f"{mma} [%r13], %rd11, %rd10, %r12{scales}, %p4;",
        "add.s64 %rd10, %rd10, 0x20; add.s64 %rd11, %rd11, 0x20;",
    )


def _ldmatrix(register: int) -> str:
    trans = ".trans" if register % 8 else ""
    return f"ldmatrix.sync.aligned.m8n8.x4{trans}.shared.b16 {vector('r', register)}, [%r4+{256 * (register - 16)}];"


_LDMATRIX = _text(
    *(_ldmatrix(16 + i) for i in range(0, _RESULTS, 4)),
    *(f"add.u32 %r{32 + i}, %r{32 + i}, %r{16 + i};" for i in range(_RESULTS)),
    "add.u32 %r4, %r4, 4096;",
)
# Two buffers; %r13 is the one this iteration reads, %r14 the one it fills.
_CP_ASYNC_FILL = _text(*(f"cp.async.cg.shared.global [%r14+{16 * i}], [%rd1+{16 * i}], 16;" for i in range(4))) + _text(
    "cp.async.commit_group;"
)
_CP_ASYNC = (
    _NEXT_INPUT
    + _CP_ASYNC_FILL
    + _text("cp.async.wait_group 1; bar.sync 0;")
    + _load("shared", "f", 16, 16, "%r13")
    + _text(*(f"fma.rn.f32 %f{i}, %f{i}, %f{16 + (i + 1) % 16}, %f{16 + i};" for i in range(_RESULTS)))
    + _text("bar.sync 0; xor.b32 %r13, %r13, 8192; xor.b32 %r14, %r14, 8192;")
)
_CP_ASYNC_SETUP = _text("mov.b32 %r14, %r4; mov.b32 %r13, %r4;") + _CP_ASYNC_FILL + _text("xor.b32 %r14, %r14, 8192;")
# The input is a tensor map here. %r10, %r11: coordinates. Two boxes of 4 KiB behind the mbarrier's first KiB.
_TENSOR_LOAD = "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
_TMA_BODY = (
    _text(
        "@%p1 mbarrier.arrive.expect_tx.shared.b64 %rd8, [%r3], 8192;",
        f"@%p1 {_TENSOR_LOAD} [%r3+1024], [%rd9, {{%r10,%r11}}], [%r3];",
        f"@%p1 {_TENSOR_LOAD} [%r3+5120], [%rd9, {{%r10,%r12}}], [%r3];",
    )
    + _WAIT
    + _load("shared", "f", 16, 16, "%r4+1024")
    + _text(*(f"fma.rn.f32 %f{i}, %f{i}, %f{16 + (i + 1) % 16}, %f{16 + i};" for i in range(_RESULTS)))
    + _text("bar.sync 0; add.u32 %r10, %r10, 64;")
)
# On sm_12x the form with .shared::cluster calls a driver syscall beside the instruction.
_TMA_EDITS = tuple((arch, ".shared::cluster.global", ".shared::cta.global") for arch in _BLOCK_SCALED_MMA)
_TMA_SETUP = _text(
    "@%p1 mbarrier.init.shared.b64 [%r3], 1; bar.sync 0;",
    "mov.b32 %r10, 0; mov.b32 %r11, 0; mov.b32 %r12, 16;",
)
_FMA = (
    _load("global", "f", 16, 16, "%rd1")
    + _NEXT_INPUT
    + _text(*(f"fma.rn.f32 %f{i}, %f{16 + i}, %f{16 + (i + 3) % 16}, %f{i};" for i in range(_RESULTS)))
    + _text(*(f"fma.rn.f32 %f{i}, %f{16 + i}, %f{16 + (i + 5) % 16}, %f{i};" for i in range(_RESULTS)))
)
_INTEGER = (
    _load("global", "r", 16, 16, "%rd1")
    + _NEXT_INPUT
    + _text(*(f"mad.lo.u32 %r{32 + i}, %r{16 + i}, %r{16 + (i + 3) % 16}, %r{32 + i};" for i in range(_RESULTS)))
    + _text(*(f"xor.b32 %r{32 + i}, %r{32 + i}, %r{16 + (i + 5) % 16};" for i in range(_RESULTS)))
)

# sm_90 and sm_100 do mma.sync with fp8 in f16, after a conversion (seen with ptxas 12.8 to 13.5).
_CONVERTED = tuple((arch, "HMMA") for arch in (*_WGMMA, *_TCGEN05))
_F16, _BF16 = "m16n8k16.row.col.f32.f16.f16.f32", "m16n8k16.row.col.f32.bf16.bf16.f32"
_TF32, _S8 = "m16n8k8.row.col.f32.tf32.tf32.f32", "m16n8k32.row.col.s32.s8.s8.s32"
_E4M3 = "m16n8k32.row.col.f32.e4m3.e4m3.f32"
_MXF8 = "m16n8k32.row.col.kind::mxf8f6f4.block_scale.f32.e4m3.e4m3.f32.ue8m0"

FAMILIES: tuple[Family, ...] = (
    Family("mma_f16", f"mma.sync {_F16}", ARCHS, "7.0", "HMMA", _mma(_F16), clear=_CLEAR_FLOATS),
    Family("mma_bf16", f"mma.sync {_BF16}", ARCHS, "7.0", "HMMA", _mma(_BF16), clear=_CLEAR_FLOATS),
    Family("mma_tf32", f"mma.sync {_TF32}", ARCHS, "7.0", "HMMA", _mma(_TF32), clear=_CLEAR_FLOATS),
    Family(
        "mma_s8", f"mma.sync {_S8}", ARCHS, "7.0", "IMMA", _mma(_S8, "r", 32),
        clear=_CLEAR_WORDS, collect=_convert("s32"),
    ),
    Family(
        "mma_e4m3", f"mma.sync {_E4M3}", ARCHS[1:], "8.4", "QMMA", _mma(_E4M3),
        clear=_CLEAR_FLOATS, other_opcodes=_CONVERTED,
    ),
    Family(
        "mma_mxf8", f"mma.sync {_MXF8}", _BLOCK_SCALED_MMA, "8.7", "QMMA", _mma(_MXF8, tail=_SCALES),
        setup=_SCALES_SETUP, clear=_CLEAR_FLOATS,
    ),
    Family(
        "ldmatrix", "ldmatrix m8n8.x4.b16, plain and transposed", ARCHS, "7.0", "LDSM", _LDMATRIX,
        clear=_CLEAR_WORDS, collect=_convert("u32"),
    ),
    Family(
        "wgmma_bf16", "wgmma m64n16k16 bf16", _WGMMA, "8.0", "HGMMA", _wgmma("bf16.bf16", 16, ", 0, 0"),
        setup=_WGMMA_SETUP, clear=_CLEAR_FLOATS,
    ),
    Family(
        "wgmma_e4m3", "wgmma m64n16k32 e4m3", _WGMMA, "8.0", "QGMMA", _wgmma("e4m3.e4m3", 32, ""),
        setup=_WGMMA_SETUP, clear=_CLEAR_FLOATS,
    ),
    Family(
        "tcgen05_f16", "tcgen05.mma kind::f16", _TCGEN05, "8.6", "UTCHMMA", _tcgen05("f16"),
        setup=_TCGEN05_SETUP, collect=_TCGEN05_COLLECT,
    ),
    Family(
        "tcgen05_f8f6f4", "tcgen05.mma kind::f8f6f4", _TCGEN05, "8.6", "UTCQMMA", _tcgen05("f8f6f4"),
        setup=_TCGEN05_SETUP, collect=_TCGEN05_COLLECT,
    ),
    Family(
        "tcgen05_mxf8", "tcgen05.mma kind::mxf8f6f4.block_scale", _TCGEN05, "8.6", "UTCQMMA",
        _tcgen05("mxf8f6f4.block_scale.scale_vec::1X", ", [%r10], [%r11]"),
        setup=_TCGEN05_SETUP, collect=_TCGEN05_COLLECT,
    ),
    Family(
        "cp_async", "cp.async, 16 bytes, two stages", ARCHS, "7.0", "LDGSTS", _CP_ASYNC,
        setup=_CP_ASYNC_SETUP, clear=_CLEAR_FLOATS,
    ),
    Family(
        "tma", "cp.async.bulk.tensor.2d load with an mbarrier", _TMA, "8.0", "UTMALDG", _TMA_BODY,
        setup=_TMA_SETUP, clear=_CLEAR_FLOATS, edits=_TMA_EDITS,
    ),
    Family("fma", "fma.rn.f32", ARCHS, "7.0", "FFMA", _FMA, clear=_CLEAR_FLOATS),
    Family(
        "integer", "mad.lo.u32, xor.b32", ARCHS, "7.0", "IMAD", _INTEGER,
        clear=_CLEAR_WORDS, collect=_convert("u32"),
    ),
)  # fmt: skip


def family(name: str) -> Family:
    """Look up a family by name. Raises KeyError with the list of names."""
    for item in FAMILIES:
        if item.name == name:
            return item
    raise KeyError(f"no family {name!r}; there are: {', '.join(f.name for f in FAMILIES)}")
