"""The subcommand `bench`: time `attention` and other implementations on one GPU, in turns.

    python -m sm120_attn bench [--only published | long] [--variants] [--fp8] [--rounds 11] [--json FILE]

A sample is the time from the first to the last of several launches on an otherwise idle stream, divided by their
number. If a kernel is shorter than its launch, this is the time of the launch, as in a program. Every round times all
competitors, in an order that changes from round to round: a hotter GPU then affects all of them. Results are compared
with each other before any launch is timed.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ..config import Config
from ..planner import Plan, plan
from .requirements import require_folder, require_gpu

HEADS = 16  # heads of all published configurations
SPAN_MS = 4.0  # intended time of one sample
FEWEST, MOST = 2, 100  # limits of the number of launches in a sample
SPREAD = 2.0**-6  # allowed difference of two bf16 outputs, relative to the largest value
FP8_SPREAD = 2.0**-3  # like SPREAD, if one output was computed with Q, K, V and P in e4m3

Launch = Callable[[], Any]
Maker = Callable[[Any, Any, Any, bool], Launch]


@dataclass(frozen=True, slots=True)
class BenchProblem:
    batch: int
    length: int
    head_dim: int
    causal: bool
    heads: int = HEADS

    @property
    def flop(self) -> float:
        """Floating-point operations of the two matrix products. By convention a causal mask halves the number."""
        full = 4 * self.batch * self.heads * self.length**2 * self.head_dim
        return full / 2 if self.causal else full

    @property
    def name(self) -> str:
        return f"B{self.batch} S{self.length} D{self.head_dim} {'causal' if self.causal else 'full'}"


# The problems of benchmark_fp8_vs_bf16.py in CUTLASS pull request 3030, which has a table of results.
PUBLISHED = tuple(
    BenchProblem(1, length, head_dim, causal)
    for length in (512, 1024, 2048)
    for head_dim in (64, 128)
    for causal in (False, True)
) + tuple(BenchProblem(4, length, head_dim, False) for length in (512, 1024) for head_dim in (64, 128))
LONG = tuple(
    BenchProblem(batch, length, head_dim, causal)
    for batch, length in ((4, 4096), (1, 16384))
    for head_dim in (64, 128)
    for causal in (False, True)
)
PROBLEMS = {"published": PUBLISHED, "long": LONG}


@dataclass(frozen=True)
class TimedLaunch:
    """All samples of one problem, in milliseconds per launch, by competitor.

    left_out: competitors that were not timed, and why.
    """

    problem: BenchProblem
    samples_ms: dict[str, list[float]]
    plan: Plan
    ptxas: str | None
    left_out: dict[str, str] = field(default_factory=dict)

    def ms(self, name: str) -> float:
        return statistics.median(self.samples_ms[name])

    def tflops(self, name: str) -> float:
        return self.problem.flop / self.ms(name) * 1e-9


# --- competitors -------------------------------------------------------------------------------------------------


def ours(q: Any, k: Any, v: Any, causal: bool) -> Launch:
    """Return a launch of the public function `attention`."""
    from ..api import attention

    return lambda: attention(q, k, v, causal=causal)


def variant(kernel: str) -> Maker:
    """Return a maker of launches of `attention` with this kernel, even if another kernel is planned."""
    from . import cases

    def change(planned: Config) -> Config:
        return planned if planned.kernel == kernel else cases.other_kernel(planned, kernel)

    return chosen(change, 1 if kernel == "tma" else 2)


def chosen(change: Callable[[Config], Config], number: int) -> Maker:
    """Return a maker of launches of `attention` with a changed kernel. Each maker needs its own `number`.

    Prepared calls are looked up by their arguments. So each maker passes another scale: the usual scale plus `number`
    float64 steps, which rounds to the same float32.
    """

    def make(q: Any, k: Any, v: Any, causal: bool) -> Launch:
        from ..api import attention
        from ..launch.call import Tensors
        from ..launch.prepare import planned, prepare, prepared_calls, shape_of

        scale = 1 / math.sqrt(q.shape[-1])
        for _ in range(number):
            scale = math.nextafter(scale, 1.0)

        def call() -> Any:
            return attention(q, k, v, causal=causal, scale=scale)

        # The first call adds its key to prepared_calls. Then the call is prepared again for it, with the new kernel.
        before = set(prepared_calls)
        call()
        fresh = set(prepared_calls) - before
        if len(fresh) != 1:
            raise RuntimeError(f"number {number} was used before, and its prepared call may have another kernel")
        facts = fresh.pop()
        tensors, asked = Tensors(q, k, v), prepared_calls[facts].call
        config = change(planned(shape_of(tensors, asked)))
        prepare(facts, tensors, asked._replace(config=config))
        return call

    return make


def fp8(q: Any, k: Any, v: Any, causal: bool) -> Launch:
    """Return a launch of `attention` on tensors that are already in e4m3."""
    from ..api import attention
    from ..quantization.api import quantize_qkv

    values, descales = quantize_qkv(q, k, v)
    named = dict(zip(("q_descale", "k_descale", "v_descale"), descales, strict=True))
    return lambda: attention(*values, causal=causal, out_dtype=q.dtype, **named)


def fp8_with_quantization(q: Any, k: Any, v: Any, causal: bool) -> Launch:
    """Return a launch of `attention` from bf16 to bf16, which includes quantisation to e4m3."""
    import torch

    from ..api import attention

    return lambda: attention(q, k, v, causal=causal, quantize=torch.float8_e4m3fn)


FP8: dict[str, Maker] = {"fp8": fp8, "fp8 with quantize": fp8_with_quantization}


def torch_flash(q: Any, k: Any, v: Any, causal: bool) -> Launch:
    """Return a launch of torch's FlashAttention 2. Switches torch's other backends off for this process."""
    import torch

    torch.backends.cuda.enable_cudnn_sdp(False)
    torch.backends.cuda.enable_mem_efficient_sdp(False)
    torch.backends.cuda.enable_math_sdp(False)
    q, k, v = (t.transpose(1, 2) for t in (q, k, v))
    return lambda: torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal).transpose(1, 2)


# --- timing ------------------------------------------------------------------------------------------------------


def time_problem(problem: BenchProblem, makers: dict[str, Maker], rounds: int) -> TimedLaunch:
    """Time all competitors whose results are right. Raises RuntimeError if the first competitor's is wrong."""
    import torch

    from ..compile import cache
    from ..launch.call import Call, Tensors
    from ..launch.prepare import shape_of
    from ..mask_bounds import bounds

    torch.manual_seed(0)
    shape = (problem.batch, problem.length, problem.heads, problem.head_dim)
    q, k, v = (torch.randn(shape, dtype=torch.bfloat16, device="cuda") for _ in range(3))
    launches, left_out = right_ones(problem, makers, q, k, v)
    samples = in_turns(launches, rounds)
    call = Call(bounds(problem.causal, None), "bottom-right", 1.0, 0.0, False, problem.length, problem.length)
    planned = plan(shape_of(Tensors(q, k, v), call))
    return TimedLaunch(problem, samples, planned, cache.get(planned.config).ptxas, left_out)


def right_ones(
    problem: BenchProblem, makers: dict[str, Maker], q: Any, k: Any, v: Any
) -> tuple[dict[str, Launch], dict[str, str]]:
    """Return the launches whose results agree with torch's, and the reasons why others are left out."""
    wanted = torch_flash(q, k, v, problem.causal)().float()
    largest = max(wanted.abs().max().item(), 1.0)
    launches, left_out = {}, {}
    for name, make in makers.items():
        try:
            launch = make(q, k, v, problem.causal)
            off = (launch().float() - wanted).abs().max().item()
        except Exception as error:  # competitors may raise any exception
            left_out[name] = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
            continue
        if off <= (FP8_SPREAD if name in FP8 else SPREAD) * largest:  # false for NaN
            launches[name] = launch
        else:
            left_out[name] = f"its result is off by {off:.3g}"
    first = next(iter(makers))
    if first in left_out:
        raise RuntimeError(f"{problem.name}: {first} is not timed: {left_out[first]}")
    return launches, left_out


def in_turns(launches: dict[str, Launch], rounds: int) -> dict[str, list[float]]:
    """Time all launches in milliseconds per launch, with one sample of each per round."""
    names = list(launches)
    counts = {name: _count(launches[name]) for name in names}
    samples: dict[str, list[float]] = {name: [] for name in names}
    for number in range(rounds):
        turned = names[number % len(names) :] + names[: number % len(names)]
        for name in turned if number % 2 else turned[::-1]:
            samples[name].append(_span_ms(launches[name], counts[name]) / counts[name])
    return samples


def _count(launch: Launch) -> int:
    """Determine the number of launches in a sample, after a warm-up."""
    _span_ms(launch, FEWEST)
    return max(FEWEST, min(MOST, round(SPAN_MS / max(_span_ms(launch, FEWEST) / FEWEST, 1e-3))))


def _span_ms(launch: Launch, count: int) -> float:
    import torch

    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda.synchronize()
    start.record()
    for _ in range(count):
        launch()
    end.record()
    torch.cuda.synchronize()
    return float(start.elapsed_time(end))


def host_us(launch: Launch, calls: int = 1000, rounds: int = 9) -> float:
    """Measure the time of a call on the host, in microseconds: the median of several runs.

    The kernel must be short enough that the host never waits for it.
    """
    import torch

    found = []
    for _ in range(rounds):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(calls):
            launch()
        found.append((time.perf_counter() - start) / calls * 1e6)
    torch.cuda.synchronize()
    return statistics.median(found)


def host_costs() -> dict[str, float]:
    """Measure host times of calls whose kernel is shorter than the call."""
    import torch

    from ..api import attention

    q, k, v = (torch.randn(1, 32, 2, 64, dtype=torch.bfloat16, device="cuda") for _ in range(3))
    packed = [t[0] for t in (q, k, v)]
    starts = torch.tensor([0, 12, 32], dtype=torch.int32, device="cuda")
    lengths = {"cu_seqlens_q": starts, "cu_seqlens_k": starts, "max_seqlen_q": 20, "max_seqlen_k": 20}
    return {
        "attention": host_us(ours(q, k, v, True)),
        "attention, packed": host_us(lambda: attention(*packed, **lengths)),
        "attention, return_lse": host_us(lambda: attention(q, k, v, return_lse=True)),
        "attention, a length not seen before": host_us(_fresh_lengths(), calls=400, rounds=3),
        "torch": host_us(torch_flash(q, k, v, True)),
    }


def _fresh_lengths() -> Launch:
    """Return a launch with one more key at each call, as in text generation."""
    import itertools

    import torch

    from ..api import attention

    q = torch.randn(1, 1, 2, 64, dtype=torch.bfloat16, device="cuda")
    k = torch.randn(1, 4000, 2, 64, dtype=torch.bfloat16, device="cuda")
    lengths = itertools.count(17)

    def launch() -> Any:
        length = next(lengths)
        return attention(q, k[:, :length], k[:, :length])

    launch()
    return launch


# --- results -----------------------------------------------------------------------------------------------------


def run(problems: Iterable[BenchProblem], makers: dict[str, Maker], rounds: int, say: bool = True) -> list[TimedLaunch]:
    import torch

    found = []
    for problem in problems:
        found.append(time_problem(problem, makers, rounds))
        torch.cuda.empty_cache()
        if say:
            print(line(found[-1]), flush=True)
    return found


def header(names: Sequence[str]) -> str:
    return f"{'B':>2} {'S':>6} {'D':>4} causal " + " ".join(f"{name + ' TFLOPS':>22}" for name in names) + "  ratios"


def line(timed: TimedLaunch) -> str:
    """Format one row as in the published table: B, S, D, causal, times, and times divided by the first competitor's."""
    p, names = timed.problem, list(timed.samples_ms)
    cells = " ".join(f"{timed.ms(name) * 1e3:>12.1f} us {timed.tflops(name):>6.1f}" for name in names)
    ratios = " ".join(f"{timed.ms(name) / timed.ms(names[0]):.2f}x" for name in names[1:])
    return f"{p.batch:>2} {p.length:>6} {p.head_dim:>4} {'yes' if p.causal else 'no':>6} {cells}  {ratios}"


def summary(times_ms: dict[BenchProblem, dict[str, float]], mine: str, peers: Sequence[str]) -> dict[str, Any]:
    """Summarise the times of `peers` divided by those of `mine`. The best peer is the fastest one for each problem."""
    best = {p: min(times[n] for n in peers if n in times) / times[mine] for p, times in times_ms.items()}
    worst = min(best, key=best.__getitem__)
    ratios = {n: [times[n] / times[mine] for times in times_ms.values() if n in times] for n in peers}
    return {
        "problems": len(best),
        "vs_best_peer_geomean": statistics.geometric_mean(best.values()),
        "vs_best_peer_min": best[worst],
        "vs_best_peer_min_at": worst.name,
        **{f"vs_{name}_geomean": statistics.geometric_mean(found) for name, found in ratios.items() if found},
        **{f"vs_{name}_min": min(found) for name, found in ratios.items() if found},
        "slower_than_best_peer": [p.name for p, ratio in best.items() if ratio < 1],
        "causal_losses_from_1024": [p.name for p, r in best.items() if p.causal and p.length >= 1024 and r < 1],
    }


def medians(found: Iterable[TimedLaunch]) -> dict[BenchProblem, dict[str, float]]:
    return {t.problem: {name: t.ms(name) for name in t.samples_ms} for t in found}


def records(found: Sequence[TimedLaunch]) -> list[dict[str, Any]]:
    return [
        {
            **asdict(t.problem),
            "kernel": t.plan.config.name,
            "config": {n: v for n, v in asdict(t.plan.config).items() if v != getattr(Config(), n)},
            "reason": t.plan.reason,
            "ptxas": t.ptxas,
            "median_ms": {name: t.ms(name) for name in t.samples_ms},
            "tflops": {name: t.tflops(name) for name in t.samples_ms},
            "samples_ms": t.samples_ms,
            **({"left_out": t.left_out} if t.left_out else {}),
        }
        for t in found
    ]


def device() -> dict[str, Any]:
    import torch

    from ..compile.compiler import dsl_versions

    properties = torch.cuda.get_device_properties(0)
    return {
        "gpu": properties.name,
        "capability": f"{properties.major}.{properties.minor}",
        "multiprocessors": properties.multi_processor_count,
        "memory_gib": round(properties.total_memory / 2**30, 1),
        "cuda": torch.version.cuda,
        "torch": torch.__version__,
        "dsl": dsl_versions(),
    }


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--only", choices=tuple(PROBLEMS), help="time only these problems")
    parser.add_argument(
        "--variants", action="store_true", help="also time the tma and the cp_async kernel, if they can be built"
    )
    parser.add_argument("--fp8", action="store_true", help="time FP8 against BF16; on sm_12x only")
    parser.add_argument("--rounds", type=int, default=11, help="samples of each launch (default: 11)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the results to FILE")


def main(arguments: argparse.Namespace) -> int:
    if arguments.rounds < 3:
        raise ValueError(f"--rounds {arguments.rounds}: must be at least 3")
    require_folder(arguments.json)
    require_gpu()
    if arguments.fp8:
        result = measure_fp8(arguments.only, arguments.rounds)
    else:
        result = measure(arguments.only, arguments.variants, arguments.rounds)
    print(json.dumps({name: result[name] for name in ("summary", "host_us") if name in result}, indent=1))
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=1))
        print(f"wrote {arguments.json}", file=sys.stderr)
    return 0


def measure(only: str | None, variants: bool, rounds: int) -> dict[str, Any]:
    makers: dict[str, Maker] = {"ours": ours, "torch": torch_flash}
    if variants:
        makers |= {"tma": variant("tma"), "cp_async": variant("cp_async")}
    problems = PROBLEMS[only] if only else PUBLISHED + LONG
    print(header(list(makers)))
    found = run(problems, makers, rounds)
    return {
        "device": device(),
        "summary": summary(medians(found), "ours", ["torch"]),
        "host_us": host_costs(),
        "problems": records(found),
    }


def why_no_fp8_time(arch: str) -> str | None:
    """Return the reason why FP8 is not timed on this architecture, or None."""
    if arch == "sm_90a":
        return "FP8 is timed on sm_12x only: sm_90a lacks its FP8 instructions, and kernels use slower ones instead"
    return None


def measure_fp8(only: str | None, rounds: int) -> dict[str, Any]:
    """Time FP8 against BF16. Raises ValueError if the GPU does not have the FP8 instructions."""
    from ..launch.prepare import device_facts

    wrong = why_no_fp8_time(device_facts(0)[0])
    if wrong:
        raise ValueError(wrong)
    makers: dict[str, Maker] = {"ours": ours, **FP8, "torch": torch_flash}
    print(header(list(makers)))
    found = run(PROBLEMS[only] if only else PUBLISHED + LONG, makers, rounds)
    times = medians(found)
    return {
        "device": device(),
        "summary": {name: summary(times, name, ["ours"]) for name in FP8 if all(name in t for t in times.values())},
        "problems": records(found),
    }
