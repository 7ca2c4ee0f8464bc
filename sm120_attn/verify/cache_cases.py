"""The cases of `check --cache`: lengths, pages, heads, masks. Needs neither a GPU nor torch."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace

from ..config import Config
from ..kernels.append.config import AppendConfig
from ..kernels.decode.config import PAGE_SIZES, DecodeConfig
from ..kv_cache.planner import CacheShape, plan_cache

# Numbers of keys around the sizes of groups of 16 keys, of tiles, of pages, and of a CTA's four tiles.
LENGTHS = (0, 1, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 256, 257, 500)
MANY = (700, 0, 1, 64, 333)
LAYOUTS = ("pages", "interleaved", "heads first", "wide")
VALUES = ("normal", "large", "equal", "small")


@dataclass(frozen=True, slots=True)
class CacheCase:
    """One comparison of `attention_with_kv_cache` with float64.

    lengths: keys of each sequence. queries: one number for all sequences, or for packed queries a number for each.
    page_size: 0 means a contiguous cache. shared: all sequences have the same first pages.
    kv_dtype: format of the cache: "", "e4m3", "mxfp8" or "nvfp4". descale: kind of its descales, see cases.Case.
    new: number of new keys that the call appends to each sequence; None: the call appends nothing. If queries are
    packed, each query has one new key. rotary: "half" or "interleaved", for rotary_columns columns (0: all).
    table_dtype: "fp32" or "". layout: memory layout of the cache, see cache_calls.lay_out. num_splits: None: planned.
    """

    name: str
    lengths: tuple[int, ...] = (200, 77)
    queries: int | tuple[int, ...] = 1
    heads: int = 8
    heads_kv: int = 2
    head_dim: int = 128
    dtype: str = "bf16"
    page_size: int = 0
    causal: bool = True
    window: tuple[int, int] | None = None
    softcap: float = 0.0
    sinks: bool = False
    lse: bool = True
    num_splits: int | None = None
    layout: str = "pages"
    values: str = "normal"
    shared: bool = False
    kv_dtype: str = ""
    descale: str = ""
    new: int | None = None
    rotary: str = ""
    rotary_columns: int = 0
    table_dtype: str = ""

    @property
    def packed(self) -> bool:
        return isinstance(self.queries, tuple)

    @property
    def counts(self) -> tuple[int, ...]:
        """Number of queries of each sequence."""
        return self.queries if isinstance(self.queries, tuple) else (self.queries,) * len(self.lengths)

    @property
    def new_counts(self) -> tuple[int, ...]:
        """Number of new keys of each sequence."""
        if self.new is None:
            return (0,) * len(self.lengths)
        return self.counts if self.packed else (self.new,) * len(self.lengths)

    @property
    def totals(self) -> tuple[int, ...]:
        """Number of keys of each sequence, with the new keys."""
        return tuple(length + count for length, count in zip(self.lengths, self.new_counts, strict=True))

    @property
    def most_pages(self) -> int:
        """Number of columns of the table: one more than the longest sequence needs."""
        return -(-max(self.totals, default=0) // self.page_size) + 1

    @property
    def capacity(self) -> int:
        return self.page_size * self.most_pages if self.page_size else max(self.totals, default=0) + 37

    def append_config(self, arch: str) -> AppendConfig | None:
        """Return the config of the kernel that appends; None if the case appends nothing."""
        if self.new is None:
            return None
        return AppendConfig(
            arch, self.dtype, self.kv_dtype, self.head_dim, self.rotary, self.table_dtype, self.packed,
            self.page_size > 0,
        )  # fmt: skip

    def config(self, arch: str, sms: int) -> Config | DecodeConfig:
        """Return the config of the kernel that the case runs. Raises ValueError if there is none."""
        return plan_cache(
            CacheShape(
                arch=arch, dtype=self.dtype, head_dim=self.head_dim, batch=len(self.lengths), heads=self.heads,
                heads_kv=self.heads_kv, seqlen_q=max(self.counts, default=0), capacity=self.capacity, sms=sms,
                causal=self.causal, window=self.window is not None, softcap=self.softcap > 0, varlen=self.packed,
                page_size=self.page_size, sinks=self.sinks, lse=self.lse, kv_dtype=self.kv_dtype,
            ),
            self.num_splits,
        ).config  # fmt: skip


def matrix() -> Iterator[CacheCase]:
    """List all cases except the random cases."""
    yield from _lengths()
    yield from _pages()
    yield from _heads()
    yield from _head_dims()
    yield from _masks()
    yield from _packed()
    yield from _layouts()
    yield from _prefill()
    yield from _fp8()
    yield from _block_scaled()
    yield from _append()
    yield from _edges()


def _lengths() -> Iterator[CacheCase]:
    for length, page_size, splits, queries in itertools.product(LENGTHS, (0, 16, 64, 256), (1, 3), (1, 4)):
        yield CacheCase(
            f"{length} keys, page {page_size}, {splits} splits, {queries} queries", (length, length + 1), queries,
            page_size=page_size, num_splits=splits,
        )  # fmt: skip
    for length, page_size in itertools.product((2000, 5000), (0, 16, 256)):
        yield CacheCase(f"{length} keys, page {page_size}, planned splits", (length, 3, 999), page_size=page_size)


def _pages() -> Iterator[CacheCase]:
    for page_size, shared, queries in itertools.product(PAGE_SIZES, (False, True), (1, 3, 16)):
        for head_dim in (64, 128):
            yield CacheCase(
                f"pages of {page_size}, {'shared, ' * shared}{queries} queries, D{head_dim}", MANY, queries,
                page_size=page_size, shared=shared, head_dim=head_dim, num_splits=2,
            )  # fmt: skip


def _heads() -> Iterator[CacheCase]:
    for (heads, heads_kv), queries in itertools.product(
        ((1, 1), (2, 2), (4, 1), (8, 1), (6, 2), (32, 8), (16, 1), (24, 3)), (1, 2, 3, 5, 8, 16)
    ):
        yield CacheCase(
            f"GQA {heads}/{heads_kv}, {queries} queries", (150, 40, 7), queries, heads, heads_kv,
            page_size=32 * (queries % 2), num_splits=1 + queries % 3,
        )  # fmt: skip


def _head_dims() -> Iterator[CacheCase]:
    for head_dim in range(32, 257, 8):
        queries = 1 if head_dim % 16 else 4
        yield CacheCase(
            f"D{head_dim}, {queries} queries", (130, 61), queries, head_dim=head_dim,
            dtype="fp16" if head_dim % 16 else "bf16", page_size=16 if head_dim % 32 else 0, num_splits=queries,
        )  # fmt: skip


def _masks() -> Iterator[CacheCase]:
    for causal, window, queries, page_size in itertools.product(
        (False, True), (None, (0, 0), (5, 3), (100, -1), (-1, 20), (64, 0)), (1, 6, 16), (0, 16)
    ):
        yield CacheCase(
            f"causal {causal}, window {window}, {queries} queries, page {page_size}", (300, 8, 129, 0), queries,
            causal=causal, window=window, page_size=page_size, num_splits=2, lse=queries == 6,
        )  # fmt: skip
    for softcap, sinks, splits, queries in itertools.product((0.0, 15.0), (False, True), (1, 4), (1, 5)):
        for values in VALUES:
            yield CacheCase(
                f"softcap {softcap}, sinks {sinks}, {splits} splits, {queries} queries, values {values}",
                (333, 0, 20), queries, softcap=softcap, sinks=sinks, num_splits=splits, values=values, page_size=16,
            )  # fmt: skip


def _packed() -> Iterator[CacheCase]:
    for page_size, causal, splits in itertools.product((0, 16, 128), (False, True), (1, 3)):
        yield CacheCase(
            f"packed queries, page {page_size}, causal {causal}, {splits} splits", (200, 64, 0, 5, 900),
            (1, 16, 3, 0, 7), page_size=page_size, causal=causal, num_splits=splits,
        )  # fmt: skip
    yield CacheCase("packed, more queries than keys", (3, 0, 40), (10, 5, 60), page_size=16)


def _layouts() -> Iterator[CacheCase]:
    for layout, page_size, head_dim in itertools.product(LAYOUTS, (0, 16, 64, 256), (64, 72, 128)):
        yield CacheCase(
            f"layout {layout}, page {page_size}, D{head_dim}", (70, 300), 2, page_size=page_size, layout=layout,
            head_dim=head_dim, num_splits=2,
        )  # fmt: skip


def _prefill() -> Iterator[CacheCase]:
    for page_size, causal, head_dim in itertools.product((0, *PAGE_SIZES), (False, True), (64, 128)):
        for queries in (17, 130):
            yield CacheCase(
                f"prefill, {queries} queries, page {page_size}, causal {causal}, D{head_dim}", (300, 40, 0, 129),
                queries, page_size=page_size, causal=causal, head_dim=head_dim,
            )  # fmt: skip
    for page_size, window, sinks, layout in itertools.product((0, 16, 64), (None, (50, 9)), (False, True), LAYOUTS):
        yield CacheCase(
            f"prefill, page {page_size}, window {window}, sinks {sinks}, layout {layout}", (300, 555), 77,
            page_size=page_size, window=window, sinks=sinks, layout=layout, softcap=20.0 if sinks else 0.0,
        )  # fmt: skip
    for page_size, shared in itertools.product(PAGE_SIZES, (False, True)):
        yield CacheCase(
            f"prefill, packed, pages of {page_size}, shared {shared}", MANY, (40, 0, 1, 64, 300), page_size=page_size,
            shared=shared,
        )  # fmt: skip
    for head_dim in (32, 40, 72, 96, 160, 256):
        yield CacheCase(f"prefill, D{head_dim}", (130, 261), 50, head_dim=head_dim, page_size=16, dtype="fp16")
    yield CacheCase("prefill, 900 queries after 8,000 keys", (8900, 901), 900, page_size=32, heads=4)


def _fp8() -> Iterator[CacheCase]:
    base = CacheCase("", kv_dtype="e4m3", descale="head")
    for head_dim, queries, page_size in itertools.product((64, 128), (1, 8), (0, 16)):
        for length in (0, 1, 17, 33, 129, 700):
            yield replace(
                base, name=f"FP8 cache, D{head_dim}, {queries} queries, page {page_size}, {length} keys",
                lengths=(length, 64), queries=queries, head_dim=head_dim, page_size=page_size, num_splits=2,
            )  # fmt: skip
    for values, dtype, descale in itertools.product(VALUES, ("bf16", "fp16"), ("", "tensor", "head")):
        yield replace(
            base, name=f"FP8 cache, values {values}, {dtype}, descale {descale or 'none'}", lengths=(300, 20),
            queries=8, values=values, dtype=dtype, descale=descale, page_size=16, num_splits=2,
        )  # fmt: skip
    for head_dim in (48, 80, 256):
        yield replace(base, name=f"FP8 cache, D{head_dim}", head_dim=head_dim, queries=3, page_size=16, softcap=20.0)
    for page_size, head_dim, queries in itertools.product((0, *PAGE_SIZES), (64, 128), (17, 130, 700)):
        yield replace(
            base, name=f"FP8 cache, prefill, {queries} queries, page {page_size}, D{head_dim}",
            lengths=(300, 40, 0, 901), queries=queries, page_size=page_size, head_dim=head_dim,
        )  # fmt: skip
    for values, dtype, descale in itertools.product(VALUES, ("bf16", "fp16"), ("", "tensor", "head")):
        yield replace(
            base, name=f"FP8 cache, prefill, values {values}, {dtype}, descale {descale or 'none'}", lengths=(300, 90),
            queries=80, values=values, dtype=dtype, descale=descale, page_size=32,
        )  # fmt: skip
    for window, softcap, sinks, layout in itertools.product((None, (50, 9)), (0.0, 20.0), (False, True), LAYOUTS):
        yield replace(
            base, name=f"FP8 cache, prefill, window {window}, softcap {softcap}, sinks {sinks}, layout {layout}",
            lengths=(300, 555), queries=77, window=window, softcap=softcap, sinks=sinks, layout=layout,
            page_size=16 if sinks else 0, causal=window is None,
        )  # fmt: skip
    for head_dim, packed in itertools.product((32, 48, 80, 96, 160, 192, 256), (False, True)):
        yield replace(
            base, name=f"FP8 cache, prefill, D{head_dim}{', packed' * packed}", lengths=(300, 0, 64, 261),
            queries=(40, 3, 0, 200) if packed else 50, head_dim=head_dim, page_size=16,
            dtype="fp16" if packed else "bf16",
        )  # fmt: skip
    yield replace(
        base, name="FP8 cache, prefill, 900 queries after 8,000 keys", lengths=(8900, 901), queries=900, page_size=64,
        heads=32, heads_kv=4,
    )  # fmt: skip


def _block_scaled() -> Iterator[CacheCase]:
    base = CacheCase("", kv_dtype="nvfp4", descale="head", page_size=16, num_splits=2)
    kinds = (("nvfp4", 64), ("nvfp4", 128), ("nvfp4", 256), ("mxfp8", 128), ("mxfp8", 256))
    for (kv_dtype, head_dim), queries, length in itertools.product(kinds, (1, 8, 50), (0, 1, 17, 129, 700)):
        yield replace(
            base, name=f"{kv_dtype}, D{head_dim}, {queries} queries, {length} keys", kv_dtype=kv_dtype,
            head_dim=head_dim, queries=queries, lengths=(length, 64), page_size=0 if length % 2 else 64,
        )  # fmt: skip
    for values, dtype, descale in itertools.product(VALUES, ("bf16", "fp16"), ("", "tensor", "head")):
        for kv_dtype in ("nvfp4", "mxfp8") if dtype == "bf16" else ("nvfp4",):  # MXFP8 rounds P to BF16
            yield replace(
                base, name=f"{kv_dtype}, values {values}, {dtype}, descale {descale or 'none'}", lengths=(300, 20),
                kv_dtype=kv_dtype, queries=8, values=values, dtype=dtype, descale=descale,
            )  # fmt: skip
    for kv_dtype, window, softcap, layout in itertools.product(
        ("nvfp4", "mxfp8"), (None, (50, 9)), (0.0, 20.0), LAYOUTS
    ):
        yield replace(
            base, name=f"{kv_dtype}, window {window}, softcap {softcap}, layout {layout}", kv_dtype=kv_dtype,
            lengths=(300, 555), queries=7, window=window, softcap=softcap, sinks=softcap > 0, layout=layout,
        )  # fmt: skip
    for kv_dtype, page_size in itertools.product(("nvfp4", "mxfp8"), PAGE_SIZES):
        yield replace(
            base, name=f"{kv_dtype}, packed, pages of {page_size}", kv_dtype=kv_dtype, page_size=page_size,
            lengths=(200, 64, 0, 5, 900), queries=(1, 16, 3, 0, 70),
        )  # fmt: skip
    yield replace(base, name="nvfp4, D192", head_dim=192, queries=3)
    # So many sequences that the plan gives a CTA 4 key heads, or both if there are 2. With head_dim 256 fewer CTAs
    # share an SM.
    many = ((100, 8, 1), (34, 8, 3), (200, 2, 1), (200, 4, 1))
    for (batch, heads_kv, splits), page_size, options in itertools.product(many, (0, 16, 64), (False, True)):
        yield replace(
            base, name=f"nvfp4, {batch} sequences, {heads_kv} key heads, page {page_size}{', options' * options}",
            lengths=tuple(37 * i % 301 for i in range(batch)), queries=1 + options,
            heads=(4 if options else 8) * heads_kv, heads_kv=heads_kv, num_splits=splits,
            page_size=page_size, sinks=options, softcap=20.0 * options,
            window=(90, 9) if options else None, dtype="fp16" if options else "bf16",
        )  # fmt: skip
    for head_dim, batch in ((64, 100), (192, 67), (256, 67)):
        yield replace(
            base, name=f"nvfp4, {batch} sequences, D{head_dim}", lengths=tuple(53 * i % 201 for i in range(batch)),
            heads=64, heads_kv=8, num_splits=1, head_dim=head_dim,
        )  # fmt: skip
    yield replace(base, name="nvfp4, planned splits", lengths=(5000, 3, 999), num_splits=None)


def _append() -> Iterator[CacheCase]:
    base = CacheCase("", (200, 0, 15, 16, 77), num_splits=2, new=1)
    for page_size, new, rotary, kv_dtype in itertools.product(
        (0, 16, 64), (1, 5, 16), ("", "half", "interleaved"), ("", "e4m3")
    ):
        yield replace(
            base, name=f"append {new}, page {page_size}, rotary {rotary or 'none'}{', FP8 cache' * bool(kv_dtype)}",
            queries=new, new=new, page_size=page_size, rotary=rotary, kv_dtype=kv_dtype,
            descale="head" if kv_dtype else "", sinks=new == 5,
        )  # fmt: skip
    for kv_dtype, page_size, new, rotary in itertools.product(
        ("nvfp4", "mxfp8"), (0, 16), (1, 5, 40), ("", "half", "interleaved")
    ):
        yield replace(
            base, name=f"append {new}, page {page_size}, rotary {rotary or 'none'}, {kv_dtype} cache", queries=new,
            new=new, page_size=page_size, rotary=rotary, kv_dtype=kv_dtype, descale="tensor" if page_size else "head",
        )  # fmt: skip
    for columns, rotary, table_dtype, dtype in itertools.product(
        (16, 48, 80), ("half", "interleaved"), ("", "fp32"), ("bf16", "fp16")
    ):
        yield replace(
            base, name=f"append, {columns} of 80 columns {rotary}, table {table_dtype or dtype}, {dtype}", queries=2,
            new=2, head_dim=80, page_size=16, rotary=rotary, rotary_columns=columns, table_dtype=table_dtype,
            dtype=dtype,
        )  # fmt: skip
    for queries, new, causal in ((1, 3, True), (4, 1, True), (3, 3, False), (1, 1, False), (5, 0, True), (0, 2, True)):
        yield replace(
            base, name=f"append {new} keys for {queries} queries, causal {causal}", queries=queries, new=new,
            causal=causal, page_size=16 * (new % 2), rotary="interleaved",
        )  # fmt: skip
    for layout, page_size, head_dim in itertools.product(LAYOUTS, (0, 32), (72, 128)):
        yield replace(
            base, name=f"append, layout {layout}, page {page_size}, D{head_dim}", queries=2, new=2, layout=layout,
            page_size=page_size, head_dim=head_dim, rotary="" if head_dim == 72 else "half",
        )  # fmt: skip
    for (heads, heads_kv), page_size in itertools.product(((1, 1), (6, 2), (32, 8)), (0, 128)):
        yield replace(
            base, name=f"append, GQA {heads}/{heads_kv}, page {page_size}", heads=heads, heads_kv=heads_kv,
            page_size=page_size, rotary="half",
        )  # fmt: skip
    for page_size, kv_dtype, rotary in itertools.product((0, 16), ("", "e4m3"), ("", "half")):
        yield replace(
            base, name=f"append to packed, page {page_size}, rotary {rotary or 'none'}{', FP8 cache' * bool(kv_dtype)}",
            lengths=(200, 64, 0, 5, 900), queries=(1, 16, 3, 0, 7), page_size=page_size, kv_dtype=kv_dtype,
            rotary=rotary, descale="tensor" if kv_dtype else "",
        )  # fmt: skip
        yield replace(
            base, name=f"append a prefill, page {page_size}, rotary {rotary or 'none'}{', FP8 cache' * bool(kv_dtype)}",
            lengths=(0, 300, 31), queries=130, new=130, page_size=page_size, kv_dtype=kv_dtype, rotary=rotary,
            window=(100, 0), num_splits=None,
        )  # fmt: skip
    yield replace(
        base, name="append to 300 sequences", lengths=tuple(i % 90 for i in range(300)), page_size=16, heads=4
    )
    yield replace(base, name="append, no sequence", lengths=(), page_size=16)


def _edges() -> Iterator[CacheCase]:
    for splits in (1, 2, 50):
        yield CacheCase(f"one key, {splits} splits", (1,), page_size=16, num_splits=splits)
        yield CacheCase(f"no key, {splits} splits", (0, 0), page_size=16, num_splits=splits, sinks=splits == 2)
    yield CacheCase("no sequence", (), page_size=16)
    yield CacheCase("no query", (20, 30), 0)
    yield CacheCase("300 sequences", tuple(i % 90 for i in range(300)), heads=4, page_size=16)
    yield CacheCase("long: 70,000 keys", (70_000, 69_999), heads=4, heads_kv=1, page_size=64)
    yield CacheCase("many queries", (600,), 200, page_size=16)


def classes(count: int) -> tuple[CacheCase, ...]:
    """List kinds of random cases, so that few kernels must be compiled. Lengths, pages and heads are drawn per case."""
    rng = random.Random(8)
    found: dict[CacheCase, None] = {}
    while len(found) < count:
        case = CacheCase(
            "random", head_dim=rng.choice((32, 64, 64, 80, 128, 128, 128, 256)), dtype=rng.choice(("bf16", "fp16")),
            queries=rng.choice((1, 4, 33, (1,))), causal=rng.random() < 0.7,
            window=(1, 1) if rng.random() < 0.3 else None, softcap=rng.choice((0.0, 0.0, 15.0)),
            sinks=rng.random() < 0.4, page_size=rng.choice((0, 16, 16)), num_splits=rng.choice((1, 3)),
        )  # fmt: skip
        if rng.random() < 0.3:
            kv_dtype = rng.choice(("e4m3", "nvfp4", "mxfp8"))
            right = not case.head_dim % 128 and (kv_dtype == "nvfp4" or case.dtype == "bf16")
            case = replace(case, kv_dtype=kv_dtype if right else "e4m3", descale="head")
        if rng.random() < 0.3:
            case = replace(case, new=max(case.counts), rotary=rng.choice(("", "half", "interleaved")))
        found[case] = None
    return tuple(found)


def drawn(
    kind: CacheCase, lengths: tuple[int, ...], queries: tuple[int, ...], page_size: int, splits: int,
    window: tuple[int, int], layout: str, values: str, shared: bool,
) -> CacheCase:  # fmt: skip
    """Make a random case that runs the kernel of `kind`."""
    packed = isinstance(kind.queries, tuple)
    case = replace(
        kind, lengths=lengths, page_size=page_size if kind.page_size else 0, layout=layout, values=values,
        queries=tuple(itertools.islice(itertools.cycle(queries), len(lengths))) if packed else kind.queries,
        num_splits=splits + 1 if kind.num_splits != 1 else 1, window=window if kind.window else None,
        shared=shared and kind.new is None,  # if two sequences append to one page, no result is right
        heads=12 if kind.queries == 4 else 4,
    )  # fmt: skip
    return replace(case, name=f"random {case}")
