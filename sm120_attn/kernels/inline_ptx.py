"""One function for each PTX instruction that the kernels use.

Operands are 32-bit registers: Int32 for a pair of 16-bit values, Float32 for accumulators. Addresses in shared memory
are 32-bit byte addresses (Int32). `offset` is a constant that becomes part of the instruction.
"""

import math

import cutlass
import cutlass.cute as cute
from cutlass import Float32, Int32
from cutlass._mlir import ir
from cutlass._mlir.dialects import llvm
from cutlass.cutlass_dsl import T

CONSTRAINTS = {"i32": "r", "i64": "l", "f32": "f"}
PTX_TYPE = {"bf16": "bf16", "fp16": "f16", "e4m3": "e4m3", "e5m2": "e5m2"}
PRAGMA_SINCE = (13, 3)  # the version of the first CUDA toolkit whose ptxas supports the pragma `mma_throughput`
UNIT_SCALES = 0x7F7F7F7F  # four ue8m0 scale factors of 2^0


def _ptx(code, results, *arguments):
    """Emit an arithmetic instruction. The compiler may move or remove it, or merge it with an equal instruction."""
    return cute.arch.inline_ptx(code, write_only_types=results, read_only_args=list(arguments))


def _memory_ptx(code, words: int, *arguments):
    """Emit a memory access. The compiler keeps its order among other accesses. Returns `words` Int32."""
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


def knows_pragma() -> bool:
    """Check whether the ptxas inside the DSL supports the pragma `mma_throughput`."""
    return (cutlass.CUDA_VERSION.major, cutlass.CUDA_VERSION.minor) >= PRAGMA_SINCE


def mma_throughput():
    """Emit the pragma that selects ptxas's second instruction scheduler for this kernel."""
    llvm.inline_asm(None, [], '.pragma "mma_throughput";', "", has_side_effects=True)


def ldmatrix(address, offset: int, transpose: bool = False):
    """Load four 8x8 matrices of 16-bit values. Lanes 8i to 8i+7 have the addresses of the rows of matrix i."""
    trans = ".trans" * transpose
    code = f"ldmatrix.sync.aligned.m8n8.x4{trans}.shared.b16 {{$0, $1, $2, $3}}, [$4+{offset}];"
    return _memory_ptx(code, 4, address)


def ldmatrix_bytes(address, offset: int):
    """Load two 16x16 matrices of bytes, transposed. Lane 16i + r has the address of row r of matrix i.

    Only on sm_12xa and sm_10xa.
    Lane 4g + t gets four words: rows 4t to 4t+3 of columns g and g+8 of matrix 0, then the same of matrix 1.
    """
    code = f"ldmatrix.sync.aligned.m16n16.x2.trans.shared.b8 {{$0, $1, $2, $3}}, [$4+{offset}];"
    return _memory_ptx(code, 4, address)


def load_byte(address, offset: int):
    """Load one byte of shared memory, as an Int32."""
    return _memory_ptx(f"ld.shared.u8 $0, [$1+{offset}];", 1, address)


def mma_m16n8k16(dtype: str, a, b, c):
    """Compute D = A B + C in fp32. a: 4 registers, b: 2, c: 4 Float32, or None for zero."""
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
    """Compute D = A B + C in fp32, for FP8 values. a: 4 registers, b: 2, c: 4 Float32, or None for zero.

    scales: None selects the instruction without scales. Else `scales` holds four ue8m0 scale factors, which the
    block-scaled instruction (sm_12x only) applies to all blocks of 32 values of A and B. With UNIT_SCALES the result
    has the same bits as without scales, at twice the rate on GeForce.
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
    # The scale factors cannot be an immediate. ptxas keeps one register for all of them.
    ones = f"{{ .reg .b32 ones; mov.b32 ones, {scales:#x}; "
    code = f"{ones}{kind} {operands}, ones, {{0, 0}}, ones, {{0, 0}}; }}"
    return list(_ptx(code, [Float32] * 4, *a, *b, *c))


def pack(dtype: str, low, high):
    """Convert two Float32 to one register of 16-bit values."""
    return _ptx(f"cvt.rn.{PTX_TYPE[dtype]}x2.f32 {{$w0}}, {{$r0}}, {{$r1}};", [Int32], high, low)


def pack_bytes(dtype: str, values):
    """Convert four Float32 to one register of FP8 values, the first in the lowest byte. Too large values saturate."""
    convert = f"cvt.rn.satfinite.{dtype}x2.f32"
    return _ptx(
        "{ .reg .b16 low, high; "
        f"{convert} low, {{$r1}}, {{$r0}}; {convert} high, {{$r3}}, {{$r2}}; "
        "mov.b32 {$w0}, {low, high}; }",
        [Int32],
        *values,
    )


def widen_e4m3(word):
    """Convert four e4m3 values to two registers of FP16 values, in the same order. Exact."""
    code = (
        "{ .reg .b16 low, high; mov.b32 {low, high}, {$r0}; "
        "cvt.rn.f16x2.e4m3x2 {$w0}, low; cvt.rn.f16x2.e4m3x2 {$w1}, high; }"
    )
    return list(_ptx(code, [Int32, Int32], word))


def widen_e2m1(word):
    """Convert eight e2m1 values to FP16, times 2^-14, exactly: register i has values i and i + 4. For sm_90a.

    The three bits of a value without its sign become the lowest two bits of the FP16 exponent and the highest bit of
    the mantissa. For this the upper and the lower four bits of a byte are moved to their places in an e5m2 byte, which
    is the upper byte of FP16. This takes 11 instructions. Only 7 of them use the pipe of logical instructions, because
    ptxas emits left shifts as multiplications.
    """
    code = "{ .reg .b32 sign, value; "
    for first, left, right in (
        (0, "shl.b32 sign, {$r0}, 4;", "shl.b32 value, {$r0}, 1;"),
        (1, "", "shr.b32 value, {$r0}, 3;"),
    ):
        source = "sign" if left else "{$r0}"
        code += (
            f"{left} {right} lop3.b32 value, {source}, value, 0x80808080, 0xE4; shl.b32 sign, value, 8; "
            f"and.b32 {{$w{first}}}, sign, 0x8E008E00; and.b32 {{$w{first + 2}}}, value, 0x8E008E00; "
        )
    return list(_ptx(code + "}", [Int32] * 4, word))


def cvt_e2m1(word, pairs: int = 4):
    """Convert pairs of e2m1 values, from the lowest byte on, to registers of FP16 values. Exact. Not on sm_90a."""
    cvts = " ".join(f"cvt.rn.f16x2.e2m1x2 {{$w{i}}}, byte{i};" for i in range(pairs))
    code = f"{{ .reg .b8 byte<4>; mov.b32 {{byte0, byte1, byte2, byte3}}, {{$r0}}; {cvts} }}"
    return list(_ptx(code, [Int32] * pairs, word))


def pair_halves(word):
    """Put values i and i + 4 of eight 4-bit values into one byte. Returns registers for i = 0, 2 and for i = 1, 3."""
    code = (
        "{ .reg .b32 low, high; shr.b32 high, {$r0}, 12; lop3.b32 {$w0}, {$r0}, high, 0x0F0F, 0xE4; "
        "shr.b32 low, {$r0}, 4; shr.b32 high, {$r0}, 16; lop3.b32 {$w1}, low, high, 0x0F0F, 0xE4; }"
    )
    return list(_ptx(code, [Int32] * 2, word))


def multiply(dtype: str, a, b):
    """Multiply two pairs of 16-bit values, element by element."""
    return _ptx(f"mul.{PTX_TYPE[dtype]}x2 {{$w0}}, {{$r0}}, {{$r1}};", [Int32], a, b)


def twice(pair, half: int):
    """Copy one half of a register to both halves."""
    mine = f"half{half}"
    code = f"{{ .reg .b16 half<2>; mov.b32 {{half0, half1}}, {{$r0}}; mov.b32 {{$w0}}, {{{mine}, {mine}}}; }}"
    return _ptx(code, [Int32], pair)


def choose_bits(a, b, mask: int):
    """Take the bits of a where mask has ones, and the bits of b elsewhere."""
    return _ptx(f"lop3.b32 {{$w0}}, {{$r0}}, {{$r1}}, {mask:#x}, 0xE4;", [Int32], a, b)


def min_halves(a, most: int):
    """Compute the minimum of two unsigned numbers, in each half of a register."""
    return _ptx(f"{{ .reg .b32 most; mov.b32 most, {most:#x}; min.u16x2 {{$w0}}, {{$r0}}, most; }}", [Int32], a)


def permute_bytes(low, high, selector):
    """Select four of the eight bytes of two registers. selector: four hex digits, the last for the lowest byte."""
    if not isinstance(selector, int):
        return _ptx("prmt.b32 {$w0}, {$r0}, {$r1}, {$r2};", [Int32], low, high, selector)
    return _ptx(f"prmt.b32 {{$w0}}, {{$r0}}, {{$r1}}, {selector:#x};", [Int32], low, Int32(high))


def transpose_8x8(word):
    """Transpose an 8x8 matrix of 16-bit values across the warp: lane 4g + t has row g, columns 2t and 2t+1."""
    return _ptx("movmatrix.sync.aligned.m8n8.trans.b16 {$w0}, {$r0};", [Int32], word)


def bits(x):
    """Return the bits of a Float32 as an Int32."""
    return Int32(llvm.bitcast(T.i32(), x.ir_value()))


def shuffle(x, lane):
    """Return the x of lane number `lane` of the warp."""
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
    """Compute the maximum over the four lanes that share a row of an MMA accumulator."""
    x = cute.arch.fmax(x, cute.arch.shuffle_sync_bfly(x, offset=1))
    return cute.arch.fmax(x, cute.arch.shuffle_sync_bfly(x, offset=2))


def quad_sum(x):
    x = x + cute.arch.shuffle_sync_bfly(x, offset=1)
    return x + cute.arch.shuffle_sync_bfly(x, offset=2)


def over_quads(combine, x):
    """Combine x over the eight lanes that have the same position in their quads."""
    for offset in (4, 8, 16):
        x = combine(x, cute.arch.shuffle_sync_bfly(x, offset=offset))
    return x


def kept(x, lane):
    """Keep x in a register: each lane shuffles x from itself. Else ptxas would compute x again at each use."""
    return cute.arch.shuffle_sync(x, lane)


def select(condition, if_true, if_false):
    return cutlass.select_(condition, if_true, if_false)


def warp_max(x):
    """Compute the largest Int32 of all lanes, compared as unsigned numbers."""
    return _ptx("redux.sync.max.u32 {$w0}, {$r0}, 0xffffffff;", [Int32], x)


def max_bits(dtype: str, a, b):
    """Compute the larger of two absolute values from their bits. 16-bit dtypes: for each half of a register."""
    return _ptx(f"max.{'u32' if dtype == 'fp32' else 'u16x2'} {{$w0}}, {{$r0}}, {{$r1}};", [Int32], a, b)


def from_bits(x):
    """Return the Float32 with the bits of an Int32."""
    return Float32(llvm.bitcast(T.f32(), x.ir_value()))


def widened(dtype: str, x):
    """Convert the value in the lower half of an Int32 (fp32: in all of it) to Float32. The upper half must be zero."""
    if dtype == "fp16":
        code = "{ .reg .b16 low, high; mov.b32 {low, high}, {$r0}; cvt.f32.f16 {$w0}, low; }"
        return _ptx(code, [Float32], x)
    return from_bits(x << 16 if dtype == "bf16" else x)


def unsigned_shift(x, bits: int):
    """Shift an Int32 to the right and fill with zeros."""
    return _ptx(f"shr.u32 {{$w0}}, {{$r0}}, {bits};", [Int32], x)


def upper(x):
    """Move the upper half of an Int32 to the lower half."""
    return unsigned_shift(x, 16)


def divide(a, b):
    """Divide a by b and round to nearest, instead of the faster approximate division."""
    return _ptx("div.rn.f32 {$w0}, {$r0}, {$r1};", [Float32], a, b)


def clock():
    """Read the lower 32 bits of the SM's clock. The compiler keeps its order among accesses to memory."""
    return _memory_ptx("mov.u32 $0, %clock;", 1)


def _if(condition):
    return Int32(cutlass.select_(condition, Int32(1), Int32(0)))


def load_if(address, condition, words: int):
    """Load 2 or 4 words of global memory as a list of Int32, or 1 word as an Int32; zeros if not `condition`."""
    registers = ", ".join(f"${i}" for i in range(words))
    kind, target = (f"v{words}.b32", f"{{{registers}}}") if words > 1 else ("b32", "$0")
    clear = " ".join(f"mov.u32 ${i}, 0;" for i in range(words))
    code = f"{{ .reg .pred p; setp.ne.u32 p, ${words + 1}, 0; {clear} @p ld.global.{kind} {target}, [${words}]; }}"
    return _memory_ptx(code, words, address, _if(condition))


def load_4_if(address, condition):
    """Load 4 bytes of global memory, not from L1: another SM may have just written them. 0 if not `condition`."""
    code = "{ .reg .pred p; setp.ne.u32 p, $2, 0; mov.u32 $0, 0; @p ld.relaxed.gpu.global.b32 $0, [$1]; }"
    return _memory_ptx(code, 1, address, _if(condition))


def take_one(address):
    """Add one to a word of global memory atomically; return its previous value."""
    return _memory_ptx("atom.relaxed.gpu.global.add.u32 $0, [$1], 1;", 1, address)


def count_up(address):
    """Add one to a word of global memory. Threads that see the new value also see this thread's earlier writes."""
    _memory_ptx("red.release.gpu.global.add.u32 [$0], 1;", 0, address)


def wait_for_count(address, count):
    """Wait until a word of global memory is `count`. Then the writes of all threads before count_up are visible."""
    code = (
        "{ .reg .pred p; .reg .b32 seen; again: ld.acquire.gpu.global.u32 seen, [$0]; setp.ne.u32 p, seen, $1; "
        "@p nanosleep.u32 64; @p bra again; }"
    )
    _memory_ptx(code, 0, address, count)


def store_if(address, condition, words):
    """Store one, two or four registers to global memory, if `condition`."""
    registers = ", ".join(f"${i + 2}" for i in range(len(words)))
    kind, operands = (f"v{len(words)}.b32", f"{{{registers}}}") if len(words) > 1 else ("b32", registers)
    code = f"{{ .reg .pred p; setp.ne.u32 p, $1, 0; @p st.global.{kind} [$0], {operands}; }}"
    _memory_ptx(code, 0, address, _if(condition), *words)


def store_byte_if(address, condition, word):
    """Store the lowest byte of a register to global memory, if `condition`."""
    code = "{ .reg .pred p; setp.ne.u32 p, $1, 0; @p st.global.b8 [$0], $2; }"
    _memory_ptx(code, 0, address, _if(condition), word)


def store_shared_4_if(address, condition, word):
    code = "{ .reg .pred p; setp.ne.u32 p, $1, 0; @p st.shared.b32 [$0], $2; }"
    _memory_ptx(code, 0, address, _if(condition), word)


def load_shared_4_if(address, condition):
    """Load 4 bytes of shared memory; 0 if not `condition`."""
    code = "{ .reg .pred p; setp.ne.u32 p, $2, 0; mov.u32 $0, 0; @p ld.shared.b32 $0, [$1]; }"
    return _memory_ptx(code, 1, address, _if(condition))


def cp_async_16(shared, source, offset: int, bytes_read, prefetch: int = 0):
    """Start the copy of 16 bytes from global to shared memory. bytes_read: 16; or 0 to write zeros instead.

    prefetch: 0, or size in bytes of the block around the address that L2 may load as well: 64, 128 or 256.
    """
    code = f"cp.async.cg.shared.global{_l2(prefetch)} [$0+{offset}], [$1], 16, $2;"
    _memory_ptx(code, 0, shared, source, bytes_read)


def cp_async_small(shared, source, size: int, bytes_read, prefetch: int = 0):
    """Start the copy of 4, 8 or 16 bytes through L1, because other keys or heads read the same sector."""
    code = f"cp.async.ca.shared.global{_l2(prefetch)} [$0], [$1], {size}, $2;"
    _memory_ptx(code, 0, shared, source, bytes_read)


def _l2(prefetch: int) -> str:
    return f".L2::{prefetch}B" * bool(prefetch)


def store_16(address, words):
    """Store four registers to 16 bytes of global memory."""
    _memory_ptx("st.global.v4.b32 [$0], {$1, $2, $3, $4};", 0, address, *words)


def store_4(address, word):
    _memory_ptx("st.global.b32 [$0], $1;", 0, address, word)


def arrive_by_one(barrier, lane):
    """Arrive on an mbarrier by lane 0 of the warp: one predicated instruction, no branch."""
    code = "{ .reg .pred p; setp.eq.u32 p, $1, 0; @p mbarrier.arrive.shared::cta.b64 _, [$0]; }"
    _memory_ptx(code, 0, barrier, lane)


def store_shared(address, offset: int, values):
    """Store two or four Float32 to shared memory."""
    operands = ", ".join(f"${i + 1}" for i in range(len(values)))
    _memory_ptx(f"st.shared.v{len(values)}.f32 [$0+{offset}], {{{operands}}};", 0, address, *values)


def store_8(address, words):
    """Store two registers to 8 bytes of global memory."""
    _memory_ptx("st.global.v2.b32 [$0], {$1, $2};", 0, address, *words)


def load_shared_words(address, offset: int, count: int):
    """Load `count` words of shared memory as Int32, up to four at once. The address must be aligned to one load."""
    each = math.gcd(count, 4)
    operands = ", ".join(f"${i}" for i in range(each))
    kind, operands = (f"v{each}.b32", f"{{{operands}}}") if each > 1 else ("b32", operands)
    found = [
        _memory_ptx(f"ld.shared.{kind} {operands}, [${each}+{offset + 4 * i}];", each, address)
        for i in range(0, count, each)
    ]
    return [word for words in found for word in (words if each > 1 else [words])]


def load_shared(address, offset: int, count: int):
    """Load two or four Float32 from shared memory."""
    operands = ", ".join(f"${i}" for i in range(count))
    words = _memory_ptx(f"ld.shared.v{count}.b32 {{{operands}}}, [${count}+{offset}];", count, address)
    return [Float32(llvm.bitcast(T.f32(), word.ir_value())) for word in words]
