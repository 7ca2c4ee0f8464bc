"""The cases that `check` compares with float64: shapes, masks, layouts, values. Needs neither a GPU nor torch."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from ..config import FP8, FP8_MMAS, Config, why_not
from ..mask_bounds import bounds, whole_tiles
from ..planner import CHOICES, FP8_CHOICES, Shape, choices_of, plan, two_level_fields

# (rows, keys), from FlashAttention's tests: incomplete last tiles of rows and of keys, one key, more rows than keys.
LENGTHS = (
    (1, 1), (3, 3), (64, 1), (239, 1), (799, 3), (113, 203), (108, 256), (384, 256), (640, 128), (1023, 1024),
    (1024, 1023),
)  # fmt: skip
TAILS = (0, 1, 15, 16, 31, -1)  # number of keys modulo the tile size
HEAD_DIMS = tuple(range(32, 257, 8))
MASKS = ("none", "causal", "window")
VALUES = ("normal", "equal", "large", "outlier", "first tile hidden", "small")
TILES = tuple(f"tiles {number}" for number in range(max(map(len, CHOICES.values()))))
FP8_TILES = TILES[: max(map(len, FP8_CHOICES.values()))]
TILE_FIELDS = (
    "kernel", "warps", "rows_per_warp", "tile_n", "stages_k", "stages_v", "q_in_registers", "split_keys", "ctas_per_sm",
    "mma_throughput",
)  # fmt: skip
# For FP8. "small" is missing, because descales bring such values into range.
FP8_VALUES = ("normal", "equal", "large", "outlier", "first tile hidden", "peaked")
LONG_SUMS = (4096, 16384, 65536)  # keys of cases whose sums only grow: V is all ones, or has a mean above 0
LAYOUTS = ("bshd", "bhsd", "qkv", "poisoned", "misaligned", "expanded", "narrow")


@dataclass(frozen=True, slots=True)
class Case:
    """One comparison of `attention` with float64.

    lengths: (rows, keys) of each packed sequence; empty for a batch of equal sequences.
    values: "normal" is N(0, 1); see inputs.fill for the others. layout: memory layout of tensors, see inputs.lay_out.
    kernel: "tma", "cp_async" or one of TILES, which replaces the planned kernel.
    For FP8 only: out_dtype and fp8_mma, see Config; descale: "" is none, "tensor" is one number, "head" is a number for
    each batch and head.
    """

    name: str
    rows: int = 128
    keys: int = 128
    batch: int = 2
    heads: int = 4
    heads_kv: int = 4
    head_dim: int = 128
    dtype: str = "bf16"
    mask: str = "none"
    window: tuple[int, int] = (-1, -1)
    align: str = "bottom-right"
    softcap: float = 0.0
    scale: float | None = None
    lengths: tuple[tuple[int, int], ...] = ()
    values: str = "normal"
    layout: str = "bshd"
    lse: bool = True
    kernel: str | None = None
    out_dtype: str = ""
    fp8_mma: str = "native"
    descale: str = ""
    sinks: bool = False

    @property
    def causal(self) -> bool:
        return self.mask == "causal"

    @property
    def longest(self) -> tuple[int, int]:
        """Rows and keys of the longest sequence."""
        if not self.lengths:
            return self.rows, self.keys
        return max(rows for rows, _ in self.lengths), max(keys for _, keys in self.lengths)

    def shape(self, arch: str, sms: int) -> Shape:
        """Make the same Shape as launch/prepare.py makes for the call."""
        rows, keys = self.longest
        visible = bounds(self.causal, self.window)
        return Shape(
            arch=arch,
            dtype=self.dtype,
            head_dim=self.head_dim,
            batch=len(self.lengths) or self.batch,
            heads=self.heads,
            heads_kv=self.heads_kv,
            seqlen_q=whole_tiles(rows),
            seqlen_k=whole_tiles(keys),
            sms=sms,
            causal=visible.causal,
            window=visible.window,
            align="top-left" if rows == keys and not self.lengths else self.align,
            softcap=self.softcap > 0,
            varlen=bool(self.lengths),
            lse=self.lse,
            out_dtype=self.out_dtype,
            sinks=self.sinks,
        )

    def config(self, arch: str, sms: int) -> Config:
        """Return the config of the kernel that the case runs. Raises ValueError if there is none."""
        planned = plan(self.shape(arch, sms)).config
        if self.dtype in FP8:
            planned = replace(planned, fp8_mma=self.fp8_mma)
        if self.kernel is None or self.kernel == planned.kernel:
            return planned
        if self.kernel in TILES:
            return tiles_of(planned, TILES.index(self.kernel))
        return other_kernel(planned, self.kernel)


def tiles_of(config: Config, number: int) -> Config:
    """Copy the config with plan's tile choice number `number`. Numbers past the last choice wrap around."""
    choices = choices_of(config.dtype, config.head_dim)
    usual = Config()
    tiles = {name: getattr(usual, name) for name in TILE_FIELDS}
    chosen = replace(config, **tiles | dict(choices[number % len(choices)].fields))
    return replace(chosen, **two_level_fields(config.head_dim)) if config.two_level else chosen


def other_kernel(config: Config, kernel: str) -> Config:
    """Copy the config for another kernel, with the largest tiles that fit. Raises ValueError if none fit."""
    wrong: str | None = None
    for rows, keys, stages in itertools.product((32, 16), (128, 64, 32), ((2, 2), (1, 1))):
        changed = replace(
            config, kernel=kernel, warps=4 if kernel == "cp_async" else 8, rows_per_warp=rows, tile_n=keys,
            stages_k=stages[0], stages_v=stages[1], split_keys=False, q_in_registers=False, ctas_per_sm=1,
        )  # fmt: skip
        wrong = why_not(changed)
        if wrong is None:
            return changed
    raise ValueError(wrong)


def matrix(kernel: str | None = None) -> Iterator[Case]:
    """List all cases except the random cases, with the planned kernels or with `kernel`."""
    for group in (
        _lengths,
        _tails,
        _head_dims,
        _heads,
        _windows,
        _softcaps,
        _packed,
        _sinks,
        _values,
        _layouts,
        _edges,
    ):
        for case in group():
            yield replace(case, kernel=kernel, name=case.name + (f", {kernel}" if kernel else ""))


def _lengths() -> Iterator[Case]:
    for (rows, keys), mask, align in itertools.product(LENGTHS, ("none", "causal"), ("top-left", "bottom-right")):
        if mask == "none" and align == "top-left":
            continue
        for head_dim in (64, 128):
            yield Case(
                f"{rows} x {keys}, {mask} {align}, D{head_dim}", rows, keys, mask=mask, align=align, head_dim=head_dim
            )
    yield Case("4224 x 4224, causal", 4224, 4224, batch=1, heads=2, heads_kv=2, mask="causal")
    yield Case("4224 x 4224, fp16", 4224, 4224, batch=1, heads=2, heads_kv=2, dtype="fp16")


def _tails() -> Iterator[Case]:
    for tile, tail, mask in itertools.product((32, 64, 128), TAILS, MASKS):
        keys = 3 * tile + tail % tile
        for rows in (5, keys):
            yield Case(
                f"{rows} x {keys} (tail {tail} of {tile}), {mask}", rows, keys, mask=mask, heads=2, heads_kv=2,
                window=(tile - 3, 7) if mask == "window" else (-1, -1),
            )  # fmt: skip


def _head_dims() -> Iterator[Case]:
    for head_dim in HEAD_DIMS:
        mask = MASKS[head_dim // 8 % 3]
        yield Case(
            f"D{head_dim}, {mask}", 150, 213, head_dim=head_dim, mask=mask, dtype="fp16" if head_dim % 16 else "bf16",
            window=(40, 30) if mask == "window" else (-1, -1), layout="narrow" if head_dim % 64 else "bshd",
        )  # fmt: skip


def _heads() -> Iterator[Case]:
    for heads, heads_kv in ((1, 1), (4, 1), (8, 2), (8, 1), (6, 3)):
        for mask in ("none", "causal"):
            yield Case(f"GQA {heads}/{heads_kv}, {mask}", 100, 170, heads=heads, heads_kv=heads_kv, mask=mask, batch=3)


def _windows() -> Iterator[Case]:
    for window, align, mask in itertools.product(
        ((0, 0), (3, 5), (100, -1), (-1, 100), (1000, 0), (17, 0)), ("top-left", "bottom-right"), ("window", "causal")
    ):
        for rows, keys in ((200, 300), (300, 200)):
            yield Case(
                f"window {window}, {mask} {align}, {rows} x {keys}", rows, keys, window=window, mask=mask, align=align
            )


def _softcaps() -> Iterator[Case]:
    for mask in ("none", "causal"):
        yield Case(f"softcap 20, {mask}", 130, 190, softcap=20.0, mask=mask)
        yield Case(f"softcap 2, values x 4, {mask}", 130, 190, softcap=2.0, mask=mask, values="large")
    yield Case("scale 0.5", 130, 190, scale=0.5)
    yield Case("no LSE", 130, 190, lse=False, mask="causal")


def _packed() -> Iterator[Case]:
    lengths = ((1, 1), (17, 64), (64, 17), (0, 5), (5, 0), (0, 0), (200, 333), (128, 128))
    for mask, align, layout in itertools.product(MASKS, ("top-left", "bottom-right"), ("bshd", "poisoned")):
        yield Case(
            f"packed, {mask} {align}, {layout}", lengths=lengths, mask=mask, align=align, layout=layout, heads_kv=2,
            window=(20, 10) if mask == "window" else (-1, -1),
        )  # fmt: skip
    yield Case("packed, one sequence, D64", lengths=((257, 257),), head_dim=64, mask="causal")
    yield Case("packed, 200 short sequences", lengths=tuple((i % 7, i % 11) for i in range(200)), heads=2, heads_kv=1)


def _sinks() -> Iterator[Case]:
    for mask, values, head_dim in itertools.product(MASKS, ("normal", "large"), (64, 128)):
        yield Case(
            f"sinks, {mask}, values {values}, D{head_dim}", 140, 200, heads_kv=2, mask=mask, values=values, sinks=True,
            window=(20, 10) if mask == "window" else (-1, -1), head_dim=head_dim,
        )  # fmt: skip
    lengths = ((1, 1), (17, 64), (64, 17), (0, 5), (5, 0), (200, 333))
    yield Case("sinks, packed, causal", lengths=lengths, mask="causal", sinks=True)
    yield Case("sinks, softcap", 130, 190, softcap=20.0, sinks=True)
    yield Case("sinks, no keys", 70, 0, sinks=True)
    yield Case("sinks, 10 keys for 500 rows", 500, 10, mask="causal", sinks=True)


def _values() -> Iterator[Case]:
    for values, mask in itertools.product(VALUES, ("none", "causal")):
        yield Case(f"values {values}, {mask}", 140, 200, values=values, mask=mask)


def _layouts() -> Iterator[Case]:
    for layout, head_dim in itertools.product(LAYOUTS, (64, 72, 128)):
        # As many keys as rows, because the layouts qkv and expanded need this.
        yield Case(f"layout {layout}, D{head_dim}", 133, 133, layout=layout, head_dim=head_dim, mask="causal")


def _edges() -> Iterator[Case]:
    for align in ("top-left", "bottom-right"):
        yield Case(f"no keys, {align}", 70, 0, mask="causal", align=align)
        yield Case(f"10 keys for 500 rows, {align}", 500, 10, mask="causal", align=align)
    yield Case("no rows", 0, 70)
    yield Case("no sequences", batch=0)
    yield Case("1 row, 5000 keys", 1, 5000)
    yield Case("batch 3000 of 20", 20, 20, batch=3000, heads=2, heads_kv=1)


def on_all_kernels(fp8: bool) -> Iterator[Case]:
    """List all cases except the random cases, with the planned kernels and then with each other kernel."""
    matrix_of, kernels = (fp8_matrix, FP8_TILES) if fp8 else (matrix, ("cp_async", *TILES))
    for kernel in (None, *kernels):
        yield from matrix_of(kernel)


# --- FP8 ---------------------------------------------------------------------------------------------------------


def fp8_matrix(kernel: str | None = None) -> Iterator[Case]:
    """List FP8 cases, with the planned kernels or with `kernel`: special FP8 cases, and all cases of `matrix`."""
    for case in itertools.chain(_fp8_cases(), map(_in_fp8, matrix())):
        yield replace(case, kernel=kernel, name=case.name + (f", {kernel}" if kernel else ""))


def _in_fp8(case: Case) -> Case:
    """Copy a case with FP8 inputs. FP8 has few values around 1e-3, so "small" becomes "peaked"."""
    dtype = {"bf16": "e4m3", "fp16": "e5m2"}[case.dtype]
    return replace(
        case, name=f"{dtype} {case.name}", dtype=dtype, out_dtype="fp32",
        values="peaked" if case.values == "small" else case.values, descale="head",
        kernel={"tma": "tiles 0", "cp_async": "tiles 1"}.get(case.kernel or "", case.kernel),
    )  # fmt: skip


def _fp8_cases() -> Iterator[Case]:
    base = Case("", dtype="e4m3", out_dtype="fp32", descale="head")
    for mma, mask, head_dim in itertools.product(FP8_MMAS, ("none", "causal"), (64, 128)):
        kind = replace(base, fp8_mma=mma, mask=mask, head_dim=head_dim)
        for rows, keys in ((1, 1), (16, 128), (113, 203), (300, 300), (1024, 1023)):
            yield replace(kind, name=f"FP8 {mma} {rows} x {keys}, {mask}, D{head_dim}", rows=rows, keys=keys)
    for mask, head_dim, tail in itertools.product(MASKS, (64, 128), TAILS):
        yield replace(
            base, name=f"FP8 tail {tail} of 128, {mask}, D{head_dim}", rows=200, keys=256 + tail % 128, mask=mask,
            head_dim=head_dim, heads_kv=2, window=(100, 7) if mask == "window" else (-1, -1),
        )  # fmt: skip
    for values, mask in itertools.product(FP8_VALUES, ("none", "causal")):
        yield replace(base, name=f"FP8 values {values}, {mask}", rows=140, keys=300, values=values, mask=mask)
    for dtype, out_dtype, descale in itertools.product(("e4m3", "e5m2"), ("bf16", "fp16", "fp32"), ("", "tensor")):
        yield replace(
            base, name=f"FP8 {dtype} to {out_dtype}, descale {descale or 'none'}", rows=130, keys=190, dtype=dtype,
            out_dtype=out_dtype, descale=descale,
        )  # fmt: skip
    for head_dim in (32, 48, 80, 96, 192, 256):
        yield replace(base, name=f"FP8 D{head_dim}", rows=150, keys=213, head_dim=head_dim, mask="causal")
    for align, layout in itertools.product(("top-left", "bottom-right"), ("bshd", "poisoned")):
        yield replace(
            base, name=f"FP8 packed, {align}, {layout}", mask="causal", align=align, layout=layout, heads_kv=2,
            lengths=((1, 1), (17, 64), (64, 17), (0, 5), (5, 0), (0, 0), (200, 333), (128, 128)),
        )  # fmt: skip
    for layout in ("bhsd", "qkv", "poisoned", "misaligned"):
        yield replace(base, name=f"FP8 layout {layout}", rows=133, keys=133, layout=layout)
    yield replace(base, name="FP8 softcap", rows=130, keys=190, softcap=20.0)
    yield replace(base, name="FP8 no keys", rows=70, keys=0)
    yield from long_sums()


def long_sums() -> Iterator[Case]:
    """Yield cases whose sums lose much if an accumulator keeps few bits: all terms have the same sign."""
    base = Case("", dtype="e4m3", out_dtype="fp32", batch=1, heads=2, heads_kv=1)
    for keys, values, head_dim in itertools.product(LONG_SUMS, ("ones", "mean"), (64, 128)):
        kind = replace(base, rows=40, keys=keys, values=values, head_dim=head_dim)
        yield replace(kind, name=f"long sums, {keys} keys, V of {values}, D{head_dim}")
    for dtype, rows, split in (("e5m2", 40, "two warps to a row"), ("e4m3", 600, "many rows")):
        yield replace(
            base, name=f"long sums, 16384 keys, {dtype}, {split}", rows=rows, keys=16384, dtype=dtype, values="mean",
            mask="causal", descale="head",
        )  # fmt: skip


# --- random cases ------------------------------------------------------------------------------------------------


def fp8_classes(count: int) -> tuple[Case, ...]:
    """List kinds of random cases for FP8 inputs."""
    found = (_in_fp8(case) for case in classes(2 * count))
    return tuple(itertools.islice(dict.fromkeys(found), count))


def classes(count: int) -> tuple[Case, ...]:
    """List kinds of random cases, so that few kernels must be compiled. Each case draws its lengths, heads, layout."""
    rng = random.Random(8)
    found: dict[Case, None] = {}
    while len(found) < count:
        mask = rng.choice(MASKS)
        causal = mask == "causal"
        windowed = mask == "window" or (causal and rng.random() < 0.3)
        case = Case(
            "random",
            head_dim=rng.choice((32, 40, 64, 64, 72, 96, 128, 128, 128, 160, 192, 256)),
            dtype=rng.choice(("bf16", "bf16", "fp16")),
            mask=mask,
            window=(7, 7) if windowed else (-1, -1),
            align=rng.choice(("top-left", "bottom-right")),
            softcap=rng.choice((0.0, 0.0, 15.0)),
            lengths=((1, 1),) if rng.random() < 0.3 else (),
            sinks=rng.random() < 0.2,
            kernel=rng.choice(("cp_async", *TILES)),  # not the planned kernel, which would depend on the lengths
        )
        found[case] = None
    return tuple(found)


def drawn_length(rng: random.Random, least: int, most: int, edges: Sequence[int]) -> int:
    """Draw, with equal probability, a short length, a length up to `most`, or one of `edges`."""
    return rng.choice((rng.randint(least, 40), rng.randint(least, most), rng.choice(edges)))


def drawn(
    kind: Case,
    lengths: tuple[tuple[int, int], ...],
    heads: tuple[int, int],
    window: tuple[int, int],
    layout: str,
    values: str,
) -> Case:
    """Make a random case that runs the kernel of `kind`.

    A window with a right size of 0 gets 1 instead, because it would end at the diagonal and need a causal kernel.
    """
    left, right = kind.window
    return replace(
        kind,
        name=f"random {kind.head_dim} {kind.dtype} {kind.mask} {kind.align} {lengths} {heads} {layout} {values}",
        rows=lengths[0][0],
        keys=lengths[0][1],
        batch=len(lengths),
        lengths=lengths if kind.lengths else (),
        heads=heads[0],
        heads_kv=heads[1],
        window=(window[0] if left >= 0 else -1, max(window[1], 1) if right >= 0 else -1),
        layout=layout,
        values=values,
    )
