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


def compiled(kernel: Any, kind: str, sizes: tuple[int, int, int], warps: int) -> Any:
    """kind: the format of a and b. sizes: BM, BN, BK."""
    signature = dict.fromkeys("abc", f"*{_DTYPES[kind]}") | {"c": "*fp32", "K": "i32"}
    signature |= dict.fromkeys(("BM", "BN", "BK"), "constexpr")
    constants = {(4 + number,): size for number, size in enumerate(sizes)}
    attributes = {(number,): [["tt.divisibility", 16]] for number in range(4)}
    source = ASTSource(kernel, signature, constants, attributes)
    options = {"num_warps": warps, "num_stages": 2}
    return triton.compile(source, target=GPUTarget("cuda", 100, 32), options=options)


def launched(kernel: Any, name: str, kind: str, sizes: tuple[int, int, int]) -> tuple[Launch, list[bytes], Any]:
    """A launch of one CTA with random numbers, the contents of its buffers, and the product in float64."""
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
    launch = Launch(name, (1, 1, 1), (threads, 1, 1), (*parameters, Scratch(), Scratch()), buffers, shared=shared)
    return launch, [one.tobytes() for one in arrays], wanted


def _rounded(values: Any, kind: str) -> Any:
    return decode(encode(values, kind), kind)
