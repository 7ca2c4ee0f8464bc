"""Triton kernels with tensor descriptors, as users write them: copies, matrix products, attention. Compiled
without a GPU by `compile_tma`; launched on one in test_gpu_tma.py."""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource


@triton.jit
def copy_2d(x, y, m, n, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    source = tl.make_tensor_descriptor(x, shape=[m, n], strides=[n, 1], block_shape=[BLOCK_M, BLOCK_N])
    target = tl.make_tensor_descriptor(y, shape=[m, n], strides=[n, 1], block_shape=[BLOCK_M, BLOCK_N])
    row, column = tl.program_id(0) * BLOCK_M, tl.program_id(1) * BLOCK_N
    target.store([row, column], source.load([row, column]))


@triton.jit
def copy_3d(x, y, b, m, n, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    source = tl.make_tensor_descriptor(x, [b, m, n], [m * n, n, 1], [1, BLOCK_M, BLOCK_N])
    target = tl.make_tensor_descriptor(y, [b, m, n], [m * n, n, 1], [1, BLOCK_M, BLOCK_N])
    row, column = tl.program_id(1) * BLOCK_M, tl.program_id(2) * BLOCK_N
    target.store([tl.program_id(0), row, column], source.load([tl.program_id(0), row, column]))


@triton.jit
def matmul(a, b, c, m, n, k, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    left = tl.make_tensor_descriptor(a, shape=[m, k], strides=[k, 1], block_shape=[BLOCK_M, BLOCK_K])
    right = tl.make_tensor_descriptor(b, shape=[n, k], strides=[k, 1], block_shape=[BLOCK_N, BLOCK_K])
    out = tl.make_tensor_descriptor(c, shape=[m, n], strides=[n, 1], block_shape=[BLOCK_M, BLOCK_N])
    row, column = tl.program_id(0) * BLOCK_M, tl.program_id(1) * BLOCK_N
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for step in range(0, k, BLOCK_K):
        total = tl.dot(left.load([row, step]), right.load([column, step]).T, total)
    out.store([row, column], total.to(tl.float16))


@triton.jit
def matmul_persistent(
    a, b, c, m, n, k, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, PROGRAMS: tl.constexpr
):  # fmt: skip
    left = tl.make_tensor_descriptor(a, shape=[m, k], strides=[k, 1], block_shape=[BLOCK_M, BLOCK_K])
    right = tl.make_tensor_descriptor(b, shape=[n, k], strides=[k, 1], block_shape=[BLOCK_N, BLOCK_K])
    out = tl.make_tensor_descriptor(c, shape=[m, n], strides=[n, 1], block_shape=[BLOCK_M, BLOCK_N])
    columns = tl.cdiv(n, BLOCK_N)
    for tile in tl.range(tl.program_id(0), tl.cdiv(m, BLOCK_M) * columns, PROGRAMS, flatten=True):
        row, column = (tile // columns) * BLOCK_M, (tile % columns) * BLOCK_N
        total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for step in range(0, k, BLOCK_K):
            total = tl.dot(left.load([row, step]), right.load([column, step]).T, total)
        out.store([row, column], total.to(tl.float16))


@triton.jit
def attention(q, k, v, o, keys, scale, D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    rows = tl.num_programs(0) * BLOCK_M
    queries = tl.make_tensor_descriptor(q, shape=[rows, D], strides=[D, 1], block_shape=[BLOCK_M, D])
    out = tl.make_tensor_descriptor(o, shape=[rows, D], strides=[D, 1], block_shape=[BLOCK_M, D])
    key = tl.make_tensor_descriptor(k, shape=[keys, D], strides=[D, 1], block_shape=[BLOCK_N, D])
    value = tl.make_tensor_descriptor(v, shape=[keys, D], strides=[D, 1], block_shape=[BLOCK_N, D])
    row = tl.program_id(0) * BLOCK_M
    query = queries.load([row, 0])
    top = tl.full((BLOCK_M,), float("-inf"), tl.float32)
    norm = tl.zeros((BLOCK_M,), tl.float32)
    total = tl.zeros((BLOCK_M, D), tl.float32)
    for step in range(0, keys, BLOCK_N):
        score = tl.dot(query, key.load([step, 0]).T) * scale
        new = tl.maximum(top, tl.max(score, 1))
        weight = tl.exp2(score - new[:, None])
        shrink = tl.exp2(top - new)
        norm = norm * shrink + tl.sum(weight, 1)
        total = tl.dot(weight.to(tl.float16), value.load([step, 0]), total * shrink[:, None])
        top = new
    out.store([row, 0], (total / norm[:, None]).to(tl.float16))


@triton.jit
def copy_plain(x, y, m, n, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    columns = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    tl.store(y + rows * n + columns, tl.load(x + rows * n + columns))


_POINTERS = frozenset("abckoqvxy")
# name: kernel, constants, options, how many loads Triton 3.6 makes of it for sm_120
CASES: dict[str, tuple[Any, dict[str, int], dict[str, int]]] = {
    "copy 2d 64x64": (copy_2d, {"BLOCK_M": 64, "BLOCK_N": 64}, {}),
    "copy 2d 128x128": (copy_2d, {"BLOCK_M": 128, "BLOCK_N": 128}, {}),
    "copy 3d 64x64": (copy_3d, {"BLOCK_M": 64, "BLOCK_N": 64}, {}),
    "matmul w4 s3": (matmul, {"BLOCK_M": 128, "BLOCK_N": 64, "BLOCK_K": 64}, {"num_warps": 4, "num_stages": 3}),
    "matmul w8 s2": (matmul, {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64}, {"num_warps": 8, "num_stages": 2}),
    "matmul persistent": (
        matmul_persistent,
        {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64, "PROGRAMS": 132},
        {"num_warps": 8, "num_stages": 2},
    ),
    "attention D64": (attention, {"D": 64, "BLOCK_M": 64, "BLOCK_N": 64}, {"num_warps": 4, "num_stages": 2}),
    "attention D128": (attention, {"D": 128, "BLOCK_M": 128, "BLOCK_N": 64}, {"num_warps": 8, "num_stages": 2}),
}


def compile_tma(kernel: Any, constants: dict[str, int], options: dict[str, int] | None = None, arch: int = 120) -> Any:
    """Compile one of the kernels above with triton.compile."""
    signature = {}
    for name in kernel.arg_names:
        pointer = name in _POINTERS and not (name == "k" and "q" not in kernel.arg_names) and name != "keys"
        pointer = pointer and not (name == "b" and kernel is copy_3d)
        signature[name] = "constexpr" if name in constants else "*fp16" if pointer else "i32"
    if "scale" in signature:
        signature["scale"] = "fp32"
    attrs = {
        (i,): [["tt.divisibility", 16]] for i, n in enumerate(kernel.arg_names) if signature[n] in ("*fp16", "i32")
    }
    source = ASTSource(fn=kernel, signature=signature, constexprs=constants, attrs=attrs)
    return triton.compile(source, target=GPUTarget("cuda", arch, 32), options=options or {})


def run_on_gpu(case: tuple[Any, dict[str, int], dict[str, int]]) -> tuple[Any, ...]:
    """Launch a case on inputs of a fixed seed; returns its output. Needs torch, a GPU, and an allocator for
    descriptors (triton.set_allocator)."""
    import torch

    kernel, constants, options = case
    torch.manual_seed(0)

    def random(*shape: int) -> Any:
        return torch.randn(shape, device="cuda", dtype=torch.float16)

    launch = triton.jit(kernel.fn)
    if kernel in (copy_2d, copy_3d):
        shape = (512, 512) if kernel is copy_2d else (3, 256, 512)
        x = random(*shape)
        y = torch.zeros_like(x)
        grid = (*shape[:-2], shape[-2] // constants["BLOCK_M"], shape[-1] // constants["BLOCK_N"])
        launch[grid](x, y, *shape, **constants, **options)
        return (y,)
    if kernel is attention:
        rows, keys, width = 512, 1024, constants["D"]
        q, k, v = random(rows, width), random(keys, width), random(keys, width)
        out = torch.zeros_like(q)
        launch[(rows // constants["BLOCK_M"],)](q, k, v, out, keys, 0.125, **constants, **options)
        return (out,)
    m, n, k = 512, 512, 256
    a, b = random(m, k), random(n, k)
    c = torch.zeros((m, n), device="cuda", dtype=torch.float16)
    tiles = (m // constants["BLOCK_M"], n // constants["BLOCK_N"])
    grid = (min(constants["PROGRAMS"], tiles[0] * tiles[1]),) if "PROGRAMS" in constants else tiles
    launch[grid](a, b, c, m, n, k, **constants, **options)
    return (c,)
