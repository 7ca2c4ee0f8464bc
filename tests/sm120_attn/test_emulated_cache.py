"""Kernels over KV caches for sm_90a and sm_120a, emulated: PTX against float64, machine code against PTX."""

import math
import struct
from dataclasses import dataclass, replace
from typing import Any

import pytest

pytest.importorskip("cutlass", reason="the CuTe DSL is not installed")
np = pytest.importorskip("numpy")

from sm120_attn.compile.compiler import compile_offline  # noqa: E402
from sm120_attn.config import SCALE_COLUMNS  # noqa: E402
from sm120_attn.kernels.decode.config import DecodeConfig  # noqa: E402
from tritonhook.cubin.image import Cubin  # noqa: E402
from tritonhook.emulate.machine import Geometry, Machine  # noqa: E402
from tritonhook.emulate.memory import Memory  # noqa: E402
from tritonhook.emulate.numbers import decode, encode  # noqa: E402
from tritonhook.emulate.ptx.decode import decode as decode_ptx  # noqa: E402
from tritonhook.emulate.ptx.kernel import read_kernel  # noqa: E402
from tritonhook.emulate.sass.decode import decode as decode_sass  # noqa: E402
from tritonhook.emulate.sass.kernel import read_sass_kernel  # noqa: E402
from tritonhook.ptx.module import Ptx  # noqa: E402
from tritonhook.ptxas.toolchain import reading_toolchain  # noqa: E402

NAMES = {"bf16": "bf16", "fp16": "f16"}  # of formats, in the emulator
NO_BOUND = 1 << 30
SHARED = 100 << 10


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


class Call:
    """One launch of a decode kernel, in the memory of one run."""

    def __init__(self, config: DecodeConfig, problem: Problem, given: Inputs, memory: Memory, offsets: list[int]):
        self.config, self.memory, self.offsets, self.number = config, memory, offsets, 0
        self.parameters = bytearray(offsets[-1])
        batch, group = len(problem.lengths), problem.heads // problem.heads_kv
        self.o = memory.allocate(2 * given.q.size)
        self.shape = given.q.shape
        self.lse = memory.allocate(4 * batch * problem.heads * problem.queries)
        self.tensor(given.q)
        for data in given.data:
            self.tensor(data)
        self.put_tensor(self.o.address, self.shape)
        if config.lse:
            self.put_tensor(self.lse.address, (batch, problem.heads, problem.queries), fixed=0)
        self.tensor(np.array(problem.lengths, np.int32), fixed=0)
        if config.paged:
            self.tensor(given.table, fixed=0)
        if config.sinks:
            self.tensor(given.sinks.astype(np.float32), fixed=0)
        for descale in given.descales:
            place = memory.allocate(descale.tobytes())
            self.put(struct.pack("<Q2i2q", place.address, *descale.shape, descale.shape[1], 1))
        if config.kv_dtype in SCALE_COLUMNS:
            for scales in given.scales:
                self.tensor(scales)
        tiles = -(-problem.queries * group // config.tile_m)
        scale, tanh = math.log2(math.e) / math.sqrt(config.head_dim), 0.0
        if config.softcap:
            scale, tanh = problem.softcap * math.log2(math.e), 2 * scale / problem.softcap
        numbers = [batch, problem.heads_kv, group, problem.queries, 1, tiles, problem.page_size.bit_length() - 1]
        for number in numbers:
            self.put(struct.pack("<i", number))
        for word in (struct.pack("<f", scale), struct.pack("<f", tanh)):
            self.put(word)
        self.put(struct.pack("<i", problem.window_left))
        self.put(struct.pack("<i", NO_BOUND))
        assert self.number == len(offsets) - 1
        grid = tiles * problem.heads_kv, 1, batch
        self.geometry = Geometry(grid, (config.threads, 1, 1), tuple(range(math.prod(grid))))

    def tensor(self, array: Any, fixed: int = 1) -> None:
        self.put_tensor(self.memory.allocate(np.ascontiguousarray(array).tobytes()).address, array.shape, fixed)

    def put_tensor(self, address: int, shape: tuple[int, ...], fixed: int = 1) -> None:
        """A contiguous tensor. fixed: whether the kernel is compiled for the last size."""
        sizes = shape[: len(shape) - fixed]
        strides = [math.prod(shape[i + 1 :]) for i in range(len(shape) - 1)]
        self.put(struct.pack(f"<Q{len(sizes)}i", address, *sizes).ljust(8 + (4 * len(sizes) + 7) // 8 * 8, b"\0"))
        self.number -= 1
        at = self.offsets[self.number] + 8 + (4 * len(sizes) + 7) // 8 * 8
        data = struct.pack(f"<{len(strides)}q", *strides)
        self.parameters[at : at + len(data)] = data
        self.number += 1

    def put(self, data: bytes) -> None:
        at = self.offsets[self.number]
        self.parameters[at : at + len(data)] = data
        self.number += 1

    def stored(self) -> tuple[Any, Any]:
        lse = np.frombuffer(self.memory.contents(self.lse), np.float32)
        return np.frombuffer(self.memory.contents(self.o), np.uint16).reshape(self.shape), lse


def of_ptx(config: DecodeConfig, problem: Problem, given: Inputs, kernel: Any) -> tuple[Any, Any]:
    offsets = [offset for _, offset in kernel.parameters.variables]
    memory = Memory(kernel.dynamic_shared + SHARED, kernel.local.size)
    call = Call(config, problem, given, memory, [*offsets, kernel.parameters.size])
    parameters = memory.allocate(bytes(call.parameters))
    variables = {one.name: memory.allocate(one.contents) for one in kernel.module}
    machine = Machine(call.geometry, memory)
    machine.run(decode_ptx(kernel, machine, parameters, variables, SHARED)[0])
    return call.stored()


def of_code(config: DecodeConfig, problem: Problem, given: Inputs, kernel: Any, made: Any) -> tuple[Any, Any]:
    cubin = Cubin.from_bytes(made.cubin if isinstance(made.cubin, bytes) else made.cubin.data)
    (name,) = cubin.kernels
    code = read_sass_kernel(cubin, reading_toolchain().disassemble(cubin, [name])[name])
    memory = Memory(code.shared + SHARED, code.stack)
    offsets = [*(offset for _, offset in kernel.parameters.variables), kernel.parameters.size]
    call = Call(config, problem, given, memory, offsets)
    parameters = bytes(call.parameters)
    machine = Machine(call.geometry, memory)
    machine.run(
        decode_sass(code, machine, code.constants(call.geometry, parameters, memory.allocate(parameters).address))[0]
    )
    return call.stored()


BASE = DecodeConfig(tile_n=32, stages=2, causal=False, paged=True, lse=True)
CASES = {
    "e4m3": (replace(BASE, kv_dtype="e4m3"), Problem()),
    "nvfp4": (replace(BASE, kv_dtype="nvfp4"), Problem()),
    "mxfp8": (replace(BASE, kv_dtype="mxfp8"), Problem()),
    "nvfp4, D64, masks": (
        replace(BASE, kv_dtype="nvfp4", head_dim=64, dtype="fp16", causal=True, window=True, sinks=True),
        Problem(queries=3, window_left=40, page_size=32),
    ),
    "nvfp4, D256, softcap": (replace(BASE, kv_dtype="nvfp4", head_dim=256, softcap=True), Problem((70,), softcap=5.0)),
    "nvfp4, D192, 32 rows": (
        replace(BASE, kv_dtype="nvfp4", head_dim=192, tile_n=16, causal=True),
        Problem((45, 60), queries=5),
    ),
    "mxfp8, D256, 32 rows": (
        replace(BASE, kv_dtype="mxfp8", head_dim=256, tile_n=16, stages=1, causal=True),
        Problem((33,), queries=5, softcap=0.0),
    ),
}


@pytest.mark.parametrize(
    ("name", "arch"), [*((name, "sm_120a") for name in CASES), ("nvfp4", "sm_90a"), ("mxfp8", "sm_90a")]
)
def test_decode_is_what_float64_says(name: str, arch: str) -> None:
    config, problem = CASES[name]
    config = replace(config, arch=arch)
    made, given = compile_offline(config), inputs_of(config, problem)
    kernel = read_kernel(Ptx(made.ptx))

    o, lse = of_ptx(config, problem, given, kernel)

    wanted_o, wanted_lse = wanted(config, problem, given)
    error = np.abs(decode(o, NAMES[config.dtype]) - wanted_o).max() / np.abs(wanted_o).max()
    assert error < 8e-3 and np.abs(lse - wanted_lse.reshape(-1)).max() < 2e-3

    again = of_code(config, problem, given, kernel, made)
    assert all((a == b).all() for a, b in zip(again, (o, lse), strict=True))
