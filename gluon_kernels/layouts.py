"""Layouts, chosen once from shapes: tensor memory, registers, shared memory. Knows no barriers."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.blackwell import TensorMemoryLayout

from .gluon_api import tmem_registers
from .tensors import tma_strides

# TMEM has 128 lanes and a warp reaches 32 of them, so partitions that touch it have four warps.
TMEM_WARPS = 4

# Plain rows: a thread writes or reads the one float of its row, so neighbours touch neighbouring banks.
ROW_VECTOR = gl.constexpr(gl.SwizzledSharedLayout(1, 1, 1, [0]))


DTYPES = {"fp8e5": gl.float8e5, "fp8e4nv": gl.float8e4nv, "fp16": gl.float16, "bf16": gl.bfloat16, "i16": gl.int16}


def box_layout(dtype: str, box: list[int]) -> gl.NVMMASharedLayout:
    """Swizzled shared memory for a TMA box that tcgen05 can read."""
    return gl.NVMMASharedLayout.get_default_for(box, DTYPES[dtype])


def descriptor(x, dtype: str, box: list[int]):
    """The TMA descriptor of a torch tensor, by boxes. dtype: its name here; nothing is checked."""
    from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

    return TensorDescriptor(x, list(x.shape), tma_strides(x.shape, x.stride()), box, box_layout(dtype, box))


@gluon.constexpr_function
def matrix_layout(desc):
    """The layout of a descriptor's box [1, 1, rows, columns], for [rows, columns]: the same bytes."""
    box = desc.layout
    return gl.NVMMASharedLayout(box.swizzle_byte_width, box.element_bitwidth, rank=2)


@gluon.jit
def tma_box(smem, desc):
    """[rows, columns] of shared memory seen as the descriptor's box."""
    return smem.reshape(desc.block_shape)


@gluon.constexpr_function
def tmem_layout(columns):
    """[128, columns] with one row per lane. 8- and 16-bit types are packed into the 32-bit columns."""
    return TensorMemoryLayout((128, columns), col_stride=1)


@gluon.constexpr_function
def row_per_thread(columns, alloc_columns):
    """fp32 [128, columns] of an accumulator with `alloc_columns`: thread i of the partition holds row i."""
    return tmem_registers(gl.float32, [128, columns], tmem_layout(columns), [128, alloc_columns], TMEM_WARPS)


@gluon.constexpr_function
def one_per_row(columns, alloc_columns):
    """fp32 [128] beside `row_per_thread(columns, alloc_columns)`: thread i holds element i."""
    return gl.SliceLayout(1, row_per_thread(columns, alloc_columns))


@gluon.jit
def split_columns(x, parts: gl.constexpr):
    """[128, N] held row per thread -> tuple of `parts` [128, N / parts], left to right; moves no data."""
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
    """The inverse of split_columns."""
    if len(parts) == 1:
        return parts[0]
    else:
        left = join_columns(parts[: len(parts) // 2])
        right = join_columns(parts[len(parts) // 2 :])
        columns: gl.constexpr = 2 * left.shape[1]
        x = gl.join(left, right).permute(0, 2, 1).reshape([left.shape[0], columns])
        return gl.convert_layout(x, row_per_thread(columns, columns), assert_trivial=True)
