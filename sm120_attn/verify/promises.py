"""Test promises, properties that one call cannot show: CUDA graphs, streams, threads, equal bits, large strides."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from ..config import FP8, FP8_MMAS, KERNELS
from . import cases, inputs, judging
from .cases import Case

# Cases for which all values of Config.fp8_mma must give the same bits.
SAME_BITS = tuple(
    Case(
        f"bits {dtype} D{head_dim}, {tiles}", 300, 400, dtype=dtype, head_dim=head_dim, out_dtype="fp32", mask="causal",
        kernel=tiles,
    )
    for dtype, head_dim, tiles in (("e4m3", 128, "tiles 0"), ("e4m3", 64, "tiles 1"), ("e5m2", 96, "tiles 1"))
)  # fmt: skip

PROMISED = Case("promise")


def promises(kind: Case = PROMISED) -> dict[str, Callable[[], str]]:
    """Map promises to functions. Each returns an error, or "" if the promise holds. kind: a case with the dtypes."""
    fp8 = kind.dtype in FP8
    far = {"batch stride beyond int32": _far_batches, "rows beyond int32": _far_rows}
    if not fp8:  # torch cannot draw random FP8 values; addresses of the output are tested without FP8
        far["more elements than int32"] = _many_elements
    simple: dict[str, Callable[[Case], str]] = {
        "CUDA graph replay": _graph, "another stream": _stream, "the same bits twice": _same_bits,
        "eight threads": _threads,
    }  # fmt: skip
    found: dict[str, Callable[[], str]] = {name: partial(promise, kind) for name, promise in simple.items()}
    for kernel in cases.FP8_TILES if fp8 else KERNELS:
        for name, promise in far.items():
            found[f"{name}, {kernel}"] = partial(promise, replace(kind, kernel=kernel))
    return found


def _graph(kind: Case) -> str:
    import torch

    from ..api import attention

    case = replace(kind, rows=130, keys=190, mask="causal")
    made, options = inputs.tensors(case, 1)
    attention(**made, **options)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        o, lse = attention(**made, **options)
    for seed in (2, 3):
        fresh, _ = inputs.tensors(case, seed)
        for name, tensor in made.items():
            tensor.copy_(fresh[name])
        graph.replay()
        torch.cuda.synchronize()
        verdict = judging.judge(case, made, options, o, lse)
        if not verdict.passed:
            return f"replay with new values: {verdict.why}"
    return ""


def _stream(kind: Case) -> str:
    import torch

    from ..api import attention

    case = replace(kind, rows=130, keys=190)
    made, options = inputs.tensors(case, 1)
    other, _ = inputs.tensors(case, 2)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        torch.cuda._sleep(50_000_000)  # clocks; a launch on the wrong stream would end long before
        made["q"].copy_(other["q"])
        o, lse = attention(**made, **options)
    side.synchronize()
    return judging.judge(case, made, options, o, lse).why


def _same_bits(kind: Case) -> str:
    import torch

    from ..api import attention

    made, options = inputs.tensors(replace(kind, rows=600, keys=900, mask="causal"), 1)
    first, again = attention(**made, **options), attention(**made, **options)
    return "" if all(torch.equal(a, b) for a, b in zip(first, again, strict=True)) else "two runs differ"


def _threads(kind: Case) -> str:
    import torch

    from ..api import attention

    case = replace(kind, rows=100, keys=150)
    given = [inputs.tensors(case, seed) for seed in range(8)]
    wanted = [attention(**made, **options)[0] for made, options in given]

    def many(number: int) -> bool:
        made, options = given[number]
        with torch.cuda.stream(torch.cuda.Stream()):
            results = [attention(**made, **options)[0] for _ in range(200)]
            torch.cuda.current_stream().synchronize()
        return all(torch.equal(result, wanted[number]) for result in results)

    torch.cuda.synchronize()
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        good = list(pool.map(many, range(8)))
    return "" if all(good) else f"{good.count(False)} of 8 threads got other results"


def _far(case: Case, stride: Callable[[Any], tuple[int, ...]]) -> str:
    """Run a case whose strides spread values over more than 2^31 elements. stride: makes the strides of a tensor."""
    import torch

    made, options = inputs.tensors(case, 1)
    wide = {}
    for name, tensor in made.items():
        steps = stride(tensor)
        held = torch.empty(
            sum((n - 1) * s for n, s in zip(tensor.shape, steps, strict=True)) + 1, dtype=tensor.dtype, device="cuda"
        )
        wide[name] = torch.as_strided(held, tensor.shape, steps)
        wide[name].copy_(tensor)
    o, lse = judging.run(case, wide, options)
    return judging.judge(case, made, options, o, lse).why


def _far_batches(kind: Case) -> str:
    case = replace(kind, rows=70, keys=90, heads=2, heads_kv=2)
    return _far(case, lambda t: (2**31 + 64, *t.stride()[1:]))


def _far_rows(kind: Case) -> str:
    case = replace(kind, rows=40, keys=40, batch=1, heads=2, heads_kv=2)
    return _far(case, lambda t: (t.stride(0), 2**26, *t.stride()[2:]))


def _many_elements(kind: Case) -> str:
    import torch

    case = replace(kind, rows=16, keys=16, batch=70_000, heads=16, heads_kv=16, lse=False)
    shape = (case.batch, case.rows, case.heads, case.head_dim)  # 2.3e9 elements
    q, k, v = (torch.empty(shape, dtype=torch.bfloat16, device="cuda").normal_() for _ in range(3))
    made = {"q": q, "k": k, "v": v}
    _, options = inputs.tensors(replace(case, batch=1, rows=1, keys=1))
    o, _ = judging.run(case, made, options)
    for batch in (0, 65_535, 65_536, 69_999):
        part = {name: tensor[batch : batch + 1] for name, tensor in made.items()}
        verdict = judging.judge(case, part, options, o[batch : batch + 1], None)
        if not verdict.passed:
            return f"batch {batch}: {verdict.why}"
    return ""


def same_bits() -> dict[str, Callable[[], str]]:
    """Map names to functions. Each compares a plain or portable FP8 kernel with the native one, bit by bit."""
    return {
        f"{mma} gives the bits of {FP8_MMAS[0]}, {case.name}": partial(_equals_native, mma, case)
        for mma in FP8_MMAS[1:]
        for case in SAME_BITS
    }


def _equals_native(mma: str, case: Case) -> str:
    import torch

    made, options = inputs.tensors(case, 3)
    native, other = (judging.run(replace(case, fp8_mma=name), made, options) for name in (FP8_MMAS[0], mma))
    return "" if all(torch.equal(a, b) for a, b in zip(native, other, strict=True)) else "the outputs differ"
