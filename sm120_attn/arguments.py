"""Fake arguments for `cute.compile`: tensors of dynamic shape and stride, scalars, a stream."""

import cutlass
import cutlass.cute as cute
from cutlass import Float32, Int32
from cutlass.cute.runtime import make_fake_stream, make_fake_tensor

from .config import Config

DTYPE = {"bf16": cutlass.BFloat16, "fp16": cutlass.Float16}


def fake_arguments(config: Config) -> tuple:
    """In the order that `build` documents."""
    rank = 3 if config.varlen else 4
    q, k, v, o = (_rows(config, rank) for _ in range(4))
    lse = None
    if config.lse:
        lengths = tuple(cute.sym_int32() for _ in range(rank - 1))
        strides = (*(cute.sym_int64() for _ in range(rank - 2)), 1)
        lse = make_fake_tensor(Float32, lengths, strides, assumed_align=4)
    offsets = [make_fake_tensor(Int32, (cute.sym_int32(),), (1,), assumed_align=4) for _ in range(2)]
    cu_seqlens_q, cu_seqlens_k = offsets if config.varlen else (None, None)
    scalars = (Int32(1), Float32(1.0), Float32(0.0), Int32(-1), Int32(-1), Int32(1))
    return (q, k, v, o, lse, cu_seqlens_q, cu_seqlens_k, *scalars, make_fake_stream())


def _rows(config: Config, rank: int):
    """A tensor of rows of head_dim elements, 16-byte aligned, other strides free."""
    lengths = (*(cute.sym_int32() for _ in range(rank - 1)), config.head_dim)
    strides = (*(cute.sym_int64(divisibility=8) for _ in range(rank - 1)), 1)
    return make_fake_tensor(DTYPE[config.dtype], lengths, strides, assumed_align=16)
