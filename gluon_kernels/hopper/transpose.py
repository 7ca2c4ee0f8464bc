"""fp8 V transposed: wgmma reads 8-bit operands along K only.

Either the load partition transposes block by block in shared memory, or `transpose_kernel` transposes all of V before.
Both put sixteen keys at a time in the order of `key_of_column`, in which a thread holds its probabilities.
"""

import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from ..device.triton_compat import memory_view
from .layouts import ROWS

# How many keys are transposed at once. The load partition has few registers.
PART_KEYS = gl.constexpr(32)


@gluon.jit
def transpose(rows, columns):
    """Transpose bytes [keys, head_dim] to [head_dim, keys], both seen as 16-bit pairs along the second dimension."""
    for i in gl.static_range(rows.shape[0] // PART_KEYS):
        part = rows.slice(i * PART_KEYS, PART_KEYS, 0)
        transpose_part(part, columns.slice(i * PART_KEYS // 2, PART_KEYS // 2, 1))


@gluon.jit
def transpose_part(rows, columns):
    pairs = rows.load(rows_layout(rows.shape))
    by_half = pairs.reshape([rows.shape[0] // 16, 2, 8, rows.shape[1]]).permute(0, 2, 3, 1)
    first, second = by_half.split()
    even, odd = gl.inline_asm_elementwise(
        "prmt.b32 $0, $2, $3, 0x6420; prmt.b32 $1, $2, $3, 0x7531;", "=r,=r,r,r", [first, second],
        dtype=[gl.int16, gl.int16], is_pure=True, pack=2,
    )  # fmt: skip
    both = gl.join(even, odd).reshape([rows.shape[0] // 16, 8, rows.shape[1] // 8, 8, 2])
    turned = both.permute(2, 4, 3, 0, 1).reshape(columns.shape)
    columns.store(gl.convert_layout(turned, columns_layout(columns.shape), assert_trivial=True))


@gluon.constexpr_function
def rows_layout(shape):
    """16-bit pairs [keys, columns / 2] as ldmatrix.trans loads them: thread t has keys 2t, 2t + 1, 8 + 2t, 9 + 2t."""
    keys, pairs = shape
    rest = [[0, bit] for bit in bits_from(8, pairs)] + [[bit, 0] for bit in bits_from(16, keys)]
    lanes = [[2, 0], [4, 0], [0, 1], [0, 2], [0, 4]]
    return gl.DistributedLinearLayout([[1, 0], [8, 0], *rest[2:]], lanes, rest[:2], [], [keys, pairs])


@gluon.constexpr_function
def columns_layout(shape):
    """What rows_layout becomes, [columns, keys / 2], as stmatrix stores it."""
    columns, pairs = shape
    rest = [[bit, 0] for bit in bits_from(16, columns)] + [[0, bit] for bit in bits_from(8, pairs)]
    lanes = [[0, 2], [0, 4], [1, 0], [2, 0], [4, 0]]
    return gl.DistributedLinearLayout([[0, 1], [8, 0], *rest[2:]], lanes, rest[:2], [], [columns, pairs])


@gluon.constexpr_function
def bits_from(first, size):
    """The powers of two from `first` on that are below `size`."""
    return [1 << bit for bit in range(first.bit_length() - 1, (size - 1).bit_length())]


@gluon.jit
def as_bytes(pairs, dtype: gl.constexpr):
    """Shared memory of 16-bit pairs, seen as the 8-bit dtype."""
    layout: gl.constexpr = gl.NVMMASharedLayout(pairs.layout.swizzle_byte_width, 8, rank=2)
    shape: gl.constexpr = [pairs.shape[0], 2 * pairs.shape[1]]
    return memory_view(pairs, dtype, shape, layout)


@gluon.jit
def in_order(p, acc_o):
    """O with its columns in order: `transpose` puts the even ones of each 16 before the odd ones."""
    if p.transpose_v:
        return acc_o.reshape([ROWS, p.head_dim // 16, 2, 8]).permute(0, 1, 3, 2).reshape([ROWS, p.head_dim])
    else:
        return acc_o


@triton.jit
def transpose_kernel(v, out, keys, columns, sb, sh, sk, ob, oh, od, HEAD_DIM: tl.constexpr, BLOCK: tl.constexpr):
    """Transpose V [batch, num_heads_kv, keys, HEAD_DIM] to `out` [batch, num_heads_kv, HEAD_DIM, columns].

    The others are strides of V and of `out`. Columns behind the last key become 0.
    """
    head = tl.program_id(1).to(tl.int64)
    batch = tl.program_id(2).to(tl.int64)
    column = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    d = tl.arange(0, HEAD_DIM)
    key = key_of_column(column)
    block = tl.load(
        v + batch * sb + head * sh + key.to(tl.int64)[:, None] * sk + d[None, :], mask=key[:, None] < keys, other=0
    )
    tl.store(
        out + batch * ob + head * oh + d.to(tl.int64)[:, None] * od + column[None, :],
        tl.trans(block),
        mask=column[None, :] < columns,
    )


@triton.jit
def key_of_column(column):
    """Which key stands in a column of the transposed V.

    Lane t of a row holds the scores of keys 2t, 2t + 1, 8 + 2t, 9 + 2t. The MMA takes them for four neighbours.
    """
    return column // 16 * 16 + column // 2 % 2 * 8 + column // 4 % 4 * 2 + column % 2
