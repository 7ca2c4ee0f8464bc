"""Products of tensor cores to compare with the model: operands of many kinds, the probe, and what the model says."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.numerics.probe_kernels import Probe, mma, wgmma
from tritonhook.emulate.numbers import FORMATS, decode, encode
from tritonhook.emulate.tensor_core import fragments
from tritonhook.emulate.tensor_core.architectures import mma_sums, wgmma_sums
from tritonhook.emulate.tensor_core.shared_tiles import Descriptor, addresses
from tritonhook.emulate.tensor_core.sums import hopper_fp8, multiply, multiply_f64, multiply_integers

N = 64  # of wgmma
ARCH = "sm_90a"
Draw = Any  # numpy.random.Generator


@dataclass(frozen=True)
class Product:
    """One instruction. make: draws the words in, the tiles, and the model's words out, for so many blocks."""

    name: str
    probe: Probe
    make: Callable[[Draw, int], tuple[np.ndarray, np.ndarray | None, np.ndarray]]
    outputs_per_block: int


STYLES = ("normal", "wide", "zeros", "tiny", "cancel", "special")


def codes(draw: Draw, kind: str, shape: tuple[int, ...], style: str) -> np.ndarray:
    """Numbers of a format, as codes."""
    one = FORMATS[kind]
    normal = draw.standard_normal(shape)
    high = min(14, int(np.log2(one.largest)) - 1)
    if style == "wide":
        normal = np.ldexp(normal, draw.integers(max(one.least, -24), high, shape))
    elif style == "zeros":
        normal = np.where(draw.random(shape) < 0.6, 0.0, np.ldexp(normal, draw.integers(one.least - 2, high, shape)))
    elif style == "tiny":
        normal = np.ldexp(normal, draw.integers(one.least - one.mantissa, max(one.least + 6, -60), shape))
    elif style == "cancel":
        normal = np.where(draw.random(shape) < 0.3, draw.choice([1.0, -1.0], shape), normal * 2.0**-6)
    found = encode(normal, kind, finite=True)
    if style == "special":
        bits = draw.integers(0, 1 << one.bits, shape, np.uint64).astype(np.uint32)
        found = np.where(draw.random(shape) < 0.02, bits, found)
    return found


def _added(draw: Draw, kind: str, shape: tuple[int, ...], style: str, product: np.ndarray) -> np.ndarray:
    """The number to add: of the same style, or one that cancels the largest product."""
    if style == "cancel":
        return encode(-np.round(product), kind, finite=True)
    found = codes(draw, kind, shape, "normal" if style == "tiny" and kind == "f16" else style)
    return np.where(draw.random(shape) < 0.2, np.uint32(0), found)


def _in_styles(draw: Draw, blocks: int, make: Callable[[str, int], tuple[np.ndarray, ...]]) -> tuple[np.ndarray, ...]:
    """The parts of all styles, one behind the other along the first axis."""
    counts = [blocks // len(STYLES) + (n < blocks % len(STYLES)) for n in range(len(STYLES))]
    parts = [make(style, count) for style, count in zip(STYLES, counts, strict=True) if count]
    return tuple(np.concatenate(column) for column in zip(*parts, strict=True))


def _words(matrix: np.ndarray, bits: int, side: str) -> np.ndarray:
    """Registers (words, threads) that hold A (warps, 16, k) or B (warps, k, 8)."""
    held = 32 // bits
    if side == "b":
        warps, _, _ = matrix.shape
        parts = matrix.reshape(warps, -1, 4, held, 8).transpose(1, 0, 4, 2, 3)
    else:
        warps, rows, _ = matrix.shape
        parts = matrix.reshape(warps, rows // 8, 8, -1, 4, held).transpose(3, 1, 0, 2, 4, 5)
    parts = np.ascontiguousarray(parts).reshape(-1, warps * 32, held)
    if bits == 4:
        return fragments.pack(parts[..., 0::2] | parts[..., 1::2] << 4, 8)
    return fragments.pack(parts, bits)


def _integers(draw: Draw, shape: tuple[int, ...], kind: str) -> tuple[np.ndarray, np.ndarray]:
    """Codes and values of s8, u8, s4 or u4."""
    bits = fragments.width(kind)
    found = draw.integers(0, 1 << bits, shape)
    values = np.where((found >> bits - 1 == 1) & (kind[0] == "s"), found - (1 << bits), found)
    return found.astype(np.uint32), values.astype(np.float64)


def mma_floats(shape: str, kind: str, k: int, result: str) -> Product:
    bits, wide = FORMATS[kind].bits, FORMATS[result].bits
    probe = mma(shape, f"{result}.{kind}.{kind}.{result}", 16 * k * bits // 1024, 8 * k * bits // 1024, wide // 8)

    def make(draw: Draw, blocks: int) -> tuple[np.ndarray, np.ndarray | None, np.ndarray]:
        def operands(style: str, count: int) -> tuple[np.ndarray, ...]:
            a, b = codes(draw, kind, (count, 16, k), style), codes(draw, kind, (count, k, 8), style)
            large = decode(a, kind)[..., :1] * decode(b, kind)[..., :1, :]
            return a, b, _added(draw, result, (count, 16, 8), style, large)

        a, b, c = _in_styles(draw, 4 * blocks, operands)
        if kind in ("e4m3", "e5m2"):
            found = hopper_fp8(a, b, c, kind, result)
        else:
            found = multiply(a, b, c, (kind, kind, result), mma_sums(ARCH, kind, k, result))
        words = [_words(a, bits, "a"), _words(b, bits, "b"), fragments.registers_of_c(c, wide)]
        return np.concatenate(words), None, fragments.registers_of_c(found, wide)

    return Product(f"mma.{shape}.{result}.{kind}", probe, make, 4 * 128)


def mma_integers(shape: str, kind_a: str, kind_b: str, k: int, saturate: bool = False) -> Product:
    bits = fragments.width(kind_a)
    tail = ".satfinite" if saturate else ""
    types = f"s32.{kind_a}.{kind_b}.s32"
    probe = mma(shape, types, 16 * k * bits // 1024, 8 * k * bits // 1024, 4)
    if saturate:
        probe = Probe(probe.body.replace(f".{types}", f"{tail}.{types}"), probe.words_in, probe.words_out)

    def make(draw: Draw, blocks: int) -> tuple[np.ndarray, np.ndarray | None, np.ndarray]:
        warps = 4 * blocks
        (a, x), (b, y) = _integers(draw, (warps, 16, k), kind_a), _integers(draw, (warps, k, 8), kind_b)
        near = draw.integers((1 << 31) - 40000, 1 << 31, (warps, 16, 8))
        c = np.where(draw.random((warps, 16, 8)) < 0.5, near, draw.integers(0, 1 << 32, (warps, 16, 8)))
        c = c.astype(np.uint32)
        found = multiply_integers(x, y, c, saturate)
        words = [_words(a, bits, "a"), _words(b, bits, "b"), fragments.registers_of_c(c, 32)]
        return np.concatenate(words), None, fragments.registers_of_c(found, 32)

    return Product(f"mma.{shape}{tail}.{types}", probe, make, 4 * 128)


def mma_f64() -> Product:
    body = (
        "mov.b64 x, {i0, i1}; mov.b64 y, {i2, i3}; mov.b64 z, {i4, i5}; mov.b64 r, {i6, i7};\n"
        "  mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {z, r}, {x}, {y}, {z, r};\n"
        "  mov.b64 {o0, o1}, z; mov.b64 {o2, o3}, r;"
    )

    def make(draw: Draw, blocks: int) -> tuple[np.ndarray, np.ndarray | None, np.ndarray]:
        warps = 4 * blocks
        a, b, c = (draw.standard_normal((warps, *shape)) for shape in ((8, 4), (4, 8), (8, 8)))
        found = multiply_f64(a.view(np.uint64), b.view(np.uint64), c.view(np.uint64))

        def split(values: np.ndarray) -> np.ndarray:
            return np.ascontiguousarray(values).view(np.uint32).reshape(-1, 2).T

        by_thread = [values.reshape(warps * 32, 2).T for values in (c.view(np.uint64), found)]
        words = [split(a.reshape(-1)), split(b.transpose(0, 2, 1).reshape(-1)), *(split(row) for row in by_thread[0])]
        return np.concatenate(words), None, np.concatenate([split(row) for row in by_thread[1]])

    return Product("mma.m8n8k4.f64", Probe(body, 8, 4), make, 4 * 64)


def _tile(draw_codes: np.ndarray, places: np.ndarray, size: int, tile: int, begin: int, image: np.ndarray) -> None:
    """Write numbers (blocks, length, k) of `size` bytes to their places in the image of shared memory."""
    for byte in range(size):
        image[:, begin + places + byte] = (draw_codes >> 8 * byte & 0xFF).astype(np.uint8)


def _fields(one: Descriptor) -> int:
    mode = {16: 0, 128: 1, 64: 2, 32: 3}[one.row]
    return (one.leading >> 4) << 16 | (one.stride >> 4) << 32 | mode << 62


def _layout(row: int, is_k_major: bool) -> Descriptor:
    if is_k_major:
        return Descriptor(0, 1024 if row == 16 else 16, 128 if row == 16 else 8 * row, row)
    return Descriptor(0, 2048, 128 if row == 16 else 8 * row, row)


def wgmma_product(
    kind: str, k: int, result: str, row: int, *, in_registers: bool = True, k_major: tuple[bool, bool] = (True, True)
) -> Product:
    """row: bytes of the swizzle. k_major: of A and of B."""
    is_integer = kind in ("s8", "u8")
    bits = 8 if is_integer else FORMATS[kind].bits
    wide = 32 if is_integer else FORMATS[result].bits
    size, tile, words = bits // 8, 32768, N * wide // 64
    layouts = _layout(row, k_major[0]), _layout(row, k_major[1])
    majors = f", {int(not k_major[1])}" if in_registers else f", {int(not k_major[0])}, {int(not k_major[1])}"
    tail = "" if is_integer else ", 1, 1" + (majors if bits == 16 else "")
    probe = wgmma(
        N, k, f"{result}.{kind}.{kind}", words, tile, tuple(map(_fields, layouts)), tail, 4 if in_registers else 0
    )
    places = [addresses(one, 64, k, size, major) for one, major in zip(layouts, k_major, strict=True)]

    def make(draw: Draw, blocks: int) -> tuple[np.ndarray, np.ndarray | None, np.ndarray]:
        if is_integer:
            (a, x), (b, y) = _integers(draw, (blocks, 64, k), kind), _integers(draw, (blocks, k, N), kind)
            c = draw.integers(0, 1 << 32, (blocks, 64, N), np.uint32)
            found = multiply_integers(x, y, c, False)
        else:

            def operands(style: str, count: int) -> tuple[np.ndarray, ...]:
                a, b = codes(draw, kind, (count, 64, k), style), codes(draw, kind, (count, k, N), style)
                large = decode(a, kind)[..., :1] * decode(b, kind)[..., :1, :]
                return a, b, _added(draw, result, (count, 64, N), style, large)

            a, b, c = _in_styles(draw, blocks, operands)
            found = multiply(a, b, c, (kind, kind, result), wgmma_sums(kind, k, result))
        image = np.zeros((blocks, tile), np.uint8)
        if not in_registers:
            _tile(a, places[0], size, tile, 0, image)
        _tile(b.transpose(0, 2, 1), places[1], size, tile, 0 if in_registers else tile // 2, image)
        words_in = [fragments.registers_of_c(c.reshape(-1, 16, c.shape[-1]), wide)]
        if in_registers:
            words_in.insert(0, _words(a.reshape(-1, 16, a.shape[-1]), bits, "a"))
        return np.concatenate(words_in), image, fragments.registers_of_c(found.reshape(-1, 16, found.shape[-1]), wide)

    majors = "".join("k" if one else "m" for one in k_major)
    name = f"wgmma.m64n{N}k{k}.{result}.{kind} {'registers' if in_registers else 'shared'} {row} {majors}"
    return Product(name, probe, make, 64 * N)


def products() -> Iterator[Product]:
    """All products that sm_90a has, of the shapes that kernels use."""
    for kind in ("f16", "bf16"):
        for k in (8, 16):
            yield mma_floats(f"m16n8k{k}", kind, k, "f32")
    yield mma_floats("m16n8k8", "f16", 8, "f16")
    yield mma_floats("m16n8k16", "f16", 16, "f16")
    yield mma_floats("m16n8k4", "tf32", 4, "f32")
    yield mma_floats("m16n8k8", "tf32", 8, "f32")
    for kind in ("e4m3", "e5m2"):
        yield mma_floats("m16n8k32", kind, 32, "f32")
    yield mma_f64()
    yield mma_integers("m16n8k16", "s8", "s8", 16)
    yield mma_integers("m16n8k32", "s8", "s8", 32)
    yield mma_integers("m16n8k32", "u8", "s8", 32, saturate=True)
    yield mma_integers("m16n8k64", "s4", "u4", 64)
    for row in (16, 32, 64, 128):
        for major in (True, False):
            yield wgmma_product("f16", 16, "f32", row, k_major=(True, major))
    yield wgmma_product("f16", 16, "f32", 128, in_registers=False, k_major=(False, True))
    yield wgmma_product("bf16", 16, "f32", 128, in_registers=False)
    yield wgmma_product("bf16", 16, "f32", 16, in_registers=False, k_major=(False, False))
    yield wgmma_product("f16", 16, "f16", 128)
    yield wgmma_product("tf32", 8, "f32", 128)
    for kind in ("e4m3", "e5m2"):
        yield wgmma_product(kind, 32, "f32", 128)
        yield wgmma_product(kind, 32, "f16", 64, in_registers=False)
    yield wgmma_product("s8", 32, "s32", 128)
    yield wgmma_product("u8", 32, "s32", 32, in_registers=False)
