"""Make fake arguments for `cute.compile`: tensors of dynamic shape and stride, scalars, a stream."""

import math
from typing import Any

import cutlass.cute as cute
from cutlass import Float32, Int32, Uint8
from cutlass.cute.runtime import make_fake_stream, make_fake_tensor

from ..config import ELEMENT_BYTES, PACKED_COLUMNS, SCALE_COLUMNS, Config
from ..kernels.append.config import AppendConfig
from ..kernels.decode.config import DecodeConfig
from ..kernels.element_types import ELEMENT_TYPES
from ..kernels.probe.config import ProbeConfig
from ..kernels.quantize.config import QuantizeConfig


def fake_arguments(config: Config) -> tuple[Any, ...]:
    """Make arguments in the order that build.py documents."""
    rank = 3 if config.varlen else 4
    q = _rows(rank, config.head_dim, config.dtype)
    kv_rank, kv_dtype = 4 if config.cache_rows else rank, config.kv_dtype or config.dtype
    k, v = (_rows(kv_rank, config.head_dim, kv_dtype) for _ in range(2))
    o = _rows(rank, config.head_dim, config.output_dtype)
    lse = _lse(rank) if config.lse else None
    lengths = config.varlen, config.varlen and not config.cache_rows
    starts = [_numbers(Int32) if there else None for there in lengths]
    cache = [_numbers(Int32) if config.cache_rows else None, _table() if config.paged else None]
    sinks = _numbers(Float32) if config.sinks else None
    descales = [_descale() if there else None for there in (config.fp8, *[config.fp8 or config.kv_dtype] * 2)]
    scalars = (Int32(1), Float32(1.0), Float32(0.0), Int32(-1), Int32(-1))
    return (q, k, v, o, lse, *starts, *cache, sinks, *descales, *scalars, make_fake_stream())


def fake_decode_arguments(config: DecodeConfig) -> tuple[Any, ...]:
    """Make arguments in the order that build.py documents."""
    rank = 3 if config.varlen else 4
    q, o = (_rows(rank, config.head_dim, config.dtype) for _ in range(2))
    k, v = (_rows(4, config.head_dim, config.kv_dtype or config.dtype) for _ in range(2))
    table = _table() if config.paged else None
    descales = (_descale() if config.kv_dtype else None for _ in range(2))
    return (
        q, k, v, o, _lse(rank) if config.lse else None, _numbers(Int32) if config.varlen else None, _numbers(Int32),
        table, _numbers(Float32) if config.sinks else None, *descales, *_scales(config),
        _numbers(Float32, 16) if config.split else None,
        Int32(1), Int32(1), Int32(0), Float32(1.0), Float32(0.0), Int32(-1), Int32(-1), make_fake_stream(),
    )  # fmt: skip


def fake_append_arguments(config: AppendConfig) -> tuple[Any, ...]:
    """Make arguments in the order that build.py documents."""
    rank = 3 if config.varlen else 4
    q, q_out = (_rows(rank, config.head_dim, config.dtype) if config.rotary else None for _ in range(2))
    k_new, v_new = (_rows(rank, config.head_dim, config.dtype) for _ in range(2))
    k, v = (_rows(4, config.head_dim, config.kv_dtype or config.dtype) for _ in range(2))
    angles = (_angles(config.table_dtype or config.dtype) if config.rotary else None for _ in range(2))
    descales = (_descale() if config.kv_dtype else None for _ in range(2))
    return (
        q, k_new, v_new, k, v, q_out, _numbers(Int32), _numbers(Int32), _table() if config.paged else None,
        _numbers(Int32) if config.varlen else None, *angles, *descales, *_scales(config), _mean(config),
        *[Int32(1) for _ in range(5)], make_fake_stream(),
    )  # fmt: skip


def fake_quantize_arguments(config: QuantizeConfig) -> tuple[Any, ...]:
    """Make arguments in the order that build.py documents."""
    rank, none = 3 if config.varlen else 4, (None,) * (3 - config.tensors)
    x, y = ([_rows(rank, config.head_dim, t) for _ in range(config.tensors)] for t in (config.dtype, config.fp8))
    descales = [_descale() for _ in range(config.tensors)]
    starts = [_numbers(Int32) if config.varlen and i < config.tensors else None for i in range(2)]
    partials = None if config.whole else _numbers(Int32)
    scalars = (Int32(1), Int32(1), Int32(1))
    return (*x, *none, *y, *none, *descales, *none, *starts, partials, *scalars, make_fake_stream())


def fake_probe_arguments(config: ProbeConfig) -> tuple[Any, ...]:
    """Make arguments in the order that build.py documents."""
    words = [_numbers(Int32, 16) for _ in range(2)]
    return (*words, Int32(1), make_fake_stream())


def _rows(rank: int, head_dim: int, dtype: str):
    """Make a tensor of `rank` dimensions, the last head_dim. Address and other strides are multiples of 16 bytes."""
    lengths = (*(cute.sym_int32() for _ in range(rank - 1)), head_dim // PACKED_COLUMNS.get(dtype, 1))
    strides = (*(cute.sym_int64(divisibility=16 // ELEMENT_BYTES[dtype]) for _ in range(rank - 1)), 1)
    return make_fake_tensor(ELEMENT_TYPES[dtype], lengths, strides, assumed_align=16)


def _scales(config: Any):
    """Make the scales of K and V, one per block of columns of head_dim; None for formats without scales."""
    if config.kv_dtype not in SCALE_COLUMNS:
        return None, None
    columns = config.head_dim // SCALE_COLUMNS[config.kv_dtype]
    piece = math.gcd(columns, 16)
    lengths, strides = (
        [make() for _ in range(3)] for make in (cute.sym_int32, lambda: cute.sym_int64(divisibility=piece))
    )
    return tuple(make_fake_tensor(Uint8, (*lengths, columns), (*strides, 1), assumed_align=piece) for _ in range(2))


def _mean(config: AppendConfig):
    """Make k_mean: fp32 [batch, heads, head_dim], with rows at multiples of 16 bytes."""
    if not config.smooth:
        return None
    strides = (*(cute.sym_int64(divisibility=4) for _ in range(2)), 1)
    return make_fake_tensor(Float32, (cute.sym_int32(), cute.sym_int32(), config.head_dim), strides, assumed_align=16)


def _numbers(kind, align: int = 4):
    """Make a contiguous tensor of one dimension."""
    return make_fake_tensor(kind, (cute.sym_int32(),), (1,), assumed_align=align)


def _table():
    """Make a block table: int32 [batch, most pages]."""
    return make_fake_tensor(Int32, (cute.sym_int32(), cute.sym_int32()), (cute.sym_int64(), 1), assumed_align=4)


def _angles(dtype: str):
    """Make cosines or sines: [positions, half of the rotary columns], with rows at multiples of 16 bytes."""
    strides = (cute.sym_int64(divisibility=16 // ELEMENT_BYTES[dtype]), 1)
    return make_fake_tensor(ELEMENT_TYPES[dtype], (cute.sym_int32(), cute.sym_int32()), strides, assumed_align=16)


def _lse(rank: int):
    """Make the LSE for a q of `rank` dimensions. It is contiguous along its last dimension."""
    lengths = tuple(cute.sym_int32() for _ in range(rank - 1))
    return make_fake_tensor(Float32, lengths, (*(cute.sym_int64() for _ in range(rank - 2)), 1), assumed_align=4)


def _descale():
    """Make a descale: fp32 [batch, heads] with any strides. Strides of 0 mean one number for all."""
    lengths, strides = [(make(), make()) for make in (cute.sym_int32, cute.sym_int64)]
    return make_fake_tensor(Float32, lengths, strides, assumed_align=4)
