"""Operands of the MMAs with V: probabilities in registers, and 8-bit values widened to 16 bits in shared memory.

wgmma adds up 8-bit products with about 13 bits: over thousands of keys O would lose most of its value. It adds up
16-bit products in fp32. So fp8 V becomes fp16, which holds each number of both fp8 types, and P is rounded to fp16.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from .layouts import left_layout


@gluon.jit
def to_probs(p, exponentials):
    """Round exponentials to the type of V in shared memory: the left operand of an MMA."""
    asm: gl.constexpr = convert_asm(p.v_smem.dtype)
    x = gl.convert_layout(exponentials, left_layout(p.options.head_dim, p.v_smem.dtype), assert_trivial=True)
    # Not pure, so that LLVM does not move it.
    return gl.inline_asm_elementwise(asm, "=r,r,r", [x], dtype=p.v_smem.dtype, is_pure=False, pack=2)


@gluon.constexpr_function
def convert_asm(dtype):
    """Return PTX that rounds two neighbours and packs them into one register."""
    return f"cvt.rn.{'bf16x2' if dtype.name == 'bf16' else 'f16x2'}.f32 $0, $2, $1;"


@gluon.jit
def widen(narrow, wide):
    """Copy fp8 [keys, head_dim] to fp16 of the same shape, both in shared memory."""
    layout: gl.constexpr = widen_layout(narrow.shape[1])
    keys: gl.constexpr = part_keys(narrow.shape[1])
    for i in gl.static_range(narrow.shape[0] // keys):
        part = narrow.slice(i * keys, keys, 0).load(layout)
        wide.slice(i * keys, keys, 0).store(part.to(wide.dtype))


@gluon.constexpr_function
def part_keys(head_dim):
    """Return how many keys to widen at once. With head_dim 256 there are registers for more keys, which is faster."""
    return 64 if head_dim == 256 else 16


@gluon.constexpr_function
def widen_layout(columns):
    """Make a layout with eight neighbours per thread, which loads 8 bytes and stores 16 without bank conflicts."""
    lanes = columns // 8
    return gl.BlockedLayout([1, 8], [32 // lanes, lanes], [4, 1], [1, 0])
