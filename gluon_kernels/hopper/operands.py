"""Operands of the MMAs with V that are made in the kernel: probabilities in registers, ones in shared memory.

fp8 probabilities are carried as int32 [rows, block_n / 4], four in each. Triton would carry fp8 as single bytes and
pack them again for each MMA.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from .layouts import ROWS, is_fp8, left_layout


@gluon.jit
def to_probs(p, exponentials):
    """Round exponentials to the type of V. mma_operand makes an operand of the result."""
    asm: gl.constexpr = convert_asm(p.q_desc.dtype)
    if is_fp8(p):
        # Lane t of a row holds keys 2t, 2t + 1, 8 + 2t, 9 + 2t. V has its keys in that order.
        a, b, c, d = by_fours(p, exponentials)
        # Not pure, so that LLVM does not move it.
        return gl.inline_asm_elementwise(asm, "=r,r,r,r,r", [a, b, c, d], dtype=gl.int32, is_pure=False, pack=1)
    else:
        x = gl.convert_layout(exponentials, left_layout(p.head_dim, p.q_desc.dtype), assert_trivial=True)
        return gl.inline_asm_elementwise(asm, "=r,r,r", [x], dtype=p.q_desc.dtype, is_pure=False, pack=2)


@gluon.jit
def by_fours(p, x):
    """Split [rows, block_n] into four [rows, block_n / 4]: the numbers whose fp8 share a register."""
    x = x.reshape([ROWS, p.block_n // 16, 2, 4, 2]).permute(0, 1, 3, 2, 4)
    even, odd = x.reshape([ROWS, p.block_n // 4, 2, 2]).split()
    a, c = even.split()
    b, d = odd.split()
    return a, b, c, d


@gluon.constexpr_function
def convert_asm(dtype):
    """PTX that packs neighbours into a register."""
    if dtype.primitive_bitwidth == 8:
        to = "cvt.rn.satfinite." + ("e4m3x2" if dtype.name == "fp8e4nv" else "e5m2x2") + ".f32"
        return f"{{ .reg .b16 a, b; {to} a, $2, $1; {to} b, $4, $3; mov.b32 $0, {{a, b}}; }}"
    return f"cvt.rn.{'bf16x2' if dtype.name == 'bf16' else 'f16x2'}.f32 $0, $2, $1;"


@gluon.jit
def mma_operand(p, probs):
    """The result of to_probs as the left operand of an MMA. LLVM sees that the bytes of a register stay there."""
    if is_fp8(p):
        a, b = probs.to(gl.int8), (probs >> 8).to(gl.int8)
        c, d = (probs >> 16).to(gl.int8), (probs >> 24).to(gl.int8)
        x = gl.join(gl.join(a, c), gl.join(b, d)).reshape([ROWS, p.block_n])
        x = gl.convert_layout(x, left_layout(p.head_dim, p.q_desc.dtype), assert_trivial=True)
        return x.to(p.q_desc.dtype, bitcast=True)
    else:
        return probs


@gluon.jit
def moved(p, probs):
    """A copy of probs in other registers: those that an MMA still reads must not be written."""
    zero = p.seqlen_q >> 31  # always 0, which ptxas does not know
    if is_fp8(p):
        return probs + zero
    else:
        return gl.inline_asm_elementwise(
            "add.s32 $0, $1, $2; // $3", "=r,r,r,r", [probs, zero], dtype=p.q_desc.dtype, is_pure=True, pack=2
        )


@gluon.jit
def without_guards(p, probs):
    """Codes without their guards. As with `moved`, they are in other registers."""
    return probs - p.guards


@gluon.jit
def fill(smem, byte: gl.constexpr):
    """Fill shared memory of fp8 with one code.

    Through int8: ptxas 12.6 to 12.9 miscompile pairs of equal fp8 constants, which read a wrong register.
    """
    layout: gl.constexpr = gl.BlockedLayout([1, 4], [1, 32], [4, 1], [1, 0])
    smem.store(gl.full(smem.shape, byte, gl.int8, layout).to(smem.dtype, bitcast=True))
