"""Register layouts of the Hopper attention, and views of a tensor by the lanes that hold it."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from .config import CONSUMER_ROWS

ROWS = gl.constexpr(CONSUMER_ROWS)


@gluon.constexpr_function
def mma_layout(columns, dtype):
    """Make the layout of fp32 [64, columns], the result of wgmma. One wgmma reads 32 bytes of each row."""
    return gl.NVMMADistributedLayout([3, 0], [4, 1], [16, columns, 256 // dtype.primitive_bitwidth])


@gluon.constexpr_function
def left_layout(columns, dtype):
    """Make the layout of the left operand, in registers, of an MMA whose result has `columns` columns."""
    return gl.DotOperandLayout(0, mma_layout(columns, dtype), 32 // dtype.primitive_bitwidth)


@gluon.jit
def by_lane(x):
    """View [rows, columns] as [rows, columns / 8, lanes that share a row, 2]. Moves no data between threads."""
    return x.reshape([ROWS, x.shape[1] // 8, 4, 2])


@gluon.jit
def beside(rows, sums):
    """View [rows] as [rows, 1] in the layout of `sums`. Moves no data."""
    return gl.convert_layout(rows, gl.SliceLayout(1, sums.type.layout), assert_trivial=True)[:, None]
