"""Make fake arguments for `cute.compile`: tensors of dynamic shape and stride, scalars, a stream."""

from typing import Any

import cutlass.cute as cute
from cutlass import Float32, Int32
from cutlass.cute.runtime import make_fake_stream, make_fake_tensor

from ..config import ELEMENT_BYTES, Config
from ..kernels.element_types import ELEMENT_TYPES
from ..quantization.config import QuantizeConfig


def fake_arguments(config: Config) -> tuple[Any, ...]:
    """In the order that build.py documents."""
    rank = 3 if config.varlen else 4
    q, k, v = (_rows(rank, config.head_dim, config.dtype) for _ in range(3))
    o = _rows(rank, config.head_dim, config.output_dtype)
    lse = None
    if config.lse:
        lengths = tuple(cute.sym_int32() for _ in range(rank - 1))
        strides = (*(cute.sym_int64() for _ in range(rank - 2)), 1)
        lse = make_fake_tensor(Float32, lengths, strides, assumed_align=4)
    offsets = [make_fake_tensor(Int32, (cute.sym_int32(),), (1,), assumed_align=4) for _ in range(2)]
    cu_seqlens_q, cu_seqlens_k = offsets if config.varlen else (None, None)
    descales = (_descale() if config.fp8 else None for _ in range(3))
    scalars = (Int32(1), Float32(1.0), Float32(0.0), Int32(-1), Int32(-1))
    return (q, k, v, o, lse, cu_seqlens_q, cu_seqlens_k, *descales, *scalars, make_fake_stream())


def fake_quantize_arguments(config: QuantizeConfig) -> tuple[Any, ...]:
    """In the order that build.py documents."""
    rank, none = 3 if config.varlen else 4, (None,) * (3 - config.tensors)
    x, y = ([_rows(rank, config.head_dim, t) for _ in range(config.tensors)] for t in (config.dtype, config.fp8))
    descales = [_descale() for _ in range(config.tensors)]
    starts = [
        make_fake_tensor(Int32, (cute.sym_int32(),), (1,), assumed_align=4)
        if config.varlen and i < config.tensors
        else None
        for i in range(2)
    ]
    partials = None
    if not config.whole:
        partials = make_fake_tensor(Int32, (cute.sym_int32(),), (1,), assumed_align=4)
    scalars = (Int32(1), Int32(1), Int32(1))
    return (*x, *none, *y, *none, *descales, *none, *starts, partials, *scalars, make_fake_stream())


def fake_probe_arguments() -> tuple[Any, ...]:
    """In the order that build.py documents."""
    words = [make_fake_tensor(Int32, (cute.sym_int32(),), (1,), assumed_align=16) for _ in range(2)]
    return (*words, Int32(1), make_fake_stream())


def _rows(rank: int, head_dim: int, dtype: str):
    """A tensor of rows of head_dim elements. Address and row strides are multiples of 16 bytes."""
    lengths = (*(cute.sym_int32() for _ in range(rank - 1)), head_dim)
    strides = (*(cute.sym_int64(divisibility=16 // ELEMENT_BYTES[dtype]) for _ in range(rank - 1)), 1)
    return make_fake_tensor(ELEMENT_TYPES[dtype], lengths, strides, assumed_align=16)


def _descale():
    """fp32 [batch, heads], any strides: with strides of 0 it is one number for all."""
    lengths, strides = [(make(), make()) for make in (cute.sym_int32, cute.sym_int64)]
    return make_fake_tensor(Float32, lengths, strides, assumed_align=4)
