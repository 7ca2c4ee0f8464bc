"""Compare `quantize` with the same arithmetic in torch, bit for bit. Part of the self-test, and of the tests.

torch computes amax / 448 and 448 / amax as divisions of float32 tensors (if the divisor were a Python number, it would
multiply by the reciprocal). The product is computed in float32, clamped and converted to FP8. NaNs may have any bits.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from ..kernels.quantize.config import IN_DTYPES, LARGEST, SMALLEST_AMAX, QuantizeConfig
from .inputs import lay_out, torch_dtype
from .judging import NOT_TRIED

VALUES = ("normal", "outlier", "zero head", "tiny", "least", "subnormal", "huge", "nan", "inf", "negative zero")
LAYOUTS = ("bshd", "bhsd", "qkv", "misaligned", "expanded", "narrow")
# Numbers of rows around the work of a CTA for bf16 and head_dim 128: a slab of 512 rows, a piece of 128 rows.
ROWS = (1, 2, 127, 128, 129, 511, 512, 513, 1000, 1024, 1025)


@dataclass(frozen=True, slots=True)
class QuantizeCase:
    """One comparison.

    lengths: rows of each packed sequence; empty if sequences are not packed. rows_k: rows of K and V, with 3 tensors.
    whole: use the kernel in one launch (True) or in passes (False); None: the planned kernel.
    l2: assume an L2 cache of this many bytes; None: the device's.
    """

    name: str
    batch: int = 2
    rows: int = 300
    heads: int = 3
    head_dim: int = 128
    dtype: str = "bf16"
    fp8: str = "e4m3"
    values: str = "normal"
    layout: str = "bshd"
    lengths: tuple[int, ...] = ()
    tensors: int = 1
    rows_k: int = 0
    heads_kv: int = 1
    whole: bool | None = None
    l2: int | None = None


def matrix() -> Iterator[QuantizeCase]:
    for rows, whole in itertools.product(ROWS, (None, False)):
        yield QuantizeCase(f"{rows} rows" + ", in passes" * (whole is False), rows=rows, whole=whole)
    for head_dim, rows in itertools.product(range(32, 257, 8), (77, 1100)):
        yield QuantizeCase(f"D{head_dim}, {rows} rows", rows=rows, head_dim=head_dim)
    for dtype, fp8, rows in itertools.product(IN_DTYPES, LARGEST, (200, 1500)):
        yield QuantizeCase(f"{dtype} to {fp8}, {rows} rows", rows=rows, dtype=dtype, fp8=fp8)
        yield QuantizeCase(f"{dtype} to {fp8}, {rows} rows, D80", rows=rows, dtype=dtype, fp8=fp8, head_dim=80)
    for values, dtype, fp8 in itertools.product(VALUES, IN_DTYPES, LARGEST):
        for rows in (60, 1300):
            yield QuantizeCase(
                f"values {values}, {dtype} to {fp8}, {rows} rows", 1, rows, dtype=dtype, fp8=fp8, values=values
            )
    for layout, rows, head_dim in itertools.product(LAYOUTS, (90, 700), (64, 128)):
        yield QuantizeCase(f"layout {layout}, {rows} rows, D{head_dim}", rows=rows, layout=layout, head_dim=head_dim)
    for lengths in ((0, 5, 0, 1, 300, 17), (700, 0, 1300), (0, 0), (128,)):
        for tensors in (1, 3):
            yield QuantizeCase(f"packed {lengths} x {tensors}", lengths=lengths, tensors=tensors)
    for rows, rows_k, heads, heads_kv in ((100, 100, 4, 4), (1, 700, 8, 2), (700, 3, 2, 1), (900, 1300, 6, 3)):
        yield QuantizeCase(f"Q, K, V {rows} {rows_k} {heads}/{heads_kv}", 2, rows, heads, tensors=3, rows_k=rows_k,
                   heads_kv=heads_kv)  # fmt: skip
    yield QuantizeCase("several groups of heads", 3, 1500, 5, l2=2**21)
    yield QuantizeCase("several groups of heads, Q, K, V", 2, 1500, 5, tensors=3, rows_k=800, heads_kv=5, l2=2**22)
    yield QuantizeCase("a group per head", 2, 1100, 4, l2=0)
    yield QuantizeCase("several pieces to a CTA", 1, 70_000, 2, head_dim=128)
    yield QuantizeCase("several pieces to a CTA, fp32, D256", 1, 20_000, 1, head_dim=256, dtype="fp32")
    yield QuantizeCase("no rows", rows=0)
    yield QuantizeCase("no sequences", batch=0)
    yield QuantizeCase("many heads", 700, 9, 16, head_dim=64)


# --- a case as tensors -------------------------------------------------------------------------------------------


def tensors(case: QuantizeCase, device: str = "cuda") -> tuple[list[Any], list[Any], list[int]]:
    """Make the tensors of a case. Return them, their cu_seqlens (None if not packed), and their longest lengths."""
    import torch

    generator = torch.Generator(device=device).manual_seed(0)
    made, starts, longest = [], [], []
    for i in range(case.tensors):
        heads = case.heads_kv if i and case.rows_k else case.heads
        rows = case.rows_k if i and case.rows_k else case.rows
        lengths = [n * (2 if i else 1) for n in case.lengths]  # K and V are twice as long
        size = (sum(lengths), heads, case.head_dim) if lengths else (case.batch, rows, heads, case.head_dim)
        x = fill(case, torch.randn(size, generator=generator, device=device)).to(torch_dtype(case.dtype))
        if case.layout == "qkv":
            x = torch.stack([x, x * 2, x * 3], dim=-3)[..., 1, :, :]
        elif x.numel():
            x = lay_out(case.layout, x)
        made.append(x)
        offsets = list(itertools.accumulate(lengths, initial=0))
        starts.append(torch.tensor(offsets, dtype=torch.int32, device=device) if lengths else None)
        longest.append(max(lengths) if lengths else rows)
    return made, starts, longest


def fill(case: QuantizeCase, x: Any) -> Any:
    """Give the last head of the last sequence the case's kind of values, for which scales are difficult to compute."""
    if not x.numel():
        return x
    head = x[-1, :, -1] if x.dim() == 4 else x[:, -1]
    if case.values == "outlier":
        head[-1, -1] = -3e4
    if case.values in ("zero head", "negative zero"):
        head.mul_(0.0 if case.values == "zero head" else -0.0)
    if case.values in ("tiny", "least", "subnormal"):
        size = {"tiny": 0.99 * SMALLEST_AMAX, "least": SMALLEST_AMAX, "subnormal": 1e-40}[case.values]
        head.mul_(size / head.abs().max())
    if case.values == "huge":
        head.mul_((6.5e4 if case.dtype == "fp16" else 3.3e38) / head.abs().max())
    if case.values in ("nan", "inf"):
        head[len(head) // 2, 7] = -math.inf if case.values == "inf" else math.nan
    return x


def quantize_reference(x: Any, dtype: Any, cu_seqlens: Any = None) -> tuple[Any, Any]:
    """Compute the expected result of `quantize` with torch."""
    import torch

    if cu_seqlens is not None:
        starts = cu_seqlens.tolist()
        parts = [quantize_reference(x[None, a:b], dtype) for a, b in itertools.pairwise(starts)]
        ys = [y[0].view(torch.uint8) for y, _ in parts]  # torch cannot concatenate FP8
        return torch.cat(ys).view(dtype), torch.cat([descale for _, descale in parts])
    values = x.float()
    amax = values.abs().amax((1, 3)) if x.shape[1] else values.new_zeros(x.shape[0], x.shape[2])
    largest = torch.full_like(amax, LARGEST["e4m3" if dtype == torch.float8_e4m3fn else "e5m2"])
    zero = amax < SMALLEST_AMAX
    descale, scale = torch.where(zero, 1.0, amax / largest), torch.where(zero, 1.0, largest / amax)
    limit = largest.max().item() if largest.numel() else 0.0
    return (values * scale[:, None, :, None]).clamp(-limit, limit).to(dtype), descale


# --- judging -----------------------------------------------------------------------------------------------------


def judge(x: Any, dtype: Any, cu_seqlens: Any, y: Any, descale: Any) -> str:
    """Judge a result; return its error, or "" if it is right."""
    import torch

    wanted, wanted_descale = quantize_reference(x, dtype, cu_seqlens)
    if y.shape != x.shape or y.dtype != dtype or any(step % 16 for step in y.stride()[:-1]):
        return (
            f"y is {list(y.shape)} of {y.dtype}: must be {list(x.shape)} of {dtype}, with rows at multiples of 16 bytes"
        )
    if descale.shape != wanted_descale.shape or descale.dtype != torch.float32:
        return f"descale is {list(descale.shape)} of {descale.dtype}: must be float32 {list(wanted_descale.shape)}"
    off = ~_same(descale.view(torch.int32), wanted_descale.view(torch.int32), descale, wanted_descale)
    if off.any():
        return f"{int(off.sum())} of {off.numel()} descales differ"
    off = ~_same(y.contiguous().view(torch.uint8), wanted.contiguous().view(torch.uint8), y.float(), wanted.float())
    if off.any():
        return f"{int(off.sum())} of {off.numel()} values differ"
    return ""


def _same(bits: Any, wanted_bits: Any, values: Any, wanted: Any) -> Any:
    return (bits == wanted_bits) | (values.isnan() & wanted.isnan())


def check(case: QuantizeCase) -> str:
    """Run and judge one case; return the error, or "" if the result is right."""
    from ..launch.prepare import device_facts
    from ..quantization.launch import QuantizeCall, run

    made, starts, longest = tensors(case)
    dtype = torch_dtype(case.fp8)
    given = () if starts[0] is None else tuple(starts[:2])
    config = None
    if case.whole is not None:
        arch, _ = device_facts(0)
        config = QuantizeConfig(
            arch, case.dtype, case.fp8, case.head_dim, case.tensors, bool(given), whole=case.whole
        )  # fmt: skip
    try:
        ys, descales = run(tuple(made), given, QuantizeCall(dtype, tuple(longest), config, case.l2))
    except Exception as error:  # the DSL's exceptions have no common base class
        return f"{type(error).__name__}: {error}"
    return "; ".join(filter(None, map(judge, made, [dtype] * len(made), starts, ys, descales)))


def needed(cases: list[QuantizeCase], arch: str) -> list[QuantizeConfig]:
    """List the kernels of these cases without duplicates."""
    found: dict[QuantizeConfig, None] = {}
    for case in cases:
        for whole in (True, False):
            found[
                QuantizeConfig(arch, case.dtype, case.fp8, case.head_dim, case.tensors, bool(case.lengths), whole=whole)
            ] = None
    return list(found)


# --- promises ----------------------------------------------------------------------------------------------------


def promises() -> dict[str, Callable[[], str]]:
    """Map promises (properties that one call cannot show) to functions. Each returns an error, or "" if it is kept."""
    return {
        "graph replay with new values": _graph,
        "another stream": _stream,
        "the same bits in 50 runs": _again,
        "strides beyond int32": _far,
    }


def _graph() -> str:
    import torch

    from ..quantization.api import quantize_qkv

    xs = [torch.randn(2, rows, 4, 128, device="cuda").bfloat16() for rows in (700, 900, 900)]
    quantize_qkv(*xs)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        ys, descales = quantize_qkv(*xs)
    for factor in (3.0, 0.5):
        for x in xs:
            x.mul_(factor).roll(1, 1)
        graph.replay()
        torch.cuda.synchronize()
        wrong = [judge(x, torch.float8_e4m3fn, None, y, d) for x, y, d in zip(xs, ys, descales, strict=True)]
        if any(wrong):
            return "; ".join(filter(None, wrong))
    return ""


def _stream() -> str:
    import torch

    from ..quantization.api import quantize

    x = torch.randn(2, 900, 4, 128, device="cuda").bfloat16()
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        torch.cuda._sleep(50_000_000)  # clocks; a launch on the wrong stream would end long before
        x.mul_(2)
        y, descale = quantize(x)
    side.synchronize()
    return judge(x, torch.float8_e4m3fn, None, y, descale)


def _again() -> str:
    """Run 50 times. The launches overlap: a value that is read too early would differ in some runs."""
    import torch

    from ..quantization.api import quantize

    x = torch.randn(4, 4096, 16, 128, device="cuda").bfloat16()
    first = quantize(x)
    wrong = judge(x, torch.float8_e4m3fn, None, *first)
    for _ in range(50):
        again = quantize(x.clone())
        if not all(torch.equal(a.view(torch.uint8), b.view(torch.uint8)) for a, b in zip(first, again, strict=True)):
            return "two runs differ"
    return wrong


def _far() -> str:
    import torch

    from ..quantization.api import quantize

    held = torch.empty(2**31 + 2**20, dtype=torch.bfloat16, device="cuda")
    x = torch.as_strided(held, (2, 600, 2, 128), (2**31, 512, 128, 1))
    x.copy_(torch.randn(x.shape, device="cuda"))
    return judge(x, torch.float8_e4m3fn, None, *quantize(x))


def run(only: tuple[str, ...] | None = None, jobs: int = 1) -> dict[str, Any]:
    """Run all cases, or those whose name contains one of `only`; return the JSON document."""
    import torch

    from ..launch.prepare import device_facts
    from .compile_ahead import compile_missing

    cases = [case for case in matrix() if only is None or any(text in case.name for text in only)]
    compile_missing(needed(cases, device_facts(0)[0]), jobs)
    failures = {case.name: wrong for case in cases if (wrong := check(case))}
    kept = {}
    for name, promise in promises().items():
        try:
            kept[name] = promise() or "kept"
        except torch.cuda.OutOfMemoryError:
            kept[name] = NOT_TRIED
    return {
        "passed": not failures and all(said in ("kept", NOT_TRIED) for said in kept.values()),
        "cases": len(cases),
        "failures": failures,
        "promises": kept,
    }


def summary(result: dict[str, Any]) -> str:
    lines = [f"FAILED {name}: {wrong}" for name, wrong in result["failures"].items()]
    lines += [f"BROKEN {name}: {said}" for name, said in result["promises"].items() if said != "kept"]
    kept = sum(said == "kept" for said in result["promises"].values())
    lines.append(
        f"{result['cases']} cases of quantisation, {len(result['failures'])} failed; {kept} of "
        f"{len(result['promises'])} promises kept"
    )
    return "\n".join(lines)
