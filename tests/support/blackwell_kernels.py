"""Triton kernels whose tl.dot becomes tcgen05.mma on sm_100, compiled without a GPU, and launches of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from tritonhook.capture.launches.record import Buffer, Launch, Pointer, Scalar, Scratch
from tritonhook.emulate.numbers import decode, encode

_DTYPES = {"f16": "fp16", "bf16": "bf16", "e4m3": "fp8e4nv", "e5m2": "fp8e5", "tf32": "fp32"}


@triton.jit
def product(a, b, c, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """c = a b: a of BM rows, b of BN columns."""
    i, j, k = tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, BK)
    total = tl.zeros((BM, BN), tl.float32)
    for begin in range(0, K, BK):
        x = tl.load(a + i[:, None] * K + k + begin, mask=k + begin < K, other=0.0)
        y = tl.load(b + (k + begin)[:, None] * BN + j, mask=(k + begin)[:, None] < K, other=0.0)
        total = tl.dot(x, y, total)
    tl.store(c + i[:, None] * BN + j, total)


@triton.jit
def chain(a, b, c, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """c = the sum of (a b[k]^T) b[k] over blocks b[k] of BK rows: what is computed is a factor of the next product."""
    i, j, k = tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, BK)
    x = tl.load(a + i[:, None] * BN + j)
    total = tl.zeros((BM, BN), tl.float32)
    for begin in range(0, K, BK):
        turned = tl.load(b + (k + begin)[None, :] * BN + j[:, None])
        first = tl.dot(x, turned)
        total = tl.dot(first.to(x.dtype), tl.load(b + (k + begin)[:, None] * BN + j), total)
    tl.store(c + i[:, None] * BN + j, total)


@triton.jit
def scaled(
    a, of_a, b, of_b, c, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
    KIND_A: tl.constexpr, KIND_B: tl.constexpr, IN_A: tl.constexpr, IN_B: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """c = a b^T with a factor for each BLOCK numbers of a row. IN_A, IN_B: numbers in a byte."""
    i, j, blocks = tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, BK // BLOCK)
    in_a, in_b = tl.arange(0, BK // IN_A), tl.arange(0, BK // IN_B)
    total = tl.zeros((BM, BN), tl.float32)
    for begin in range(0, K, BK):
        x = tl.load(a + i[:, None] * (K // IN_A) + in_a + begin // IN_A)
        y = tl.load(b + j[None, :] * (K // IN_B) + (in_b + begin // IN_B)[:, None])
        s = tl.load(of_a + i[:, None] * (K // BLOCK) + blocks + begin // BLOCK)
        t = tl.load(of_b + j[:, None] * (K // BLOCK) + blocks + begin // BLOCK)
        total = tl.dot_scaled(x, s, KIND_A, y, t, KIND_B, total)
    tl.store(c + i[:, None] * BN + j, total)


class Scaled:
    """One launch of `scaled`. kinds: the formats of a and b. block: numbers that share a factor (16: of ue4m3)."""

    def __init__(self, kinds: tuple[str, str], block: int, sizes: tuple[int, int, int] = (128, 128, 128)) -> None:
        (m, n, k), held = sizes, [2 if kind == "e2m1" else 1 for kind in kinds]
        signature = dict.fromkeys(("a", "b"), "*u8") | {"c": "*fp32", "K": "i32"}
        signature |= dict.fromkeys(("of_a", "of_b"), "*u8" if block == 32 else "*fp8e4nv")
        names = ("BM", "BN", "BK", "KIND_A", "KIND_B", "IN_A", "IN_B", "BLOCK")
        signature = {name: signature[name] for name in ("a", "of_a", "b", "of_b", "c", "K")}
        constants = {(6 + at,): value for at, value in enumerate((*sizes, *kinds, *held, block))}
        source = ASTSource(
            scaled,
            signature | dict.fromkeys(names, "constexpr"),
            constants,
            {(number,): [["tt.divisibility", 16]] for number in range(6)},
        )
        options = {"num_warps": 4, "num_stages": 2}
        self.made = triton.compile(source, target=GPUTarget("cuda", 100, 32), options=options)
        draw, depth, factor = np.random.default_rng(0), 2 * k, "ue8m0" if block == 32 else "e4m3"
        arrays, values = [], []
        for kind, rows in zip(kinds, (m, n), strict=True):
            codes = encode(draw.standard_normal((rows, depth)), kind).astype(np.uint8)
            factors = draw.integers(*((120, 134) if block == 32 else (1, 127)), (rows, depth // block), np.uint8)
            arrays += [codes[:, ::2] | codes[:, 1::2] << 4 if kind == "e2m1" else codes, factors]
            values.append(decode(codes, kind) * np.repeat(decode(factors, factor), block, 1))
        arrays.append(np.zeros((m, n), np.float32))
        self.wanted = values[0] @ values[1].T
        pointers = (Pointer(name, at) for at, name in enumerate(("a", "of_a", "b", "of_b", "c")))
        parameters = (*pointers, Scalar("K", "i32", depth), Scratch(), Scratch())
        buffers = tuple(Buffer(one.nbytes, str(one.dtype)) for one in arrays)
        shared = self.made.metadata.shared
        self.launch = Launch("scaled", (1, 1, 1), (128, 1, 1), parameters, buffers, shared=shared)
        self.contents = [one.tobytes() for one in arrays]

    def error(self, contents: Any) -> float:
        """How far the product is from float64, relative to its largest number."""
        found = np.frombuffer(contents[-1], np.float32).reshape(self.wanted.shape)
        return float(np.nan_to_num(np.abs(found - self.wanted), nan=np.inf).max() / np.abs(self.wanted).max())


def compiled(kernel: Any, kind: str, sizes: tuple[int, int, int], warps: int, ctas: int = 1) -> Any:
    """kind: the format of a and b. sizes: BM, BN, BK. ctas: of one cluster, which compute together."""
    signature = dict.fromkeys("abc", f"*{_DTYPES[kind]}") | {"c": "*fp32", "K": "i32"}
    signature |= dict.fromkeys(("BM", "BN", "BK"), "constexpr")
    constants = {(4 + number,): size for number, size in enumerate(sizes)}
    attributes = {(number,): [["tt.divisibility", 16]] for number in range(4)}
    source = ASTSource(kernel, signature, constants, attributes)
    options = {"num_warps": warps, "num_stages": 2, "num_ctas": ctas}
    return triton.compile(source, target=GPUTarget("cuda", 100, 32), options=options)


def launched(kernel: Any, name: str, kind: str, sizes: tuple[int, int, int]) -> tuple[Launch, list[bytes], Any]:
    """A launch of one cluster with random numbers, the contents of its buffers, and the product in float64."""
    m, n, k = sizes
    depth = 2 * k + (16 if name == "product" else 0)
    draw = np.random.default_rng(0)
    of_code = {"e4m3": "u1", "e5m2": "u1", "tf32": "u4"}.get(kind, "u2")
    shapes = ((m, depth), (depth, n)) if name == "product" else ((m, n), (depth, n))
    values = [draw.standard_normal(shape) * (1 if name == "product" else 0.25) for shape in shapes]
    given = [encode(one, kind).astype(of_code) for one in values]
    a, b = (decode(one, kind) for one in given)
    wanted = a @ b if name == "product" else sum(_rounded(a @ part.T, kind) @ part for part in np.split(b, 2))
    arrays = [*given, np.zeros((m, n), np.float32)]
    parameters = (*(Pointer(letter, at) for at, letter in enumerate("abc")), Scalar("K", "i32", depth))
    buffers = tuple(Buffer(one.nbytes, str(one.dtype)) for one in arrays)
    threads, shared = 32 * kernel.metadata.num_warps, kernel.metadata.shared
    cluster = kernel.metadata.num_ctas, 1, 1
    launch = Launch(
        name, cluster, (threads, 1, 1), (*parameters, Scratch(), Scratch()), buffers, cluster, shared=shared
    )
    return launch, [one.tobytes() for one in arrays], wanted


def _rounded(values: Any, kind: str) -> Any:
    return decode(encode(values, kind), kind)
