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
def silu_kernel(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n)
    tl.store(out + at, value * tl.sigmoid(value), mask=at < n)


@triton.jit
def softmax_kernel(x, out, n, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    values = tl.load(x + row * n + at, mask=at < n, other=float("-inf"))
    powers = tl.exp(values - tl.max(values, 0))
    tl.store(out + row * n + at, powers / tl.sum(powers, 0), mask=at < n)


@triton.jit
def layer_norm_kernel(x, weight, bias, out, n, eps, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    value = tl.load(x + row * n + at, mask=at < n, other=0.0)
    centred = tl.where(at < n, value - tl.sum(value, 0) / n, 0.0)
    scale = tl.rsqrt(tl.sum(centred * centred, 0) / n + eps)
    w, b = tl.load(weight + at, mask=at < n), tl.load(bias + at, mask=at < n)
    tl.store(out + row * n + at, centred * scale * w + b, mask=at < n)


@triton.jit
def cumsum_kernel(x, out, n, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    tl.store(out + row * n + at, tl.cumsum(tl.load(x + row * n + at, mask=at < n, other=0.0), 0), mask=at < n)


@triton.jit
def sort_kernel(x, out, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    tl.store(out + row * BLOCK + at, tl.sort(tl.load(x + row * BLOCK + at)))


@triton.jit
def quantise_kernel(x, out, scales, n, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    value = tl.load(x + row * n + at, mask=at < n, other=0.0)
    scale = tl.max(tl.abs(value), 0) / 127.0
    tl.store(scales + row, scale)
    tl.store(out + row * n + at, (value / scale + tl.where(value < 0, -0.5, 0.5)).to(tl.int8), mask=at < n)


@triton.jit
def cross_entropy_kernel(x, target, out, n, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    values = tl.load(x + row * n + at, mask=at < n, other=float("-inf"))
    largest = tl.max(values, 0)
    total = largest + tl.log(tl.sum(tl.exp(values - largest), 0))
    tl.store(out + row, total - tl.load(x + row * n + tl.load(target + row)))


@triton.jit
def gather_kernel(x, index, out, n, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    from_row = tl.load(index + row)
    tl.store(out + row * n + at, tl.load(x + from_row * n + at, mask=at < n), mask=at < n)


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
def rms_norm_kernel(x, weight, out, n, eps, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    value = tl.load(x + row * n + at, mask=at < n, other=0.0)
    scale = tl.rsqrt(tl.sum(value * value, 0) / n + eps)
    tl.store(out + row * n + at, value * scale * tl.load(weight + at, mask=at < n), mask=at < n)


@triton.jit
def layer_norm_backward_kernel(x, dy, weight, dx, n, eps, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    value = tl.load(x + row * n + at, mask=at < n, other=0.0)
    centred = tl.where(at < n, value - tl.sum(value, 0) / n, 0.0)
    scale = tl.rsqrt(tl.sum(centred * centred, 0) / n + eps)
    normal = centred * scale
    given = tl.load(dy + row * n + at, mask=at < n, other=0.0) * tl.load(weight + at, mask=at < n, other=0.0)
    mean, along = tl.sum(given, 0) / n, tl.sum(given * normal, 0) / n
    tl.store(dx + row * n + at, (given - mean - normal * along) * scale, mask=at < n)


@triton.jit
def softmax_backward_kernel(y, dy, dx, n, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    value = tl.load(y + row * n + at, mask=at < n, other=0.0)
    given = tl.load(dy + row * n + at, mask=at < n, other=0.0)
    tl.store(dx + row * n + at, value * (given - tl.sum(value * given, 0)), mask=at < n)


@triton.jit
def sum_kernel(x, out, n, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    tl.store(out + row, tl.sum(tl.load(x + row * n + at, mask=at < n, other=0.0), 0))


@triton.jit
def argmax_kernel(x, out, n, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    tl.store(out + row, tl.argmax(tl.load(x + row * n + at, mask=at < n, other=float("-inf")), 0))


@triton.jit
def column_sum_kernel(x, out, rows, n, BLOCK: tl.constexpr):
    i, j = tl.arange(0, 32), tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for begin in range(0, rows, 32):
        total += tl.sum(tl.load(x + (begin + i)[:, None] * n + j[None, :], mask=(j < n)[None, :], other=0.0), 0)
    tl.store(out + j, total, mask=j < n)


@triton.jit
def histogram_kernel(index, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(out + tl.load(index + at, mask=at < n, other=0), 1, mask=at < n)


@triton.jit
def rotary_kernel(x, cos, sin, out, HALF: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, HALF)
    a, b = tl.load(x + 2 * row * HALF + at), tl.load(x + 2 * row * HALF + HALF + at)
    c, s = tl.load(cos + row * HALF + at), tl.load(sin + row * HALF + at)
    tl.store(out + 2 * row * HALF + at, a * c - b * s)
    tl.store(out + 2 * row * HALF + HALF + at, b * c + a * s)


@triton.jit
def swiglu_kernel(a, b, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    gate = tl.load(a + at, mask=at < n)
    tl.store(out + at, gate * tl.sigmoid(gate) * tl.load(b + at, mask=at < n), mask=at < n)


@triton.jit
def dropout_kernel(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    keeps = tl.rand(7, at) > 0.0  # all but zeros, so that a reference exists
    tl.store(out + at, tl.where(keeps, tl.load(x + at, mask=at < n), 0.0), mask=at < n)


@triton.jit
def adam_kernel(x, grad, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value, g = tl.load(x + at, mask=at < n), tl.load(grad + at, mask=at < n)
    tl.store(out + at, value - 0.1 * g / (tl.sqrt(g * g) + 1e-8), mask=at < n)


@triton.jit
def grouped_matmul_kernel(x, expert, weights, out, N, K, BN: tl.constexpr, BK: tl.constexpr):
    i, j, k = tl.program_id(0) * 16 + tl.arange(0, 16), tl.program_id(1) * BN + tl.arange(0, BN), tl.arange(0, BK)
    chosen = tl.load(expert + tl.program_id(0))
    total = tl.zeros((16, BN), tl.float32)
    for begin in range(0, K, BK):
        left = tl.load(x + i[:, None] * K + begin + k[None, :])
        total = tl.dot(left, tl.load(weights + chosen * K * N + (begin + k)[:, None] * N + j[None, :]), total)
    tl.store(out + i[:, None] * N + j[None, :], total)


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
    weight, bias = torch.randn(COLUMNS, device=device), torch.randn(COLUMNS, device=device)
    index = torch.randint(0, ROWS, (ROWS,), device=device)
    exact = x.double()

    def launched(kernel: Any, grid: tuple[int, ...], out: Any, *given: Any, **meta: int) -> Callable[[], Any]:
        def call() -> Any:
            kernel[grid](*given, **meta)
            return out

        return call

    def of_elements(kernel: Any, *inputs: Any) -> Callable[[], Any]:
        out = torch.empty_like(x)
        return launched(kernel, (triton.cdiv(x.numel(), 1024),), out, *inputs, out, x.numel(), BLOCK=1024)

    def of_rows(kernel: Any, out: Any, *inputs: Any, more: tuple[Any, ...] = ()) -> Callable[[], Any]:
        return launched(kernel, (ROWS,), out, *inputs, out, *more, BLOCK=1024)

    def added(kernel: Any, grid: int, out: Any, *inputs: Any) -> Callable[[], Any]:
        return lambda: launched(kernel, (grid,), out.zero_(), *inputs, BLOCK=128)()

    def sorted_rows() -> Program:
        short = x[:4, :128].contiguous()
        out = torch.empty_like(short)
        return launched(sort_kernel, (4,), out, short, out, BLOCK=128), short.double().sort(1).values

    def quantised() -> Program:
        out, scales = torch.empty(ROWS, COLUMNS, dtype=torch.int8, device=device), torch.empty(ROWS, device=device)
        call = launched(quantise_kernel, (ROWS,), out, x, out, scales, COLUMNS, BLOCK=1024)
        scale = exact.abs().amax(1, keepdim=True) / 127
        whole = (exact / scale + torch.where(exact < 0, -0.5, 0.5)).trunc()
        return lambda: call() * scales[:, None], whole * scale

    def matmul(dtype: Any) -> Callable[[], Program]:
        def made() -> Program:
            a, b = (torch.randn(256, 256, device=device).to(dtype) for _ in "ab")
            if dtype == torch.int8:
                a, b = (torch.randint(-100, 100, (256, 256), device=device).to(dtype) for _ in "ab")
            out = torch.empty(256, 256, device=device, dtype=torch.int32 if dtype == torch.int8 else torch.float32)
            call = launched(matmul_kernel, (4, 4), out, a, b, out, 256, 256, 256, 64, 64, 32)
            return call, a.double() @ b.double()

        return made

    def attention() -> Program:
        q, k, v = (torch.randn(2, 256, 64, device=device).half() for _ in "qkv")
        out = torch.empty(2, 256, 64, device=device)
        call = launched(attention_kernel, (4, 2), out, q, k, v, out, 256, 0.125, BLOCK=64, D=64)
        return call, torch.softmax(q.double() @ k.double().mT / 8, -1) @ v.double()

    def rotary() -> Program:
        wide, angle = torch.randn(ROWS, 128, device=device), torch.rand(ROWS, 64, device=device)
        cos, sin, out = angle.cos(), angle.sin(), torch.empty_like(wide)
        (a, b), c, s = wide.double().chunk(2, 1), cos.double(), sin.double()
        call = launched(rotary_kernel, (ROWS,), out, wide, cos, sin, out, HALF=64)
        return call, torch.cat([a * c - b * s, b * c + a * s], 1)

    def grouped_matmul() -> Program:
        rows, weights = torch.randn(64, 128, device=device).half(), torch.randn(4, 128, 64, device=device).half()
        expert, out = torch.tensor([2, 0, 3, 2], device=device), torch.empty(64, 64, device=device)
        call = launched(grouped_matmul_kernel, (4, 1), out, rows, expert, weights, out, 64, 128, BN=64, BK=32)
        return call, (rows.double().view(4, 16, 128) @ weights.double()[expert]).view(64, 64)

    def conv() -> Program:
        taps, out, padded = torch.randn(4, device=device), torch.empty_like(x), F.pad(exact, (3, 0))
        summed = sum(taps[tap].double() * padded[:, 3 - tap : 3 - tap + COLUMNS] for tap in range(4))
        return launched(conv_kernel, (ROWS,), out, x, taps, out, COLUMNS, TAPS=4, BLOCK=1024), summed

    def layer_norm_backward() -> Program:
        given = exact.clone().requires_grad_()
        F.layer_norm(given, n, weight.double()).backward(y.double())
        return of_rows(layer_norm_backward_kernel, empty, x, y, weight, more=(*n, 1e-5)), given.grad

    def softmax_backward() -> Program:
        soft = torch.softmax(x, 1)
        inner = (soft.double() * y.double()).sum(1, keepdim=True)
        return of_rows(softmax_backward_kernel, empty, soft, y, more=n), soft.double() * (y.double() - inner)

    n = (COLUMNS,)
    empty = torch.empty_like(x)
    of_row, whole = torch.empty(ROWS, device=device), torch.empty(ROWS, dtype=torch.int64, device=device)
    columns, counts = torch.empty(COLUMNS, device=device), torch.zeros(ROWS, dtype=torch.int32, device=device)
    many = torch.randint(0, ROWS, (4096,), device=device)
    return {
        "add": lambda: (of_elements(add_kernel, x, y), exact + y.double()),
        "silu": lambda: (of_elements(silu_kernel, x), F.silu(exact)),
        "softmax": lambda: (of_rows(softmax_kernel, empty, x, more=n), torch.softmax(exact, 1)),
        "layer_norm": lambda: (
            of_rows(layer_norm_kernel, empty, x, weight, bias, more=(*n, 1e-5)),
            F.layer_norm(exact, n, weight.double(), bias.double()),
        ),
        "cumsum": lambda: (of_rows(cumsum_kernel, empty, x, more=n), exact.cumsum(1)),
        "sort": sorted_rows,
        "quantise": quantised,
        "cross_entropy": lambda: (
            of_rows(cross_entropy_kernel, torch.empty(ROWS, device=device), x, index, more=n),
            F.cross_entropy(exact, index, reduction="none"),
        ),
        "gather": lambda: (of_rows(gather_kernel, empty, x, index, more=n), exact[index]),
        "matmul_f16": matmul(torch.float16),
        "matmul_bf16": matmul(torch.bfloat16),
        "matmul_f32": matmul(torch.float32),
        "matmul_int8": matmul(torch.int8),
        "matmul_fp8": matmul(torch.float8_e5m2),
        "grouped_matmul": grouped_matmul,
        "attention": attention,
        "rms_norm": lambda: (
            of_rows(rms_norm_kernel, empty, x, weight, more=(*n, 1e-5)),
            exact * (exact.square().mean(1, keepdim=True) + 1e-5).rsqrt() * weight.double(),
        ),
        "layer_norm_backward": layer_norm_backward,
        "softmax_backward": softmax_backward,
        "sum": lambda: (of_rows(sum_kernel, of_row, x, more=n), exact.sum(1)),
        "argmax": lambda: (of_rows(argmax_kernel, whole, x, more=n), exact.argmax(1)),
        "column_sum": lambda: (added(column_sum_kernel, 8, columns, x, columns, ROWS, COLUMNS), exact.sum(0)),
        "histogram": lambda: (
            added(histogram_kernel, 32, counts, many, counts, 4096),
            torch.bincount(many, minlength=ROWS),
        ),
        "rotary": rotary,
        "swiglu": lambda: (of_elements(swiglu_kernel, x, y), F.silu(exact) * y.double()),
        "dropout": lambda: (of_elements(dropout_kernel, x), exact),
        "adam": lambda: (of_elements(adam_kernel, x, y), exact - 0.1 * y.double() / (y.double().abs() + 1e-8)),
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
