"""Choose the kernel for queries over a cache, and the number of CTAs over which the keys of a sequence are split.

The decode kernel computes up to MOST_QUERIES queries per sequence, the tma kernel of `attention` more. Block-scaled
caches always use the decode kernel, since their rows of scales can have fewer than 16 bytes, which TMA cannot load.

The lengths of the sequences are on the device, and the host does not wait for them. So the plan follows from shapes
alone: it assumes that every sequence fills its capacity. Shorter sequences are split just as evenly.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..config import ELEMENT_BYTES, PACKED_COLUMNS, PANEL_BYTES, SCALE_COLUMNS, Config, Features
from ..kernels.decode.config import GROUP_KEYS, MOST_STAGES, WARPS, DecodeConfig, why_not
from ..mask_bounds import whole_tiles
from ..planner import Shape, plan

MOST_SPLITS = 128
MOST_QUERIES = 16  # most queries per sequence in the decode kernel: speculative decoding needs no more
# Shared memory of an SM. Each CTA takes 1 KiB more than it allocates.
SM_SHARED_BYTES = {"sm_90a": 228 * 1024}
OTHER_SM_SHARED_BYTES = 100 * 1024
CTA_RESERVED_BYTES = 1024
# Rows of a tile -> CTAs of 128 threads that share an SM. With 2 a thread has up to 255 registers, with 3 up to 168.
CTAS_PER_SM = {8: 3, 16: 2, 32: 2}
# NVFP4: heads_per_cta -> relative time of a round. With fewer than 4, a CTA uses only part of each 32-byte sector of
# scales: if the heads of a row are neighbours in memory, a sector holds scales of four heads.
HEADS_FACTOR = {4: 1.0, 2: 1.04, 1: 1.4}
# Estimated times in rounds. In a round a CTA reads a tile of K and of V for each of its warps. The start of a CTA takes
# about as long as filling its rings; the second kernel takes a bit longer, and still longer with many splits.
START_ROUNDS, COMBINE_ROUNDS, COMBINE_SPLITS_PER_ROUND = 1.5, 2.0, 32


@dataclass(frozen=True, slots=True)
class CacheShape:
    """The properties of a call by which its kernel is chosen.

    seqlen_q: queries of a sequence, of the longest sequence if packed. capacity: keys that the cache of a sequence has
    room for. sms: multiprocessors of the device. The other fields: see DecodeConfig.
    """

    arch: str
    dtype: str
    head_dim: int
    batch: int
    heads: int
    heads_kv: int
    seqlen_q: int
    capacity: int
    sms: int = 188
    causal: bool = True
    window: bool = False
    softcap: bool = False
    varlen: bool = False
    page_size: int = 0
    sinks: bool = False
    lse: bool = False
    kv_dtype: str = ""


@dataclass(frozen=True, slots=True)
class CachePlan:
    """The kernel for a shape, the number of CTAs over which the keys of each sequence are split, and the reason."""

    config: Config | DecodeConfig
    num_splits: int
    reason: str

    @property
    def split(self) -> bool:
        return self.num_splits > 1


def plan_cache(shape: CacheShape, num_splits: int | None = None) -> CachePlan:
    """Choose the kernel. num_splits replaces the planned number, if not None. Raises ValueError if no kernel fits."""
    if shape.seqlen_q > MOST_QUERIES and num_splits in (None, 1) and shape.kv_dtype not in SCALE_COLUMNS:
        return _plan_prefill(shape)
    if shape.sms < 1:
        raise ValueError(f"sms {shape.sms}: must be the number of multiprocessors of the device, such as 170")
    rows, features = shape.seqlen_q * (shape.heads // shape.heads_kv), Features.of(shape)
    row_bytes = shape.head_dim * ELEMENT_BYTES[shape.kv_dtype or shape.dtype] // PACKED_COLUMNS.get(shape.kv_dtype, 1)
    rows_per_warp = 8 if rows <= 8 and shape.kv_dtype == "nvfp4" else 32 if rows > 16 and shape.head_dim <= 128 else 16
    tile_n = 2 * GROUP_KEYS if row_bytes <= PANEL_BYTES else GROUP_KEYS
    config = _with_stages(
        DecodeConfig(
            arch=shape.arch,
            dtype=shape.dtype,
            head_dim=shape.head_dim,
            rows_per_warp=rows_per_warp,
            tile_n=tile_n,
            kv_dtype=shape.kv_dtype,
            paged=shape.page_size > 0,
            ctas_per_sm=CTAS_PER_SM[rows_per_warp] if shape.head_dim <= 128 else 2,
            group_keys=GROUP_KEYS if 0 < shape.page_size < tile_n or rows_per_warp > 8 else tile_n,
            **features._replace(causal=shape.causal and (shape.seqlen_q > 1 or shape.varlen))._asdict(),
        )
    )
    return _divided(config, -(-rows // config.tile_m) * shape.batch * shape.heads_kv, shape, num_splits)


def _divided(config: DecodeConfig, row_tiles: int, shape: CacheShape, num_splits: int | None) -> CachePlan:
    """Choose the heads per CTA and the splits with the least estimated time.

    row_tiles: number of tiles of rows, of all sequences and key heads.
    """
    places, key_tiles = shape.sms * ctas_per_sm(config), -(-shape.capacity // config.tile_n)
    plans = []
    for heads, factor in HEADS_FACTOR.items() if config.kv_dtype == "nvfp4" else ((1, 1.0),):
        if shape.heads_kv % heads == 0 and why_not(replace(config, heads_per_cta=heads)) is None:
            tiles, warps = row_tiles // heads, WARPS // heads
            number = num_splits or splits(tiles, places, key_tiles, warps)
            rounds = -(-key_tiles // warps)
            plans.append((_cost(number, tiles, places, rounds, factor), heads, number, tiles))
    _, heads, number, tiles = min(plans)
    config = replace(config, heads_per_cta=heads, split=number > 1)
    reason = (
        f"{tiles} tiles of {config.tile_m} rows x {number} splits: {tiles * number} CTAs; {places} run at the same time"
    )
    return CachePlan(config, number, reason)


def _plan_prefill(shape: CacheShape) -> CachePlan:
    found = plan(
        Shape(
            arch=shape.arch,
            dtype=shape.dtype,
            head_dim=shape.head_dim,
            batch=shape.batch,
            heads=shape.heads,
            heads_kv=shape.heads_kv,
            seqlen_q=whole_tiles(shape.seqlen_q),
            seqlen_k=whole_tiles(shape.capacity),
            sms=shape.sms,
            align="bottom-right",
            cache=True,
            page_size=shape.page_size,
            kv_dtype=shape.kv_dtype,
            **Features.of(shape)._asdict(),
        )
    )
    return CachePlan(found.config, 1, found.reason)


def _with_stages(config: DecodeConfig) -> DecodeConfig:
    """Set as many stages as fit into shared memory. Raises ValueError if no kernel can be built.

    With 8 rows per warp there are at most 2 stages: more are slower, and prevent a second CTA on an SM of sm_120.
    """
    for stages in range(2 if config.rows_per_warp == 8 else MOST_STAGES, 0, -1):
        found = replace(config, stages=stages)
        wrong = why_not(found)
        if wrong is None:
            return found
    raise ValueError(wrong)


def ctas_per_sm(config: DecodeConfig) -> int:
    """Count the CTAs that share an SM."""
    room = SM_SHARED_BYTES.get(config.arch, OTHER_SM_SHARED_BYTES)
    return min(room // (config.shared_bytes + CTA_RESERVED_BYTES), config.ctas_per_sm)


def splits(tiles: int, places: int, key_tiles: int, warps: int = WARPS) -> int:
    """Choose the number of splits with the least estimated time; if several have it, the smallest.

    tiles: number of row tiles; each reads key_tiles tiles of keys with `warps` warps. places: CTAs that run at the same
    time.
    """
    rounds = -(-key_tiles // warps)
    return min(
        range(1, min(MOST_SPLITS, max(rounds, 1)) + 1), key=lambda number: _cost(number, tiles, places, rounds, 1.0)
    )


def _cost(number: int, tiles: int, places: int, rounds: int, factor: float) -> float:
    """Estimate the time with `number` splits, in rounds. factor: relative time of a round."""
    waves = -(-tiles * number // places)
    combine = COMBINE_ROUNDS + number / COMBINE_SPLITS_PER_ROUND if number > 1 else 0.0
    return waves * (-(-rounds // number) * factor + START_ROUNDS) + combine
