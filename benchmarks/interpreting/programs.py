"""Triton kernels as people write them, each with its launch and what float64 says. `python programs.py DEVICE NAME ...`
prints for each: the least seconds of CPU of two calls after the first, and the error of its result.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
import triton
import triton.language as tl

Program = tuple[Callable[[], Any], Any]  # a call, which gives the result; what float64 says
ROWS, COLUMNS = 128, 1000


@triton.jit
def add_kernel(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) + tl.load(y + at, mask=at < n), mask=at < n)


@triton.jit
def softmax_kernel(x, out, n, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    values = tl.load(x + row * n + at, mask=at < n, other=float("-inf"))
    powers = tl.exp(values - tl.max(values, 0))
    tl.store(out + row * n + at, powers / tl.sum(powers, 0), mask=at < n)


@triton.jit
def sort_kernel(x, out, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    tl.store(out + row * BLOCK + at, tl.sort(tl.load(x + row * BLOCK + at)))


@triton.jit
def matmul_kernel(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    i, j = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    total = tl.zeros((BM, BN), c.dtype.element_ty)
    for begin in range(0, K, BK):
        left = tl.load(a + i[:, None] * K + begin + k[None, :])
        right = tl.load(b + (begin + k)[:, None] * N + j[None, :])
        total = tl.dot(left, right, total, out_dtype=total.dtype)
    tl.store(c + i[:, None] * N + j[None, :], total)


@triton.jit
def attention_kernel(q, k, v, out, n, scale, BLOCK: tl.constexpr, D: tl.constexpr):
    head, i, d = tl.program_id(1), tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), tl.arange(0, D)
    base = head * n * D
    query = tl.load(q + base + i[:, None] * D + d[None, :])
    largest, total = tl.full((BLOCK,), float("-inf"), tl.float32), tl.zeros((BLOCK,), tl.float32)
    result = tl.zeros((BLOCK, D), tl.float32)
    for begin in range(0, n, BLOCK):
        j = begin + tl.arange(0, BLOCK)
        scores = tl.dot(query, tl.trans(tl.load(k + base + j[:, None] * D + d[None, :]))) * scale
        new = tl.maximum(largest, tl.max(scores, 1))
        powers, shrink = tl.exp(scores - new[:, None]), tl.exp(largest - new)
        total = total * shrink + tl.sum(powers, 1)
        values = tl.load(v + base + j[:, None] * D + d[None, :])
        result = tl.dot(powers.to(values.dtype), values, result * shrink[:, None])
        largest = new
    tl.store(out + base + i[:, None] * D + d[None, :], result / total[:, None])


@triton.jit
def conv_kernel(x, weight, out, n, TAPS: tl.constexpr, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for tap in tl.static_range(TAPS):
        where = at - tap
        total += tl.load(weight + tap) * tl.load(x + row * n + where, mask=(where >= 0) & (where < n), other=0.0)
    tl.store(out + row * n + at, total, mask=at < n)


def programs(device: str) -> dict[str, Callable[[], Program]]:
    torch.manual_seed(0)
    x, y = torch.randn(ROWS, COLUMNS, device=device), torch.randn(ROWS, COLUMNS, device=device)
    exact, empty = x.double(), torch.empty_like(x)

    def launched(kernel: Any, grid: tuple[int, ...], out: Any, *given: Any, **meta: int) -> Callable[[], Any]:
        def call() -> Any:
            kernel[grid](*given, **meta)
            return out

        return call

    def added() -> Program:
        grid = (triton.cdiv(x.numel(), 1024),)
        return launched(add_kernel, grid, empty, x, y, empty, x.numel(), BLOCK=1024), exact + y.double()

    def softmax() -> Program:
        call = launched(softmax_kernel, (ROWS,), empty, x, empty, COLUMNS, BLOCK=1024)
        return call, torch.softmax(exact, 1)

    def sorted_rows() -> Program:
        short = x[:4, :128].contiguous()
        out = torch.empty_like(short)
        return launched(sort_kernel, (4,), out, short, out, BLOCK=128), short.double().sort(1).values

    def matmul(dtype: Any) -> Callable[[], Program]:
        def made() -> Program:
            a, b = (torch.randn(256, 256, device=device).to(dtype) for _ in "ab")
            out = torch.empty(256, 256, device=device)
            call = launched(matmul_kernel, (4, 4), out, a, b, out, 256, 256, 256, 64, 64, 32)
            return call, a.double() @ b.double()

        return made

    def attention() -> Program:
        q, k, v = (torch.randn(2, 256, 64, device=device).half() for _ in "qkv")
        out = torch.empty(2, 256, 64, device=device)
        call = launched(attention_kernel, (4, 2), out, q, k, v, out, 256, 0.125, BLOCK=64, D=64)
        return call, torch.softmax(q.double() @ k.double().mT / 8, -1) @ v.double()

    def conv() -> Program:
        taps, padded = torch.randn(4, device=device), F.pad(exact, (3, 0))
        summed = sum(taps[tap].double() * padded[:, 3 - tap : 3 - tap + COLUMNS] for tap in range(4))
        return launched(conv_kernel, (ROWS,), empty, x, taps, empty, COLUMNS, TAPS=4, BLOCK=1024), summed

    return {
        "add": added,
        "softmax": softmax,
        "sort": sorted_rows,
        "matmul_f16": matmul(torch.float16),
        "matmul_bf16": matmul(torch.bfloat16),
        "matmul_f32": matmul(torch.float32),
        "attention": attention,
        "conv": conv,
    }


def main(device: str, *names: str) -> None:
    made = programs(device)
    for name in names or made:
        found: dict[str, Any] = {"program": name}
        try:
            call, exact = made[name]()
            exact = exact.double()
            call()
            times = []
            for _ in range(2):
                began = time.process_time()
                result = call()
                times.append(time.process_time() - began)
            error = ((result.double() - exact).norm() / exact.norm()).item()
            found |= {"seconds": min(times), "error": error}
        except Exception as error:
            found["failed"] = f"{type(error).__name__}: {error}"[:300]
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
