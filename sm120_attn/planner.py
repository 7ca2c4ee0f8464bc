"""Choose the Config for a problem, by estimated time.

Imports neither cutlass nor torch. config.why_not decides which kernels can be built.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .config import FP8, Config, Features, why_not

# FP8 sums over more keys than this are computed on two levels (Config.two_level). Hopper's wgmma keeps about 13 bits of
# a sum of FP8 products. microsoft/MMA-Sim gives 25 bits for sm_12x, but we have not measured this. With 13 bits each
# MMA of 32 keys would lose about 2^-14 of a sum; for 2,048 keys that is 2^-8, the rounding error of bf16.
LONG_SUM_KEYS = 2048
# Targets for which `selftest` has shown, on a GPU, that FP8 sums keep the bits of fp32, so that one level is enough.
FULL_FP8_SUMS: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Shape:
    """The properties of a problem by which a kernel is chosen.

    seqlen_q, seqlen_k: rows and keys; with varlen, of the longest sequence.
    sms: multiprocessors of the device. cache: whether K and V are in a cache; page_size: rows of a page, 0 without
    pages. The other fields: see Config.
    """

    arch: str
    dtype: str
    head_dim: int
    batch: int
    heads: int
    heads_kv: int
    seqlen_q: int
    seqlen_k: int
    sms: int = 188
    causal: bool = False
    window: bool = False
    align: str = "top-left"
    softcap: bool = False
    varlen: bool = False
    lse: bool = False
    out_dtype: str = ""
    sinks: bool = False
    cache: bool = False
    page_size: int = 0
    kv_dtype: str = ""


@dataclass(frozen=True, slots=True)
class Plan:
    """The kernel for a shape, and the reason why it was chosen."""

    config: Config
    reason: str


def plan(shape: Shape) -> Plan:
    """Choose the kernel for `shape`. Raises ValueError with the reason if there is none."""
    if shape.sms < 1:
        raise ValueError(f"sms {shape.sms}: must be the number of multiprocessors of the device, such as 170")
    tiles, reason = _tiles(shape)
    two_level = needs_two_levels(shape)
    if two_level:
        tiles |= two_level_fields(shape.head_dim)
    tile_n = tiles.get("tile_n", Config().tile_n)
    config = Config(
        arch=shape.arch,
        dtype=shape.dtype,
        head_dim=shape.head_dim,
        align=shape.align if shape.causal or shape.window else "top-left",
        out_dtype=shape.out_dtype,
        cache_rows=min(shape.page_size or tile_n, tile_n) if shape.cache else 0,
        paged=shape.page_size > 0,
        kv_dtype=shape.kv_dtype,
        two_level=two_level,
        mma_throughput=_is_faster_with_other_scheduler(shape, tiles),
        **Features.of(shape)._asdict(),
        **tiles,
    )
    wrong = why_not(config)
    if wrong:
        raise ValueError(wrong)
    return Plan(config, reason)


def needs_two_levels(shape: Shape) -> bool:
    """Check whether sums of FP8 products are too long for the precision of the tensor cores."""
    return shape.dtype in FP8 and shape.seqlen_k > LONG_SUM_KEYS and shape.arch not in FULL_FP8_SUMS


def two_level_fields(head_dim: int) -> dict[str, Any]:
    """Return the fields of Config that a kernel with two_level must change so that it spills no register."""
    fields: dict[str, Any] = {"q_in_registers": False}
    return fields | ({"tile_n": 32, "stages_k": 1, "stages_v": 1} if head_dim > 192 else {})


@dataclass(frozen=True, slots=True)
class _Choice:
    """One choice of tile sizes: fields of Config, and the estimated time of a CTA on an H100.

    what: text for Plan.reason. rows: query rows of a CTA.
    tile_us: microseconds per 64 keys, at the largest head_dim for which CHOICES lists it. fixed_us: microseconds for
    launch, Q and output. Both are times in which an SM finishes all CTAs that it runs at once.
    """

    what: str
    rows: int
    tile_us: float
    fixed_us: float
    fields: tuple[tuple[str, Any], ...]

    @property
    def ctas_per_sm(self) -> int:
        return next((number for name, number in self.fields if name == "ctas_per_sm"), 1)


def _choice(what: str, rows: int, tile_us: float, fixed_us: float, **fields: object) -> _Choice:
    return _Choice(what, rows, tile_us, fixed_us, tuple(fields.items()))


# Choices whose estimates differ by less than this factor are equally good; plan takes that with the most rows.
CLOSE = 1.03

# Largest head_dim of a class -> its choices. Times are fitted to measurements as in
# benchmarks/results/sm120_bf16_h100.json.
CHOICES = {
    64: (
        _choice("32 rows a warp", 256, 1.38, 4.5, rows_per_warp=32, tile_n=128),
        _choice("32 rows, two warps to a row", 128, 0.74, 4.1, rows_per_warp=32, split_keys=True),
        _choice("16 rows a warp", 128, 0.86, 3.1, q_in_registers=True),
        _choice("16 rows, two warps to a row", 64, 0.36, 4.0, q_in_registers=True, split_keys=True),
        _choice("32 rows a warp, two CTAs to an SM", 128, 1.40, 3.0, rows_per_warp=32, warps=4, ctas_per_sm=2),
    ),
    128: (
        _choice("32 rows a warp", 256, 2.40, 4.8, rows_per_warp=32, stages_k=1, stages_v=1),
        _choice("32 rows, two warps to a row", 128, 1.23, 5.8, rows_per_warp=32, split_keys=True),
        _choice("16 rows a warp", 128, 1.34, 3.8, q_in_registers=True),
        _choice("16 rows, two warps to a row", 64, 0.64, 4.8, q_in_registers=True, split_keys=True),
    ),
    192: (_choice("16 rows a warp", 128, 2.2, 5.0, q_in_registers=True, stages_k=1, stages_v=1),),
    256: (_choice("16 rows a warp", 128, 3.0, 5.0, q_in_registers=True, tile_n=32, stages_k=1, stages_v=1),),
}
# FP8 has not been timed on a GPU that has its instructions. Assumption: a tile takes half of its time in BF16, and half
# of that with half of the rows; fixed times are the same as in BF16.
FP8_CHOICES = {
    64: (
        _choice("16 rows a warp", 128, 0.43, 3.1, q_in_registers=True, tile_n=128),
        _choice("16 rows, two warps to a row", 64, 0.215, 4.0, q_in_registers=True, tile_n=128, split_keys=True),
    ),
    128: (
        _choice("16 rows a warp", 128, 0.67, 3.8, q_in_registers=True, tile_n=128),
        _choice("16 rows, two warps to a row", 64, 0.335, 4.8, q_in_registers=True, tile_n=128, split_keys=True),
    ),
    256: (_choice("16 rows a warp", 128, 1.5, 5.0, q_in_registers=True),),
}

# 16-bit queries over FP8 caches have not been timed. Assumption: BF16's time, multiplied by the ratio of instructions
# per key. Larger tiles would spill registers.
FP8_CACHE_CHOICES = {
    64: (
        _choice("32 rows a warp", 256, 1.8, 4.5, rows_per_warp=32),
        _choice("16 rows a warp", 128, 1.2, 3.1, q_in_registers=True),
        _choice("16 rows, two warps to a row", 64, 0.55, 4.0, q_in_registers=True, split_keys=True),
    ),
    128: (
        _choice("32 rows a warp", 256, 3.6, 4.8, rows_per_warp=32, tile_n=32, stages_k=4, stages_v=4),
        _choice("16 rows a warp", 128, 2.2, 3.8, q_in_registers=True),
        _choice("16 rows, two warps to a row", 64, 1.1, 4.8, q_in_registers=True, split_keys=True),
    ),
    256: (_choice("16 rows a warp", 128, 4.2, 5.0, q_in_registers=True, tile_n=32),),
}


def choices_of(dtype: str, head_dim: int, kv_dtype: str = "") -> tuple[_Choice, ...]:
    """List the choices for `plan`. If head_dim is too large, return those of the largest; why_not rejects it later."""
    table = FP8_CHOICES if dtype in FP8 else FP8_CACHE_CHOICES if kv_dtype else CHOICES
    return table[min((d for d in table if d >= head_dim), default=max(table))]


def _tiles(shape: Shape) -> tuple[dict[str, Any], str]:
    """Choose the tile fields of Config with the least estimated time; return them and the reason."""
    choices = choices_of(shape.dtype, shape.head_dim, shape.kv_dtype)
    least = min(_estimate_us(choice, shape) for choice in choices)
    best = next(choice for choice in choices if _estimate_us(choice, shape) <= CLOSE * least)
    ctas = _ctas(best, shape)
    reason = f"{best.what}, {best.rows} rows a CTA: {ctas} CTAs on {shape.sms} SMs"
    if len(choices) > 1:
        others = ", ".join(f"{_estimate_us(c, shape):.0f}" for c in choices if c is not best)
        basis = "with half of BF16's cost per key on an H100" if shape.dtype in FP8 else "on an H100"
        reason += f"; {_estimate_us(best, shape):.0f} us estimated {basis}, {others} for the other tiles"
    return dict(best.fields), reason


def _is_faster_with_other_scheduler(shape: Shape, tiles: dict[str, Any]) -> bool:
    """Check whether ptxas's second instruction scheduler (Config.mma_throughput) makes the kernel faster.

    On an H100 one kernel became 1 to 3% faster at seven of seven lengths. All other kernels became slower or stayed the
    same (benchmarks/results/sm120_bf16_h100.json). No sm_12x has been measured.
    """
    plain = not any((*Features.of(shape), shape.cache))
    return (
        (shape.arch, shape.head_dim, tiles.get("rows_per_warp")) == ("sm_90a", 128, 32)
        and plain
        and shape.dtype not in FP8
        and "split_keys" not in tiles
    )


def _ctas(choice: _Choice, shape: Shape) -> int:
    return shape.batch * shape.heads * -(-shape.seqlen_q // choice.rows)


def _estimate_us(choice: _Choice, shape: Shape) -> float:
    """Estimate microseconds on shape.sms SMs of an H100.

    Equal CTAs run in whole rounds. With a causal mask the longest CTAs run first, so the mean time of a CTA counts.
    Two CTAs that share an SM do not end together. When one has ended, the other runs faster, so the number of rounds
    need not be whole. A CTA alone on its SM takes 0.6 of the time of a CTA that shares it (18.0 of 28 us, 1024 keys).
    """
    longest = choice.fixed_us + choice.tile_us * -(-shape.seqlen_k // 64)
    rounds = _ctas(choice, shape) / (shape.sms * choice.ctas_per_sm)
    if choice.ctas_per_sm > 1 and not shape.causal:
        return longest * (1 if rounds <= 1 else max(rounds, 1.6))
    if not shape.causal:
        return longest * -(-_ctas(choice, shape) // shape.sms)
    # A row sees half of the keys on average. At the diagonal a CTA also computes hidden keys, half as many as its rows.
    mean = choice.fixed_us + choice.tile_us * (shape.seqlen_k + choice.rows) / 128
    return max(longest, mean * rounds)
