"""Kernels over KV caches for sm_90a and sm_120a, emulated: PTX against float64, machine code against PTX."""

import math
from dataclasses import dataclass, replace
from typing import Any

import pytest

pytest.importorskip("cutlass", reason="the CuTe DSL is not installed")
np = pytest.importorskip("numpy")

from sm120_attn.compile.compiler import compile_offline  # noqa: E402
from sm120_attn.config import SCALE_COLUMNS  # noqa: E402
from sm120_attn.kernels.append.config import AppendConfig  # noqa: E402
from sm120_attn.kernels.decode.config import DecodeConfig  # noqa: E402
from sm120_attn.verify.block_scaled import quantised  # noqa: E402
from tests.sm120_attn.support.emulated import Arguments, of_code, of_ptx  # noqa: E402
from tritonhook.emulate.machine import Geometry  # noqa: E402
from tritonhook.emulate.numbers import decode, encode  # noqa: E402

NAMES = {"bf16": "bf16", "fp16": "f16"}  # of formats, in the emulator
NO_BOUND = 1 << 30


@dataclass(frozen=True)
class Problem:
    """Queries over a cache, drawn at random: lengths of the sequences, and the numbers of heads."""

    lengths: tuple[int, ...] = (150, 37)
    queries: int = 1
    heads: int = 8
    heads_kv: int = 2
    page_size: int = 16
    window_left: int = NO_BOUND
    softcap: float = 0.0

    @property
    def most_pages(self) -> int:
        return -(-max(self.lengths) // self.page_size)


@dataclass(frozen=True)
class Inputs:
    """The tensors of a problem as bytes of a cache's format, and K and V as float64, [batch, keys, heads_kv, D]."""

    q: Any
    data: list[Any]
    scales: list[Any]
    descales: list[Any]
    values: list[Any]
    table: Any
    sinks: Any


def inputs_of(config: DecodeConfig, problem: Problem, seed: int = 0) -> Inputs:
    """Pages in any order; what no sequence uses is NaN."""
    draw = np.random.default_rng(seed)
    pages = len(problem.lengths) * problem.most_pages
    table = draw.permutation(pages + 3)[:pages].reshape(len(problem.lengths), -1).astype(np.int32)
    shape = (pages + 3, problem.page_size, problem.heads_kv, config.head_dim)
    data, scales, values = [], [], []
    used = np.zeros(shape[:2], bool)
    for row, length in zip(table, problem.lengths, strict=True):
        for i, page in enumerate(row):
            used[page, : max(0, min(problem.page_size, length - i * problem.page_size))] = True
    for _ in range(2):
        codes, factors, real = cache_of(config, draw, shape)
        codes[~used], factors[~used] = 0xFF, 0xFF
        data.append(codes)
        scales.append(factors)
        values.append(real[table].reshape(len(table), -1, *shape[2:]))
    descales = [draw.uniform(0.5, 2, (len(table), problem.heads_kv)).astype(np.float32) for _ in range(2)]
    q = encode(draw.standard_normal((len(table), problem.queries, problem.heads, config.head_dim)), NAMES[config.dtype])
    return Inputs(q.astype(np.uint16), data, scales, descales, values, table, draw.standard_normal(problem.heads))


def cache_of(config: DecodeConfig, draw: Any, shape: tuple[int, ...]) -> tuple[Any, Any, Any]:
    """Bytes of values, bytes of scales, and what they mean."""
    if config.kv_dtype == "e4m3":
        codes = encode(draw.standard_normal(shape), "e4m3").astype(np.uint8)
        return codes, codes[..., :1].copy(), decode(codes, "e4m3")
    blocks = (*shape[:-1], shape[-1] // SCALE_COLUMNS[config.kv_dtype])
    if config.kv_dtype == "mxfp8":
        codes = encode((draw.standard_normal(shape) * 100).clip(-448, 448), "e4m3").astype(np.uint8)
        factors = draw.integers(117, 123, blocks).astype(np.uint8)
        real, scale = decode(codes, "e4m3"), 2.0 ** (factors.astype(float) - 127)
    else:
        nibbles = draw.integers(0, 16, shape).astype(np.uint8)
        codes = nibbles[..., ::2] | nibbles[..., 1::2] << 4
        factors = encode(draw.uniform(0.02, 1, blocks), "e4m3").astype(np.uint8)
        real, scale = decode(nibbles, "e2m1"), decode(factors, "e4m3")
    return codes, factors, real * np.repeat(scale, SCALE_COLUMNS[config.kv_dtype], axis=-1)


def wanted(config: DecodeConfig, problem: Problem, given: Inputs) -> tuple[Any, Any]:
    """O and LSE in float64."""
    q, group = decode(given.q, NAMES[config.dtype]), problem.heads // problem.heads_kv
    o, lse = np.zeros(q.shape), np.full((len(q), problem.heads, problem.queries), -np.inf)
    for b, length in enumerate(problem.lengths):
        k, v = (
            np.repeat(values[b, :length] * descale[b][:, None], group, axis=1)
            for values, descale in zip(given.values, given.descales, strict=True)
        )
        scores = np.einsum("qhd,khd->hqk", q[b], k) / math.sqrt(config.head_dim)
        if config.softcap:
            scores = problem.softcap * np.tanh(scores / problem.softcap)
        at = np.arange(problem.queries)[:, None] + length - problem.queries
        keys = np.arange(length)[None]
        if config.causal:
            scores = np.where(keys <= at, scores, -np.inf)
        if config.window:
            scores = np.where(keys >= at - problem.window_left, scores, -np.inf)
        if config.sinks:
            sinks = np.broadcast_to(given.sinks[:, None, None], (*scores.shape[:2], 1))
            scores = np.concatenate((scores, sinks), -1)
        peak = scores.max(-1, keepdims=True)
        powers = np.exp(scores - peak)
        total = powers.sum(-1, keepdims=True)
        o[b] = np.einsum("hqk,khd->qhd", (powers / total)[..., :length], v)
        lse[b] = (peak + np.log(total))[..., 0]
    return o, lse


def place_decode(config: DecodeConfig, problem: Problem, given: Inputs, into: Arguments) -> tuple[Geometry, Any]:
    """Put the arguments of a decode kernel. Returns the grid, and what reads O and LSE."""
    batch, group = len(problem.lengths), problem.heads // problem.heads_kv
    o, lse = (into.memory.allocate(size) for size in (2 * given.q.size, 4 * batch * problem.heads * problem.queries))
    into.tensor(given.q)
    for data in given.data:
        into.tensor(data)
    into.put_tensor(o.address, given.q.shape)
    if config.lse:
        into.put_tensor(lse.address, (batch, problem.heads, problem.queries), fixed=0)
    into.tensor(np.array(problem.lengths, np.int32), fixed=0)
    if config.paged:
        into.tensor(given.table, fixed=0)
    if config.sinks:
        into.tensor(given.sinks.astype(np.float32), fixed=0)
    for descale in given.descales:
        into.descale(descale)
    if config.kv_dtype in SCALE_COLUMNS:
        for scales in given.scales:
            into.tensor(scales)
    tiles = -(-problem.queries * group // config.tile_m)
    scale, tanh = math.log2(math.e) / math.sqrt(config.head_dim), 0.0
    if config.softcap:
        scale, tanh = problem.softcap * math.log2(math.e), 2 * scale / problem.softcap
    into.numbers(batch, problem.heads_kv, group, problem.queries, 1, tiles, problem.page_size.bit_length() - 1)
    into.numbers(scale, tanh, problem.window_left, NO_BOUND)
    grid = tiles * problem.heads_kv // config.heads_per_cta, 1, batch

    def stored() -> list[Any]:
        return [
            np.frombuffer(into.memory.contents(o), np.uint16).reshape(given.q.shape),
            np.frombuffer(into.memory.contents(lse), np.float32),
        ]

    return Geometry(grid, (config.threads, 1, 1), tuple(range(math.prod(grid)))), stored


BASE = DecodeConfig(tile_n=32, stages=2, causal=False, paged=True, lse=True)
CASES = {
    "e4m3": (replace(BASE, kv_dtype="e4m3"), Problem()),
    "nvfp4": (replace(BASE, kv_dtype="nvfp4"), Problem()),
    "mxfp8": (replace(BASE, kv_dtype="mxfp8"), Problem()),
    "nvfp4, 8 rows": (replace(BASE, kv_dtype="nvfp4", rows_per_warp=8, group_keys=32), Problem(page_size=32)),
    "nvfp4, 4 heads": (
        replace(BASE, kv_dtype="nvfp4", rows_per_warp=8, group_keys=32, heads_per_cta=4, sinks=True),
        Problem((150, 37), heads=16, heads_kv=8, page_size=32),
    ),
    "e4m3, 32 rows, window": (
        replace(BASE, kv_dtype="e4m3", rows_per_warp=32, stages=1, causal=True, window=True),
        Problem((200, 90), queries=5, window_left=50),
    ),
    "nvfp4, 8 rows, D64, masks": (
        replace(
            BASE,
            kv_dtype="nvfp4",
            rows_per_warp=8,
            tile_n=64,
            head_dim=64,
            dtype="fp16",
            causal=True,
            window=True,
            sinks=True,
        ),
        Problem(queries=3, window_left=40, page_size=64),
    ),
    "nvfp4, 8 rows, D256, softcap": (
        replace(BASE, kv_dtype="nvfp4", rows_per_warp=8, tile_n=16, head_dim=256, softcap=True, causal=True),
        Problem((70, 300), queries=1, heads=4, heads_kv=1, softcap=5.0),
    ),
    "nvfp4, D256, softcap": (replace(BASE, kv_dtype="nvfp4", head_dim=256, softcap=True), Problem((70,), softcap=5.0)),
    "mxfp8, D256, 32 rows": (
        replace(BASE, kv_dtype="mxfp8", head_dim=256, tile_n=16, stages=1, causal=True),
        Problem((33,), queries=5, softcap=0.0),
    ),
}


# What `make test` emulates: two formats, 8 and 16 rows, both targets. The others are nightly.
ALWAYS = {("nvfp4, 8 rows, D64, masks", "sm_120a"), ("e4m3", "sm_90a")}
ALL = [
    *((name, "sm_120a") for name in CASES),
    *((name, "sm_90a") for name in ("nvfp4", "nvfp4, 8 rows", "mxfp8", "e4m3")),
]


@pytest.mark.parametrize(
    ("name", "arch"), [pytest.param(*one, marks=() if one in ALWAYS else pytest.mark.nightly) for one in ALL]
)
def test_decode_is_what_float64_says(name: str, arch: str) -> None:
    config, problem = CASES[name]
    config = replace(config, arch=arch)
    made, given = compile_offline(config), inputs_of(config, problem)

    def place(into: Arguments) -> tuple[Geometry, Any]:
        return place_decode(config, problem, given, into)

    o, lse = of_ptx(made, place)

    wanted_o, wanted_lse = wanted(config, problem, given)
    error = np.abs(decode(o, NAMES[config.dtype]) - wanted_o).max() / np.abs(wanted_o).max()
    assert error < 8e-3 and np.abs(lse - wanted_lse.reshape(-1)).max() < 2e-3
    assert all((a == b).all() for a, b in zip(of_code(made, place), (o, lse), strict=True))


LENGTHS, NEW, PAGE, HEADS = (5, 30, 0), 3, 16, 2  # keys before, new ones, rows of a page, key heads


def new_values(draw: Any, head_dim: int) -> Any:
    """Values of all sizes: of exact ties, with zeros, with a block of zeros, with one that is infinite or NaN."""
    made = draw.standard_normal((len(LENGTHS), NEW, HEADS, head_dim)) * 10.0 ** draw.integers(
        -6, 4, (len(LENGTHS), NEW, HEADS, 1)
    )
    made[0, 0] = draw.choice([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0, -5.0, 6.0, 0.0], made[0, 0].shape)
    made[0, 0, :, ::16] = 6
    made[1, 1, :, :32] = 0
    made[2, 0, 0, 5], made[2, 1, 1, 40] = np.inf, np.nan
    return made


@pytest.mark.parametrize(
    ("kv_dtype", "arch", "smooth"),
    [
        pytest.param("nvfp4", "sm_90a", False, marks=pytest.mark.nightly),
        ("nvfp4", "sm_120a", True),
        ("mxfp8", "sm_120a", False),
    ],
)
def test_append_writes_the_bits_of_the_reference(kv_dtype: str, arch: str, smooth: bool) -> None:
    torch = pytest.importorskip("torch")
    config = AppendConfig(arch=arch, kv_dtype=kv_dtype, head_dim=128, paged=True, smooth=smooth)
    draw = np.random.default_rng(1)
    new = [torch.tensor(new_values(draw, 128)).to(torch.bfloat16) for _ in range(2)]
    descales = [draw.uniform(0.3, 3, (len(LENGTHS), HEADS)).astype(np.float32) for _ in range(2)]
    for descale in descales:
        descale[0] = 1  # then the ties of new_values are ties
    table = draw.permutation(9).reshape(3, 3).astype(np.int32)
    mean = draw.standard_normal((len(LENGTHS), HEADS, 128)).astype(np.float32)
    columns, blocks = 128 // (2 if kv_dtype == "nvfp4" else 1), 128 // SCALE_COLUMNS[kv_dtype]
    empty = [np.full((9, PAGE, HEADS, size), 0xA5, np.uint8) for size in (columns, columns, blocks, blocks)]

    def place(into: Arguments) -> tuple[Geometry, Any]:
        for values in new:
            into.tensor(values.view(torch.int16).numpy())
        caches = [into.tensor(array) for array in empty[:2]]
        into.tensor(np.array(LENGTHS, np.int32), fixed=0)
        lengths = into.tensor(np.zeros(len(LENGTHS), np.int32), fixed=0)
        into.tensor(table, fixed=0)
        for descale in descales:
            into.descale(descale)
        caches += [into.tensor(array) for array in empty[2:]]
        if smooth:
            into.tensor(mean)
        lines, tokens = 2 * HEADS, len(LENGTHS) * NEW
        parts = -(-lines * config.chunks // 128)
        into.numbers(tokens, lines, parts, 0, NEW, 1, PAGE.bit_length() - 1)

        def stored() -> list[Any]:
            found = [np.frombuffer(into.memory.contents(one), np.uint8) for one in (*caches, lengths)]
            return [a.reshape(e.shape) for a, e in zip(found, empty, strict=False)] + [found[-1].view(np.int32)]

        grid = tokens * parts + 1
        return Geometry((grid, 1, 1), (128, 1, 1), tuple(range(grid))), stored

    made = compile_offline(config)
    found = of_ptx(made, place)

    expected = [array.copy() for array in empty]
    for i, values in enumerate(new):
        values = values.float() - torch.tensor(mean)[:, None] if smooth and i == 0 else values
        data, scales = quantised(values, kv_dtype, torch.tensor(descales[i])[:, None])
        for b, length in enumerate(LENGTHS):
            for n in range(NEW):
                page, row = table[b, (length + n) // PAGE], (length + n) % PAGE
                expected[i][page, row], expected[2 + i][page, row] = data[b, n].numpy(), scales[b, n].numpy()
    for name, a, b in zip(("K", "V", "scales of K", "scales of V"), found, expected, strict=False):
        assert (a == b).all(), f"{(a != b).sum()} bytes of {name}: {a[a != b][:8]}, {b[a != b][:8]}"
    assert found[-1].tolist() == [length + NEW for length in LENGTHS]
    assert all((a == b).all() for a, b in zip(of_code(made, place), found, strict=True))
