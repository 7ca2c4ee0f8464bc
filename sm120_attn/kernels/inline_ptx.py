"""The PTX instructions that the kernels are made of, one function each. No layouts here: addresses come in as Int32.

Operands are 32-bit registers: Int32 for a pair of 16-bit values, Float32 for accumulators. Shared addresses are 32-bit
byte addresses, `offset` is a constant that becomes part of the instruction.
"""

import cutlass
import cutlass.cute as cute
from cutlass import Float32, Int32
from cutlass._mlir import ir
from cutlass._mlir.dialects import llvm
from cutlass.cutlass_dsl import T

CONSTRAINTS = {"i32": "r", "i64": "l", "f32": "f"}
PTX_TYPE = {"bf16": "bf16", "fp16": "f16", "e4m3": "e4m3", "e5m2": "e5m2"}
UNIT_SCALES = 0x7F7F7F7F  # four ue8m0 scale factors of 2^0


def _ptx(code, results, *arguments):
    """Arithmetic: the compiler may move, join or drop it."""
    return cute.arch.inline_ptx(code, write_only_types=results, read_only_args=list(arguments))


def _memory_ptx(code, words: int, *arguments):
    """An access to memory: stays where it is among other accesses. Gives `words` Int32."""
    values = [a.ir_value() for a in arguments]
    constraints = ["=r"] * words + [CONSTRAINTS[str(v.type)] for v in values] + ["~{memory}"]
    if words == 0:
        result = None
    elif words == 1:
        result = T.i32()
    else:
        result = ir.Type.parse(f"!llvm.struct<({', '.join(['i32'] * words)})>")
    made = llvm.inline_asm(result, values, code, ",".join(constraints), has_side_effects=True, asm_dialect=0)
    if words < 2:
        return Int32(made) if words else None
    return [Int32(llvm.extractvalue(T.i32(), made, [i])) for i in range(words)]


def ldmatrix(address, offset: int, transpose: bool = False):
    """Four 8x8 matrices of 16-bit values: lanes 8i to 8i+7 give the addresses of the rows of matrix i."""
    trans = ".trans" * transpose
    code = f"ldmatrix.sync.aligned.m8n8.x4{trans}.shared.b16 {{$0, $1, $2, $3}}, [$4+{offset}];"
    return _memory_ptx(code, 4, address)


def ldmatrix_bytes(address, offset: int):
    """Two 16x16 matrices of bytes, transposed: lane 16i + r gives the address of row r of matrix i. sm_12xa, sm_10xa.

    Lane 4g + t gets, of matrix 0, column g of rows 4t to 4t+3, then column g+8 of them; then the same of matrix 1.
    """
    code = f"ldmatrix.sync.aligned.m16n16.x2.trans.shared.b8 {{$0, $1, $2, $3}}, [$4+{offset}];"
    return _memory_ptx(code, 4, address)


def load_byte(address, offset: int):
    """One byte of shared memory, as an Int32."""
    return _memory_ptx(f"ld.shared.u8 $0, [$1+{offset}];", 1, address)


def mma_m16n8k16(dtype: str, a, b, c):
    """D = A B + C in fp32. a: 4 registers, b: 2, c: 4 Float32, or None for zero."""
    kind = PTX_TYPE[dtype]
    if c is None:
        c = [Float32(0.0)] * 4
    d = _ptx(
        f"mma.sync.aligned.m16n8k16.row.col.f32.{kind}.{kind}.f32 {{{{$w0}}, {{$w1}}, {{$w2}}, {{$w3}}}}, "
        "{{$r0}, {$r1}, {$r2}, {$r3}}, {{$r4}, {$r5}}, {{$r6}, {$r7}, {$r8}, {$r9}};",
        [Float32] * 4,
        *a,
        *b,
        *c,
    )
    return list(d)


def mma_m16n8k32(dtype: str, a, b, c, scales: int | None = None):
    """D = A B + C in fp32, of FP8 values. a: 4 registers, b: 2, c: 4 Float32, or None for zero.

    scales: None for the plain instruction, or those of the one with a scale factor per 32 values (sm_12x only), one for
    all of A and B. With UNIT_SCALES it gives the same bits, at twice the rate of the plain one on GeForce.
    """
    if c is None:
        c = [Float32(0.0)] * 4
    operands = (
        "{{$w0}, {$w1}, {$w2}, {$w3}}, {{$r0}, {$r1}, {$r2}, {$r3}}, {{$r4}, {$r5}}, {{$r6}, {$r7}, {$r8}, {$r9}}"
    )
    shape = "mma.sync.aligned.m16n8k32.row.col"
    if scales is None:
        return list(_ptx(f"{shape}.f32.{dtype}.{dtype}.f32 {operands};", [Float32] * 4, *a, *b, *c))
    kind = f"{shape}.kind::mxf8f6f4.block_scale.scale_vec::1X.f32.{dtype}.{dtype}.f32.ue8m0"
    # The scale factors may not be an immediate; ptxas has one register for all of them.
    ones = f"{{ .reg .b32 ones; mov.b32 ones, {scales:#x}; "
    code = f"{ones}{kind} {operands}, ones, {{0, 0}}, ones, {{0, 0}}; }}"
    return list(_ptx(code, [Float32] * 4, *a, *b, *c))


def pack(dtype: str, low, high):
    """Two Float32 as one register of 16-bit values."""
    return _ptx(f"cvt.rn.{PTX_TYPE[dtype]}x2.f32 {{$w0}}, {{$r0}}, {{$r1}};", [Int32], high, low)


def pack_bytes(dtype: str, values):
    """Four Float32 as one register of FP8 values, the first one lowest. What is too large becomes the largest."""
    convert = f"cvt.rn.satfinite.{dtype}x2.f32"
    return _ptx(
        "{ .reg .b16 low, high; "
        f"{convert} low, {{$r1}}, {{$r0}}; {convert} high, {{$r3}}, {{$r2}}; "
        "mov.b32 {$w0}, {low, high}; }",
        [Int32],
        *values,
    )


def permute_bytes(low, high, selector: int):
    """Four of the eight bytes of two registers; the selector's hexadecimal digits number them, the last one first."""
    return _ptx(f"prmt.b32 {{$w0}}, {{$r0}}, {{$r1}}, {selector:#x};", [Int32], low, high)


def transpose_8x8(word):
    """An 8x8 matrix of 16-bit values across the warp, transposed: lane 4g + t has row g, columns 2t and 2t+1."""
    return _ptx("movmatrix.sync.aligned.m8n8.trans.b16 {$w0}, {$r0};", [Int32], word)


def bits(x):
    """A Float32 as an Int32 of the same bits."""
    return Int32(llvm.bitcast(T.i32(), x.ir_value()))


def shuffle(x, lane):
    """x of another lane of the warp."""
    return cute.arch.shuffle_sync(x, lane)


def exp2(x):
    return _ptx("ex2.approx.ftz.f32 {$w0}, {$r0};", [Float32], x)


def fma(a, b, c):
    return _ptx("fma.rn.f32 {$w0}, {$r0}, {$r1}, {$r2};", [Float32], a, b, c)


def log2(x):
    return _ptx("lg2.approx.f32 {$w0}, {$r0};", [Float32], x)


def reciprocal(x):
    return cute.arch.rcp_approx(x)


def quad_max(x):
    """The maximum over the four lanes that share a row of an MMA accumulator."""
    x = cute.arch.fmax(x, cute.arch.shuffle_sync_bfly(x, offset=1))
    return cute.arch.fmax(x, cute.arch.shuffle_sync_bfly(x, offset=2))


def quad_sum(x):
    x = x + cute.arch.shuffle_sync_bfly(x, offset=1)
    return x + cute.arch.shuffle_sync_bfly(x, offset=2)


def kept(x, lane):
    """x in a register that ptxas does not compute again where it is used: a shuffle with the lane itself."""
    return cute.arch.shuffle_sync(x, lane)


def select(condition, if_true, if_false):
    return cutlass.select_(condition, if_true, if_false)


def warp_max(x):
    """The largest of the lanes' Int32, as unsigned numbers."""
    return _ptx("redux.sync.max.u32 {$w0}, {$r0}, 0xffffffff;", [Int32], x)


def max_bits(dtype: str, a, b):
    """The larger of the bits of two absolute values; of both pairs of a register of 16-bit values."""
    return _ptx(f"max.{'u32' if dtype == 'fp32' else 'u16x2'} {{$w0}}, {{$r0}}, {{$r1}};", [Int32], a, b)


def from_bits(x):
    """A Float32 of the bits of an Int32."""
    return Float32(llvm.bitcast(T.f32(), x.ir_value()))


def widened(dtype: str, x):
    """A Float32 of the value whose bits are the lower half of an Int32 (all of it if fp32); the upper half is zero."""
    if dtype == "fp16":
        code = "{ .reg .b16 low, high; mov.b32 {low, high}, {$r0}; cvt.f32.f16 {$w0}, low; }"
        return _ptx(code, [Float32], x)
    return from_bits(x << 16 if dtype == "bf16" else x)


def upper(x):
    """The upper half of an Int32, as its lower one."""
    return _ptx("shr.u32 {$w0}, {$r0}, 16;", [Int32], x)


def divide(a, b):
    """Rounded to nearest; no approximation."""
    return _ptx("div.rn.f32 {$w0}, {$r0}, {$r1};", [Float32], a, b)


def clock():
    """The SM's clock, lower 32 bits; stays where it is among accesses to memory."""
    return _memory_ptx("mov.u32 $0, %clock;", 1)


def _if(condition):
    return Int32(cutlass.select_(condition, Int32(1), Int32(0)))


def load_16_if(address, condition):
    """16 bytes of global memory, as four Int32; zeros if not `condition`."""
    code = (
        "{ .reg .pred p; setp.ne.u32 p, $5, 0; mov.u32 $0, 0; mov.u32 $1, 0; mov.u32 $2, 0; mov.u32 $3, 0; "
        "@p ld.global.v4.b32 {$0, $1, $2, $3}, [$4]; }"
    )
    return _memory_ptx(code, 4, address, _if(condition))


def load_4_if(address, condition):
    """4 bytes of global memory, past L1: another SM may have written them since this kernel began."""
    code = "{ .reg .pred p; setp.ne.u32 p, $2, 0; mov.u32 $0, 0; @p ld.relaxed.gpu.global.b32 $0, [$1]; }"
    return _memory_ptx(code, 1, address, _if(condition))


def take_one(address):
    """What stands in global memory, and adds one to it."""
    return _memory_ptx("atom.relaxed.gpu.global.add.u32 $0, [$1], 1;", 1, address)


def count_up(address):
    """Adds one in global memory; whoever sees it sees what this thread has written before."""
    _memory_ptx("red.release.gpu.global.add.u32 [$0], 1;", 0, address)


def wait_for_count(address, count):
    """Until a word of global memory is `count`; then what those who counted had written is seen."""
    code = (
        "{ .reg .pred p; .reg .b32 seen; again: ld.acquire.gpu.global.u32 seen, [$0]; setp.ne.u32 p, seen, $1; "
        "@p nanosleep.u32 64; @p bra again; }"
    )
    _memory_ptx(code, 0, address, count)


def store_if(address, condition, words):
    """One or two registers to global memory."""
    kind, operands = (("b32", "$2"), ("v2.b32", "{$2, $3}"))[len(words) - 1]
    code = f"{{ .reg .pred p; setp.ne.u32 p, $1, 0; @p st.global.{kind} [$0], {operands}; }}"
    _memory_ptx(code, 0, address, _if(condition), *words)


def store_shared_4_if(address, condition, word):
    code = "{ .reg .pred p; setp.ne.u32 p, $1, 0; @p st.shared.b32 [$0], $2; }"
    _memory_ptx(code, 0, address, _if(condition), word)


def load_shared_4_if(address, condition):
    """4 bytes of shared memory, or 0."""
    code = "{ .reg .pred p; setp.ne.u32 p, $2, 0; mov.u32 $0, 0; @p ld.shared.b32 $0, [$1]; }"
    return _memory_ptx(code, 1, address, _if(condition))


def cp_async_16(shared, source, offset: int, bytes_read):
    """16 bytes from global to shared memory; what is beyond `bytes_read` (0 or 16) becomes zero."""
    _memory_ptx(f"cp.async.cg.shared.global [$0+{offset}], [$1], 16, $2;", 0, shared, source, bytes_read)


def store_16(address, words):
    """Four registers to 16 bytes of global memory."""
    _memory_ptx("st.global.v4.b32 [$0], {$1, $2, $3, $4};", 0, address, *words)


def store_4(address, word):
    _memory_ptx("st.global.b32 [$0], $1;", 0, address, word)


def arrive_by_one(barrier, lane):
    """Lane 0 of the warp arrives on an mbarrier; as one predicated instruction, without a branch."""
    code = "{ .reg .pred p; setp.eq.u32 p, $1, 0; @p mbarrier.arrive.shared::cta.b64 _, [$0]; }"
    _memory_ptx(code, 0, barrier, lane)


def store_shared(address, offset: int, values):
    """Two or four Float32 to shared memory."""
    operands = ", ".join(f"${i + 1}" for i in range(len(values)))
    _memory_ptx(f"st.shared.v{len(values)}.f32 [$0+{offset}], {{{operands}}};", 0, address, *values)


def store_8(address, words):
    """Two registers to 8 bytes of global memory."""
    _memory_ptx("st.global.v2.b32 [$0], {$1, $2};", 0, address, *words)


def load_shared(address, offset: int, count: int):
    """Two or four Float32 from shared memory."""
    operands = ", ".join(f"${i}" for i in range(count))
    words = _memory_ptx(f"ld.shared.v{count}.b32 {{{operands}}}, [${count}+{offset}];", count, address)
    return [Float32(llvm.bitcast(T.f32(), word.ir_value())) for word in words]
