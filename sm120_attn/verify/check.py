"""Compares `attention` with float64 over a matrix of cases, and shows that the comparison would see mistakes.

    python -m sm120_attn check [--fp8] [--kernel tma] [--only TEXT] [--random 1000] [--json FILE]

A row passes if its error is at most twice that of a careful 16-bit implementation (`reference`, low_precision) plus
one rounding of the output, if its LSE is off by at most 1e-3 (of values up to 1e3; above, by 2e-6 of it), if it is
zero where no key is visible, and if no NaN has come in. Cases are in cases.py; here they become tensors and verdicts.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import itertools
import json
import math
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from ..compile import cache as compiled
from ..config import ARCHS, FP8, FP8_MMAS, KERNELS, Config
from . import cases, mutants
from .cases import Case
from .requirements import require_folder, require_gpu, require_hypothesis

ERROR_RATIO = 2.0
LSE_ABSOLUTE, LSE_RELATIVE = 1e-3, 2e-6  # float32 has 1e-7; the sum and exp2 take a few roundings
ROUNDING = {"bf16": 2**-8, "fp16": 2**-11, "fp32": 2**-24}
# FP8 against the replay of its rounding: of a row's largest value. A probability that float32 rounds to the other side
# than float64 moves its row by more, so that a few rows may be off.
FP8_TIGHT, FP8_ROWS_OFF = 1e-3, 0.005
RANDOM_CLASSES = 60
JOBS = min(os.cpu_count() or 1, 16)  # that compile: one per processor, of about 1 GB
NOT_TRIED = "not tried: this GPU has too little memory for it"


@dataclass(frozen=True, slots=True)
class Verdict:
    """Of one case. ratio: the worst row's error over that of the yardstick plus one rounding (fails above 2).

    why: what is wrong, "" if nothing.
    """

    name: str
    kernel: str
    error: float
    ratio: float
    lse_error: float
    why: str

    @property
    def passed(self) -> bool:
        return not self.why


# --- a case as tensors -------------------------------------------------------------------------------------------


def tensors(case: Case, seed: int = 0, device: str = "cuda") -> tuple[dict[str, Any], dict[str, Any]]:
    """q, k, v of a case, and the keyword arguments of `attention`."""
    import torch

    generator = torch.Generator(device=device).manual_seed(seed)
    dtype = torch_dtype(case.dtype)
    if case.lengths:
        totals = [sum(lengths) for lengths in zip(*case.lengths, strict=True)]
        sizes = {"q": (totals[0], case.heads), "k": (totals[1], case.heads_kv), "v": (totals[1], case.heads_kv)}
    else:
        sizes = {
            "q": (case.batch, case.rows, case.heads),
            "k": (case.batch, case.keys, case.heads_kv),
            "v": (case.batch, case.keys, case.heads_kv),
        }
    made = {}
    for name, size in sizes.items():
        values = fill(case, name, torch.randn(*size, case.head_dim, generator=generator, device=device))
        if case.dtype in FP8:
            values = values.clamp(-400, 400)
        made[name] = lay_out(case.layout, values.to(dtype))
    if case.layout == "qkv" and sizes["q"] == sizes["k"]:
        together = torch.stack(list(made.values()), dim=-3)  # [..., 3, heads, head_dim], as one linear layer gives it
        made = {name: together[..., i, :, :] for i, name in enumerate(made)}
    options: dict[str, Any] = {
        "causal": case.causal, "window": case.window, "align": case.align, "softcap": case.softcap,
        "scale": case.scale, "return_lse": case.lse,
    }  # fmt: skip
    if case.dtype in FP8:
        options |= {"out_dtype": torch_dtype(case.out_dtype), **descales(case, generator, device)}
    if case.lengths:
        for i, name in enumerate(("q", "k")):
            starts = list(itertools.accumulate((lengths[i] for lengths in case.lengths), initial=0))
            options[f"cu_seqlens_{name}"] = torch.tensor(starts, dtype=torch.int32, device=device)
            options[f"max_seqlen_{name}"] = case.longest[i]
    return made, options


def torch_dtype(name: str) -> Any:
    import torch

    return {
        "bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32, "e4m3": torch.float8_e4m3fn,
        "e5m2": torch.float8_e5m2,
    }[name]  # fmt: skip


def descales(case: Case, generator: Any, device: str) -> dict[str, Any]:
    """Scale factors from 0.5 to 1.5, no powers of two among them."""
    import torch

    sizes: dict[str, tuple[int, ...]] = {}
    if case.descale:
        batch = len(case.lengths) or case.batch
        heads = {"q": case.heads, "k": case.heads_kv, "v": case.heads_kv}
        sizes = {name: (batch, heads[name]) if case.descale == "head" else () for name in heads}
    return {
        f"{name}_descale": 0.5 + torch.rand(size, generator=generator, device=device) for name, size in sizes.items()
    }


def fill(case: Case, name: str, values: Any) -> Any:
    """The kinds of values that break softmax implementations."""
    if case.values == "equal" and name == "k":
        return values * 0 + 0.5  # all scores of a row are equal
    if case.values == "large" and name == "q":
        return values * 250  # scores to about +-1e4 before the scale of 1/sqrt(D)
    if case.values == "outlier" and name == "k":
        values[..., ::37, :, :] *= 60
        return values
    if case.values == "peaked" and name in "qk":
        return values * (3 if name == "q" else 1)  # a few keys have nearly all of the weight
    if case.values == "first tile hidden" and name == "q":
        return values.abs() * 8  # with k below: early keys far below late ones, and the other way round
    if case.values == "first tile hidden" and name == "k":
        values = values.abs()
        values[..., : values.shape[-3] // 2, :, :] *= -1
        return values
    return values * 1e-3 if case.values == "small" else values


def lay_out(layout: str, values: Any) -> Any:
    """The same values in other memory. What is between them is NaN, and must not be read into the result."""
    import torch

    def room(*size: int) -> Any:
        return torch.full(size, math.nan, device=values.device).to(values.dtype)

    *outer, rows, heads, dim = values.shape if values.dim() == 4 else (1, *values.shape)
    if layout == "bhsd" and values.dim() == 4:
        return values.transpose(1, 2).contiguous().transpose(1, 2)
    if layout in ("poisoned", "narrow"):
        wide = dim + (8 if layout == "narrow" else 0)
        held = room(outer[0], rows + 150, heads, wide)
        place = held[:, :rows, :, :dim]
    elif layout == "misaligned":  # rows start at 2 bytes off the 16-byte grid, and are 2 bytes too long
        held = room(outer[0] * rows * heads * (dim + 1) + 1)
        place = held[1:].view(outer[0], rows, heads, dim + 1)[..., :dim]
    elif layout == "expanded" and heads > 1:  # one head, seen as several by a stride of 0
        return values[..., :1, :].expand(*values.shape)
    else:
        return values.contiguous()
    place.copy_(values.view(outer[0], rows, heads, dim))
    return place if values.dim() == 4 else place[0]


# --- running and judging -----------------------------------------------------------------------------------------


def run(case: Case, made: dict[str, Any], options: dict[str, Any]) -> tuple[Any, Any]:
    """O and LSE (None if not asked for) of the kernel that the case is about."""
    from ..api import attention
    from ..launch import prepare as launch

    if case.kernel is None and case.fp8_mma == "native":
        result = attention(**made, **options)
        return result if case.lse else (result, None)
    config = case.config(*launch.device_facts(made["q"].get_device()))
    call = call_of(made, options, config)
    return launch.forward(
        made["q"], made["k"], made["v"], options.get("cu_seqlens_q"), options.get("cu_seqlens_k"), call,
        tuple(options.get(name) for name in launch.DESCALES),
    )  # fmt: skip


def call_of(made: dict[str, Any], options: dict[str, Any], config: Config | None) -> Any:
    """What `attention` makes of its arguments, for a kernel of our choice."""
    from ..launch import prepare as launch
    from ..mask_bounds import bounds

    q, k = made["q"], made["k"]
    return launch.Call(
        visible=bounds(options["causal"], options["window"]),
        align=options["align"],
        scale=1 / math.sqrt(q.shape[-1]) if options["scale"] is None else options["scale"],
        softcap=options["softcap"],
        lse=options["return_lse"],
        max_q=options.get("max_seqlen_q", q.shape[1]),
        max_k=options.get("max_seqlen_k", k.shape[1]),
        config=config,
        out=options.get("out_dtype"),
    )


def judge(case: Case, made: dict[str, Any], options: dict[str, Any], o: Any, lse: Any) -> Verdict:
    """Compares a result with float64 on the same inputs."""
    import torch

    from .reference import attention_reference

    fp8 = case.dtype in FP8
    wanted, wanted_lse = attention_reference(**made, **options)
    yard, _ = attention_reference(**made, **options, low_precision=True, config=_replayed(case, o) if fp8 else None)
    kernel = case.kernel or "planned"
    dtype = options["out_dtype"] if fp8 else made["q"].dtype
    if o.shape != made["q"].shape or o.dtype != dtype or not o.is_contiguous():
        return Verdict(case.name, kernel, math.inf, math.inf, math.inf, f"output is {list(o.shape)} of {o.dtype}")
    if o.numel() == 0:
        return Verdict(case.name, kernel, 0.0, 0.0, 0.0, "")
    error = (o.double() - wanted).abs().amax(-1)
    rounding = ROUNDING[case.out_dtype or case.dtype] + (FP8_TIGHT if fp8 else 0)
    allowed = (yard - wanted).abs().amax(-1) + rounding * wanted.abs().amax(-1) / ERROR_RATIO
    ratio = torch.where(error == 0, 0.0, error / allowed).max().item()
    why = []
    if not torch.isfinite(o).all():
        why.append(f"{(~torch.isfinite(o)).sum().item()} values are NaN or infinite")
    if not ratio <= ERROR_RATIO:
        why.append(f"a row's error is {ratio:.2f} x the yardstick's")
    if fp8:
        why += _judge_replay(o.double(), yard, wanted, rounding)
    # [batch, heads, rows] or [heads, rows] to the order of the output's rows.
    blind = torch.isneginf(wanted_lse).transpose(-1, -2)
    if (o[blind] != 0).any():
        why.append("a row without a visible key is not zero")
    lse_error = 0.0
    if lse is not None:
        lse_error, lse_why = _judge_lse(lse, wanted_lse)
        why += lse_why
    return Verdict(case.name, kernel, error.max().item(), ratio, lse_error, "; ".join(why))


def _replayed(case: Case, o: Any) -> Config | None:
    """The kernel that made a result; None without a GPU."""
    from ..launch import prepare as launch

    return case.config(*launch.device_facts(o.get_device())) if o.is_cuda else None


def _judge_replay(o: Any, replay: Any, wanted: Any, tight: float) -> list[str]:
    """FP8 against the same sums with the same rounded probabilities."""
    off = ~((o - replay).abs().amax(-1) <= tight * wanted.abs().amax(-1))
    share = off.double().mean().item()
    if share <= max(FP8_ROWS_OFF, 1 / off.numel()):
        return []
    return [f"{100 * share:.1f} % of the rows are not what the replay of FP8's rounding gives"]


def _judge_lse(lse: Any, wanted: Any) -> tuple[float, list[str]]:
    import torch

    if lse.shape != wanted.shape or lse.dtype != torch.float32:
        return math.inf, [f"LSE is {list(lse.shape)} of {lse.dtype}"]
    blind = torch.isneginf(wanted)
    why = [] if torch.equal(blind, torch.isneginf(lse)) else ["LSE is -inf in the wrong rows"]
    off = torch.where(blind, 0.0, (lse.double() - wanted).abs())
    allowed = torch.maximum(torch.full_like(off, LSE_ABSOLUTE), LSE_RELATIVE * torch.where(blind, 0.0, wanted.abs()))
    if not (off <= allowed).all():
        why.append(f"LSE is off by {off.max().item():.2e}")
    return off.max().item(), why


def check(case: Case, seed: int = 0) -> Verdict:
    """One case, start to end. An error of ours is a failure, with its message."""
    if os.environ.get("SM120_ATTN_TRACE"):  # the last line names the case that hangs
        print(case.name, file=sys.stderr, flush=True)
    try:
        made, options = tensors(case, seed)
        return judge(case, made, options, *run(case, made, options))
    except Exception as error:  # the DSL's own errors have no common base with others
        if "CUDA" in str(error) and "out of memory" not in str(error):
            raise  # the context is lost: nothing that follows would mean anything
        return Verdict(
            case.name, case.kernel or "planned", math.inf, math.inf, math.inf, f"{type(error).__name__}: {error}"
        )


# --- mistakes that must be seen ----------------------------------------------------------------------------------


MUTATED = Case("mutation", 200, 330, heads=4, heads_kv=2, head_dim=128, mask="causal", layout="bshd")
# For compiling ahead: the kernels of `mutations` and `promises`.
MUTATIONS_AND_PROMISES = (
    MUTATED,
    replace(MUTATED, mask="none"),
    replace(MUTATED, mask="none", window=(-1, 1)),
    replace(MUTATED, align="top-left"),
    *(Case("promises", 130, 190, mask=mask) for mask in ("none", "causal")),
    *(Case("promises", rows, rows + 50, mask="causal") for rows in (100, 600)),
    *(Case("far batches", 70, 90, heads=2, heads_kv=2, kernel=kernel) for kernel in KERNELS),
    *(Case("far rows", 40, 40, batch=1, heads=2, heads_kv=2, kernel=kernel) for kernel in KERNELS),
    *(Case("many elements", 16, 16, 70_000, 16, 16, lse=False, kernel=kernel) for kernel in KERNELS),
)
MUTATED_FP8 = replace(MUTATED, dtype="e4m3", out_dtype="fp32")
# Of which all paths of the MMA must give the same bits.
SAME_BITS = tuple(
    Case(
        f"bits {dtype} D{head_dim}, {tiles}", 300, 400, dtype=dtype, head_dim=head_dim, out_dtype="fp32", mask="causal",
        kernel=tiles,
    )
    for dtype, head_dim, tiles in (("e4m3", 128, "tiles 0"), ("e4m3", 64, "tiles 1"), ("e5m2", 96, "tiles 1"))
)  # fmt: skip


def mutations(case: Case = MUTATED) -> dict[str, Callable[[], Verdict]]:
    """Results that are wrong the way a broken kernel is, judged as if they were right ones."""
    import torch

    def judged(change: Callable[[dict[str, Any], dict[str, Any]], Any], of: Case = case) -> Callable[[], Verdict]:
        def verdict() -> Verdict:
            made, options = tensors(of)
            o, lse = change(made, options)
            return judge(of, made, options, o, lse)

        return verdict

    def kernel(made: dict[str, Any], options: dict[str, Any], **changes: Any) -> Any:
        inputs = {name: changes.get(name, tensor) for name, tensor in made.items()}
        return run(case, inputs, options | {n: v for n, v in changes.items() if n not in made})

    def rows(tensor: Any, which: list[int], axis: int = 1) -> Any:
        """torch takes FP8 values apart as bytes only."""
        data = tensor.view(torch.uint8) if case.dtype in FP8 else tensor
        return data.index_select(axis, torch.tensor(which, device=data.device) % data.shape[axis]).view(tensor.dtype)

    def zeros(made: dict[str, Any], options: dict[str, Any]) -> Any:
        o, lse = kernel(made, options)
        return torch.zeros_like(o), lse

    def dropped_tile(made: dict[str, Any], options: dict[str, Any]) -> Any:
        kept = [i for i in range(case.keys) if not 64 <= i < 128]
        return kernel(made, options, **{name: rows(made[name], kept) for name in ("k", "v")})

    def shifted(made: dict[str, Any], options: dict[str, Any]) -> Any:
        one_on = [i - 1 for i in range(case.keys)]
        return kernel(made, options, k=rows(made["k"], one_on), v=rows(made["v"], one_on))

    def swapped_heads(made: dict[str, Any], options: dict[str, Any]) -> Any:
        turned = list(reversed(range(case.heads_kv)))
        return kernel(made, options, k=rows(made["k"], turned, 2), v=rows(made["v"], turned, 2))

    def permuted(made: dict[str, Any], options: dict[str, Any]) -> Any:
        swapped = [{16: 17, 17: 16}.get(i, i) for i in range(case.keys)]
        return kernel(made, options, v=rows(made["v"], swapped))

    def wrong_lse(made: dict[str, Any], options: dict[str, Any]) -> Any:
        o, lse = kernel(made, options)
        return o, lse * math.log2(math.e)

    def one_nan(made: dict[str, Any], options: dict[str, Any]) -> Any:
        o, lse = kernel(made, options)
        o[1, 77, 3, 5] = math.nan
        return o, lse

    return {
        "all zeros": judged(zeros),
        "a tile of keys dropped": judged(dropped_tile, replace(case, mask="none")),
        "key heads swapped": judged(swapped_heads),
        "two rows of V swapped": judged(permuted),
        "mask one key too wide": judged(lambda m, o: kernel(m, o, causal=False, window=(-1, 1))),
        "mask one key too narrow": judged(shifted),
        "the other alignment": judged(lambda m, o: kernel(m, o, align="top-left")),
        "scale 2 % off": judged(lambda m, o: kernel(m, o, scale=1.02 / math.sqrt(128))),
        "LSE in base 2": judged(wrong_lse),
        "one NaN": judged(one_nan),
    }


def broken_kernels() -> dict[str, Callable[[], Verdict]]:
    """The same with kernels that are compiled with a mistake in them."""
    from ..kernels.mma import policy_of
    from ..launch import prepare as launch

    case = replace(MUTATED_FP8, kernel=cases.FP8_TILES[0])
    config = case.config(*launch.device_facts(0))

    def verdict(mistake: str) -> Verdict:
        made, options = tensors(case)
        with mutants.in_place_of(config, mistake):
            return judge(case, made, options, *run(case, made, options))

    return {f"a kernel: {name}": partial(verdict, name) for name in mutants.mistakes_of(policy_of(config))}


# --- random cases ------------------------------------------------------------------------------------------------


def random_kinds(fp8: bool) -> tuple[Case, ...]:
    return cases.fp8_classes(RANDOM_CLASSES) if fp8 else cases.classes(RANDOM_CLASSES)


def check_random(count: int, number: int = 8, fp8: bool = False) -> list[Verdict]:
    """`count` cases drawn by hypothesis from seed `number`, over a fixed set of kernels. Failing ones are small
    already, and not shrunk."""
    from hypothesis import HealthCheck, Phase, given, seed, settings
    from hypothesis import strategies as st

    verdicts: list[Verdict] = []
    kinds = random_kinds(fp8)
    lengths = st.one_of(
        st.integers(1, 40), st.integers(1, 400), st.sampled_from((63, 64, 65, 127, 128, 129, 255, 256, 257))
    )

    @seed(number)
    @settings(
        max_examples=count, deadline=None, database=None, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(
        kind=st.sampled_from(kinds),
        lengths=st.lists(st.tuples(lengths, lengths), min_size=1, max_size=5),
        heads=st.sampled_from(((1, 1), (2, 2), (4, 2), (3, 1), (8, 2))),
        window=st.tuples(st.integers(0, 300), st.integers(0, 300)),
        layout=st.sampled_from(cases.LAYOUTS),
        values=st.sampled_from(cases.VALUES[:3]),
        data_seed=st.integers(0, 2**30),
    )
    def draw(kind: Case, lengths: Any, heads: Any, window: Any, layout: str, values: str, data_seed: int) -> None:
        case = cases.drawn(kind, tuple(lengths), heads, window, layout, values)
        verdicts.append(_said(check(case, data_seed)))

    draw()
    return verdicts


# --- other promises ----------------------------------------------------------------------------------------------


PROMISED = Case("promise")


def promises(kind: Case = PROMISED) -> dict[str, Callable[[], str]]:
    """What a single call cannot show. Each returns what is wrong, "" if nothing. kind: has the dtypes."""
    fp8 = kind.dtype in FP8
    far = {"batch stride beyond int32": _far_batches, "rows beyond int32": _far_rows}
    if not fp8:  # torch has no random FP8 values, and these are about the output's address
        far["more elements than int32"] = _many_elements
    simple = {
        "CUDA graph replay": _graph, "another stream": _stream, "the same bits twice": _same_bits,
        "eight threads": _threads,
    }  # fmt: skip
    return {name: partial(promise, kind) for name, promise in simple.items()} | {
        f"{name}, {kernel}": partial(promise, replace(kind, kernel=kernel))
        for kernel in (cases.FP8_TILES if fp8 else KERNELS)
        for name, promise in far.items()
    }


def _graph(kind: Case) -> str:
    import torch

    from ..api import attention

    case = replace(kind, rows=130, keys=190, mask="causal")
    made, options = tensors(case, 1)
    attention(**made, **options)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        o, lse = attention(**made, **options)
    for seed in (2, 3):
        fresh, _ = tensors(case, seed)
        for name, tensor in made.items():
            tensor.copy_(fresh[name])
        graph.replay()
        torch.cuda.synchronize()
        verdict = judge(case, made, options, o, lse)
        if not verdict.passed:
            return f"replay with new values: {verdict.why}"
    return ""


def _stream(kind: Case) -> str:
    import torch

    from ..api import attention

    case = replace(kind, rows=130, keys=190)
    made, options = tensors(case, 1)
    other, _ = tensors(case, 2)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        torch.cuda._sleep(50_000_000)  # clocks: whoever launches on another stream is done long before
        made["q"].copy_(other["q"])
        o, lse = attention(**made, **options)
    side.synchronize()
    return judge(case, made, options, o, lse).why


def _same_bits(kind: Case) -> str:
    import torch

    from ..api import attention

    made, options = tensors(replace(kind, rows=600, keys=900, mask="causal"), 1)
    first, again = attention(**made, **options), attention(**made, **options)
    return "" if all(torch.equal(a, b) for a, b in zip(first, again, strict=True)) else "two runs differ"


def _threads(kind: Case) -> str:
    import torch

    from ..api import attention

    case = replace(kind, rows=100, keys=150)
    inputs = [tensors(case, seed) for seed in range(8)]
    wanted = [attention(**made, **options)[0] for made, options in inputs]

    def many(number: int) -> bool:
        made, options = inputs[number]
        with torch.cuda.stream(torch.cuda.Stream()):
            results = [attention(**made, **options)[0] for _ in range(200)]
            torch.cuda.current_stream().synchronize()
        return all(torch.equal(result, wanted[number]) for result in results)

    torch.cuda.synchronize()
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        good = list(pool.map(many, range(8)))
    return "" if all(good) else f"{good.count(False)} of 8 threads got other results"


def _far(case: Case, stride: Callable[[Any], tuple[int, ...]]) -> str:
    """The same values, laid out over more than 2^31 elements."""
    import torch

    made, options = tensors(case, 1)
    wide = {}
    for name, tensor in made.items():
        steps = stride(tensor)
        held = torch.empty(
            sum((n - 1) * s for n, s in zip(tensor.shape, steps, strict=True)) + 1, dtype=tensor.dtype, device="cuda"
        )
        wide[name] = torch.as_strided(held, tensor.shape, steps)
        wide[name].copy_(tensor)
    o, lse = run(case, wide, options)
    return judge(case, made, options, o, lse).why


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
    _, options = tensors(replace(case, batch=1, rows=1, keys=1))
    o, _ = run(case, made, options)
    for batch in (0, 65_535, 65_536, 69_999):
        part = {name: tensor[batch : batch + 1] for name, tensor in made.items()}
        verdict = judge(case, part, options, o[batch : batch + 1], None)
        if not verdict.passed:
            return f"batch {batch}: {verdict.why}"
    return ""


# --- compiling ahead ---------------------------------------------------------------------------------------------


def needed(all_cases: Iterable[Case], arch: str, sms: int) -> list[Config]:
    """The kernels of these cases, each once."""
    found: dict[Config, None] = {}
    for case in all_cases:
        rows, keys = case.longest
        if rows and keys and (case.lengths or case.batch):
            found[case.config(arch, sms)] = None
    return list(found)


def compile_ahead(configs: Iterable[Config], jobs: int) -> dict[str, str]:
    """Puts kernels into the cache on disk, in processes of their own. Returns what failed, by the kernel's name."""
    failed = {}
    with concurrent.futures.ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        waiting = {pool.submit(compiled.prebuild, config): config for config in configs}
        for future in concurrent.futures.as_completed(waiting):
            try:
                future.result()
            except Exception as error:  # the DSL's own errors have no common base
                failed[f"{waiting[future].name} {waiting[future].kernel}"] = f"{type(error).__name__}: {error}"[:300]
    return failed


# --- the verb ----------------------------------------------------------------------------------------------------


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--kernel",
        choices=(*KERNELS, *cases.TILES, "all"),
        help="this kernel, or one of the tiles that plan() chooses from, instead of the planned one; all: each of them",
    )
    parser.add_argument("--fp8", action="store_true", help="FP8 inputs instead of 16-bit ones")
    parser.add_argument("--only", default="", help="cases whose name has this text, and nothing else")
    parser.add_argument("--random", type=int, default=1000, metavar="N", help="random cases (default: 1000)")
    parser.add_argument("--seed", type=int, default=8, help="of the random cases (default: 8)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write all verdicts there")
    parser.add_argument("--jobs", type=int, default=JOBS, help=f"processes that compile ahead (default: {JOBS})")
    parser.add_argument("--compile-only", metavar="ARCH:SMS", help="only compile what the cases need, without a GPU")


def main(arguments: argparse.Namespace) -> int:
    for name, least in (("random", 0), ("jobs", 1)):
        if getattr(arguments, name) < least:
            raise ValueError(f"--{name} {getattr(arguments, name)}: at least {least}")
    chosen = selected(arguments)
    if not chosen:
        known = next(cases.fp8_matrix() if arguments.fp8 else cases.matrix())
        raise ValueError(f"--only {arguments.only!r}: no case has this in its name, such as {known.name!r}")
    randomly = arguments.random and not arguments.only
    if arguments.compile_only:
        target = parse_target(arguments.compile_only)
        compiled.import_dsl()
        configs = needed([*chosen, *_others(arguments.fp8, bool(arguments.only), bool(randomly))], *target)
        failed = compile_ahead(configs, arguments.jobs)
        for name, why in failed.items():
            print(f"{name}: {why}", file=sys.stderr)
        print(f"{len(configs) - len(failed)} of {len(configs)} kernels compiled")
        return 1 if failed else 0
    require_folder(arguments.json)
    require_gpu()
    if randomly:
        require_hypothesis()
    random_count = 0 if arguments.only else arguments.random
    result = check_all(chosen, random_count, bool(arguments.only), arguments.jobs, arguments.seed, arguments.fp8)
    print(summary(result))
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=1))
    return 0 if result["passed"] else 1


def parse_target(text: str) -> tuple[str, int]:
    """ARCH:SMS, what `needed` takes."""
    arch, _, sms = text.partition(":")
    if arch not in ARCHS or not sms.isascii() or not sms.isdigit() or not int(sms):
        raise ValueError(
            f"--compile-only {text!r}: must be ARCH:SMS, with one of {', '.join(ARCHS)}, such as sm_120a:170"
        )
    return arch, int(sms)


def selected(arguments: argparse.Namespace) -> list[Case]:
    if arguments.fp8 and arguments.kernel not in (None, "all", *cases.FP8_TILES):
        raise ValueError(f"--kernel {arguments.kernel} --fp8: FP8 inputs have {', '.join(cases.FP8_TILES)} and all")
    matrix, tiles = cases.matrix, ("cp_async", *cases.TILES)
    if arguments.fp8:
        matrix, tiles = cases.fp8_matrix, cases.FP8_TILES
    kernels = (None, *tiles) if arguments.kernel == "all" else (arguments.kernel,)
    return [case for kernel in kernels for case in matrix(kernel) if arguments.only in case.name]


def check_all(
    chosen: list[Case], random_count: int, only_cases: bool, jobs: int, random_seed: int = 8, fp8: bool = False
) -> dict[str, Any]:
    """Everything, as JSON can hold it. fp8: for FP8 inputs, with what its instructions promise of each other."""
    from ..launch import prepare as launch

    start = time.perf_counter()
    compile_ahead_if_missing([*chosen, *_others(fp8, only_cases, random_count > 0)], *launch.device_facts(0), jobs)
    verdicts = [_said(check(case)) for case in chosen]
    random_verdicts = check_random(random_count, random_seed, fp8) if random_count else []
    mistakes, promised = {}, {}
    if not only_cases:
        mistakes = mutations(MUTATED_FP8) | broken_kernels() if fp8 else mutations()
        promised = promises(MUTATED_FP8) | same_bits() if fp8 else promises()
    seen = {name: _seen(name, verdict) for name, verdict in mistakes.items()}
    kept = {name: _promise(promise) for name, promise in promised.items()}
    return _result(start, verdicts, random_verdicts, seen, kept)


def _result(
    start: float,
    verdicts: list[Verdict],
    random_verdicts: list[Verdict],
    seen: dict[str, str],
    kept: dict[str, str],
) -> dict[str, Any]:
    everything = verdicts + random_verdicts
    return {
        "passed": all(v.passed for v in everything)
        and all(seen.values())
        and not any(why for why in kept.values() if why != NOT_TRIED),
        "seconds": round(time.perf_counter() - start, 1),
        "cases": len(verdicts),
        "random_cases": len(random_verdicts),
        "failures": [asdict(v) for v in everything if not v.passed],
        "worst_error_ratio": max((v.ratio for v in everything), default=0.0),
        "worst_lse_error": max((v.lse_error for v in everything), default=0.0),
        "mutations": {name: why or "NOT SEEN" for name, why in seen.items()},
        "promises": {name: why or "kept" for name, why in kept.items()},
        "verdicts": [asdict(v) for v in everything],
    }


def same_bits() -> dict[str, Callable[[], str]]:
    """Block-scaled MMA with scales of 1 against the plain one, and ldmatrix of bytes against ldmatrix and permutes."""
    return {
        f"{mma} gives the bits of {FP8_MMAS[0]}, {case.name}": partial(_equals_native, mma, case)
        for mma in FP8_MMAS[1:]
        for case in SAME_BITS
    }


def _equals_native(mma: str, case: Case) -> str:
    import torch

    made, options = tensors(case, 3)
    native, other = (run(replace(case, fp8_mma=name), made, options) for name in (FP8_MMAS[0], mma))
    return "" if all(torch.equal(a, b) for a, b in zip(native, other, strict=True)) else "the outputs differ"


def _said(verdict: Verdict) -> Verdict:
    """A failure is on the screen at once: what comes next may hang."""
    if not verdict.passed:
        print(f"FAILED {verdict.name} ({verdict.kernel}): {verdict.why}", file=sys.stderr, flush=True)
    return verdict


def _others(fp8: bool, only_cases: bool, randomly: bool) -> list[Case]:
    """Whose kernels are needed beside those of the cases."""
    kinds = random_kinds(fp8) if randomly else ()
    # As many keys as rows, or not: with either there is another kernel where the alignment matters.
    others = [*kinds, *(replace(kind, keys=192) for kind in kinds)]
    if not fp8 and not only_cases:
        others += MUTATIONS_AND_PROMISES
    if fp8 and not only_cases:
        others += [MUTATED_FP8, *(replace(case, fp8_mma=mma) for mma in FP8_MMAS for case in SAME_BITS)]
    return others


def compile_ahead_if_missing(chosen: list[Case], arch: str, sms: int, jobs: int) -> None:
    missing = [c for c in needed(chosen, arch, sms) if not compiled.is_cached(c)]
    if len(missing) > 4 and compiled.cache_folder() is not None:
        print(f"compiling {len(missing)} kernels with {jobs} processes ...", file=sys.stderr)
        compile_ahead(missing, jobs)


def _seen(name: str, verdict: Callable[[], Verdict]) -> str:
    """Why a mistake is none of the right results; "" if it passed for one, or could not be tried."""
    try:
        return verdict().why
    except (RuntimeError, ValueError, TypeError) as error:
        print(f"{name}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
        return ""


def _promise(promise: Callable[[], str]) -> str:
    """What is wrong, "" if nothing; NOT_TRIED where the GPU has not the memory that it takes."""
    import torch

    try:
        return promise()
    except torch.cuda.OutOfMemoryError:
        return NOT_TRIED
    except (RuntimeError, ValueError, TypeError) as error:
        return f"{type(error).__name__}: {error}"
    finally:
        torch.cuda.empty_cache()


def summary(result: dict[str, Any]) -> str:
    lines = [f"MISTAKE NOT SEEN: {name}" for name, why in result["mutations"].items() if why == "NOT SEEN"]
    lines += [f"BROKEN {name}: {why}" for name, why in result["promises"].items() if why not in ("kept", NOT_TRIED)]
    lines.append(
        f"{result['cases']} cases and {result['random_cases']} random ones, {len(result['failures'])} failed; worst "
        f"row at {result['worst_error_ratio']:.2f} x the yardstick (limit {ERROR_RATIO:g}), worst LSE off by "
        f"{result['worst_lse_error']:.1e}; {sum(w != 'NOT SEEN' for w in result['mutations'].values())} of "
        f"{len(result['mutations'])} mistakes seen; {sum(w == 'kept' for w in result['promises'].values())} of "
        f"{len(result['promises'])} promises kept; {result['seconds']} s"
    )
    return "\n".join(lines)
