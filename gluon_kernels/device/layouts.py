"""Layouts of tensor memory, registers and shared memory for given shapes."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.blackwell import TensorMemoryLayout

from .triton_compat import tmem_registers

# Tensor memory (TMEM) has 128 lanes and a warp reaches 32 of them: partitions that use it have four warps.
TMEM_WARPS = 4

# One float per row. A thread accesses the float of its own row, so neighbouring threads use neighbouring banks.
ROW_VECTOR = gl.constexpr(gl.SwizzledSharedLayout(1, 1, 1, [0]))


@gluon.constexpr_function
def matrix_layout(desc):
    """Compute the layout of a descriptor's box [1, 1, rows, columns], seen as [rows, columns]."""
    box = desc.layout
    return gl.NVMMASharedLayout(box.swizzle_byte_width, box.element_bitwidth, rank=2)


@gluon.jit
def tma_box(smem, desc):
    """View shared memory [rows, columns] as the descriptor's box [1, 1, rows, columns]."""
    return smem.reshape(desc.block_shape)


@gluon.constexpr_function
def tmem_layout(columns):
    """Make the layout of tensor memory [128, columns], one row per lane. 8- and 16-bit types fill 32-bit columns."""
    return TensorMemoryLayout((128, columns), col_stride=1)


@gluon.constexpr_function
def row_per_thread(columns, alloc_columns):
    """Make the layout of fp32 [128, columns], part of an accumulator with `alloc_columns`: thread i holds row i."""
    return tmem_registers(gl.float32, [128, columns], tmem_layout(columns), [128, alloc_columns], TMEM_WARPS)


@gluon.constexpr_function
def one_per_row(columns, alloc_columns):
    """Make the layout of fp32 [128] that fits `row_per_thread(columns, alloc_columns)`: thread i holds element i."""
    return gl.SliceLayout(1, row_per_thread(columns, alloc_columns))


@gluon.jit
def split_columns(x, parts: gl.constexpr):
    """Split [128, N], one row per thread, into a tuple of `parts` column blocks, left to right. Moves no data."""
    if parts == 1:
        return (x,)
    else:
        half: gl.constexpr = x.shape[1] // 2
        left, right = x.reshape([x.shape[0], 2, half]).permute(0, 2, 1).split()
        layout: gl.constexpr = row_per_thread(half, half)
        left = gl.convert_layout(left, layout, assert_trivial=True)
        right = gl.convert_layout(right, layout, assert_trivial=True)
        return split_columns(left, parts // 2) + split_columns(right, parts // 2)


@gluon.jit
def join_columns(parts):
    """Join column blocks: the inverse of split_columns."""
    if len(parts) == 1:
        return parts[0]
    else:
        left = join_columns(parts[: len(parts) // 2])
        right = join_columns(parts[len(parts) // 2 :])
        columns: gl.constexpr = 2 * left.shape[1]
        x = gl.join(left, right).permute(0, 2, 1).reshape([left.shape[0], columns])
        return gl.convert_layout(x, row_per_thread(columns, columns), assert_trivial=True)
