"""Run a case, and judge the result against float64 on the same inputs.

A row passes if all of these hold. Its error is at most twice the reference error: the error of a careful 16-bit
implementation (`reference`, low_precision) plus one rounding of the output. The error of its LSE is at most 1e-3, or
2e-6 of an LSE above about 500. It is zero if no key is visible. It has no NaN.
"""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ..config import FP8, Config
from . import inputs
from .cases import Case

ERROR_RATIO = 2.0
LSE_ABSOLUTE, LSE_RELATIVE = 1e-3, 2e-6  # one float32 rounding is 1e-7; the sum and exp2 have a few roundings
ROUNDING = {"bf16": 2**-8, "fp16": 2**-11, "fp32": 2**-24}
# Allowed error of FP8 against a replay of its rounding, relative to a row's largest value, and the share of rows that
# may have a larger error, because float32 can round a probability to another FP8 value than float64.
FP8_TIGHT, FP8_ROWS_OFF = 1e-3, 0.005
# Results below these may be zero, because kernels flush numbers below float32's smallest normal number to zero. If a
# sink has nearly all of the weight, a row's factor is such a number; the kernel multiplies it by up to 2**16
# (BIAS_AND_LAZY_BITS) times V with its descale.
SMALLEST, SMALLEST_BESIDE_A_SINK = 2.0**-126, 2.0**-100
NOT_TRIED = "not tried: this GPU has too little memory for it"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict on one case.

    ratio: largest ratio of a row's error to the reference error of the module's description; the limit is 2.
    why: reasons why the case failed; "" if it passed.
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


def run(case: Case, made: dict[str, Any], options: dict[str, Any]) -> tuple[Any, Any]:
    """Run a case with its kernel; return O, and LSE or None."""
    from ..api import attention
    from ..launch.call import Tensors
    from ..launch.prepare import device_facts, forward

    if case.kernel is None and case.fp8_mma == "native":
        result = attention(**made, **options)
        return result if case.lse else (result, None)
    tensors = Tensors(**made, **{name: options[name] for name in Tensors._fields if name in options})
    config = case.config(*device_facts(made["q"].get_device()))
    return forward(tensors, call_of(tensors, options)._replace(config=config))


def call_of(tensors: Any, options: dict[str, Any]) -> Any:
    """Make the same Call as `attention` makes from these arguments."""
    from ..launch.call import AttentionOptions, make_call

    return make_call(tensors, AttentionOptions._make(options.get(name) for name in AttentionOptions._fields))


def judge(case: Case, made: dict[str, Any], options: dict[str, Any], o: Any, lse: Any) -> Verdict:
    """Judge a result: compare it with float64 on the same inputs."""
    from .reference import attention_reference

    fp8 = case.dtype in FP8
    wanted, wanted_lse = attention_reference(**made, **options)
    yard, _ = attention_reference(**made, **options, low_precision=True, config=_replayed(case, o) if fp8 else None)
    kernel = case.kernel or "planned"
    dtype = options["out_dtype"] if fp8 else made["q"].dtype
    if o.shape != made["q"].shape or o.dtype != dtype or not o.is_contiguous():
        wrong = f"output is {list(o.shape)} of {o.dtype}: must be contiguous, {list(made['q'].shape)} of {dtype}"
        return failed(case.name, kernel, wrong)
    if o.numel() == 0:
        return Verdict(case.name, kernel, 0.0, 0.0, 0.0, "")
    rounding = ROUNDING[case.out_dtype or case.dtype] + (FP8_TIGHT if fp8 else 0)
    smallest = SMALLEST_BESIDE_A_SINK if case.sinks else SMALLEST
    why = _judge_replay(o.double(), yard, wanted, rounding, smallest) if fp8 else []
    return compare(case.name, kernel, (o, lse), (wanted, wanted_lse), yard, rounding, why, smallest)


def compare(
    name: str,
    kernel: str,
    found: tuple[Any, Any],
    wanted: tuple[Any, Any],
    yard: Any,
    rounding: float,
    why: Sequence[str] = (),
    smallest: float = SMALLEST,
) -> Verdict:
    """Compare output and LSE (or None) with the results in float64.

    yard: output of a careful implementation in low precision. why: failures of other checks, added to the verdict.
    smallest: results below this may be zero.
    """
    import torch

    (o, lse), (wanted_o, wanted_lse) = found, wanted
    error = (o.double() - wanted_o).abs().amax(-1)
    allowed = (yard - wanted_o).abs().amax(-1) + rounding * wanted_o.abs().amax(-1) / ERROR_RATIO
    allowed = allowed + smallest
    ratio = torch.where(error == 0, 0.0, error / allowed).max().item()
    said = []
    if not torch.isfinite(o).all():
        said.append(f"{(~torch.isfinite(o)).sum().item()} values are NaN or infinite")
    if not ratio <= ERROR_RATIO:
        said.append(f"a row's error is {ratio:.2f} x the reference error: must be at most {ERROR_RATIO:g} x")
    said += why
    # Bring [batch, heads, rows] or [heads, rows] into the order of the output's rows.
    blind = torch.isneginf(wanted_lse).transpose(-1, -2)
    if (o[blind] != 0).any():
        said.append("a row without a visible key is not zero")
    lse_error = 0.0
    if lse is not None:
        lse_error, lse_why = _judge_lse(lse, wanted_lse)
        said += lse_why
    return Verdict(name, kernel, error.max().item(), ratio, lse_error, "; ".join(said))


def _replayed(case: Case, o: Any) -> Config | None:
    """Return the config of the kernel that computed a result; None without a GPU."""
    from ..launch.prepare import device_facts

    return case.config(*device_facts(o.get_device())) if o.is_cuda else None


def _judge_replay(o: Any, replay: Any, wanted: Any, tight: float, smallest: float) -> list[str]:
    """Compare an FP8 output with `replay`, which sums the same rounded probabilities in float64."""
    off = ~((o - replay).abs().amax(-1) <= tight * wanted.abs().amax(-1) + smallest)
    share = off.double().mean().item()
    if share <= max(FP8_ROWS_OFF, 1 / off.numel()):
        return []
    return [f"{100 * share:.1f} % of the rows differ from the replay of FP8's rounding"]


def _judge_lse(lse: Any, wanted: Any) -> tuple[float, list[str]]:
    import torch

    if lse.shape != wanted.shape or lse.dtype != torch.float32:
        return math.inf, [f"LSE is {list(lse.shape)} of {lse.dtype}: must be {list(wanted.shape)} of torch.float32"]
    blind = torch.isneginf(wanted)
    why = [] if torch.equal(blind, torch.isneginf(lse)) else ["LSE is -inf in the wrong rows"]
    off = torch.where(blind, 0.0, (lse.double() - wanted).abs())
    allowed = torch.maximum(torch.full_like(off, LSE_ABSOLUTE), LSE_RELATIVE * torch.where(blind, 0.0, wanted.abs()))
    if not (off <= allowed).all():
        why.append(f"LSE is off by {off.max().item():.2e}")
    return off.max().item(), why


def check(case: Case, seed: int = 0) -> Verdict:
    """Run and judge one case. An exception is a failure, with its message."""

    def verdict() -> Verdict:
        made, options = inputs.tensors(case, seed)
        return judge(case, made, options, *run(case, made, options))

    return guarded(case.name, case.kernel or "planned", verdict)


def guarded(name: str, kernel: str, verdict: Callable[[], Verdict]) -> Verdict:
    """Return the result of `verdict`. An exception becomes a failed verdict, unless the CUDA context is lost."""
    if os.environ.get("SM120_ATTN_TRACE"):  # if a case hangs, the last line names it
        print(name, file=sys.stderr, flush=True)
    try:
        return verdict()
    except Exception as error:  # the DSL's exceptions have no common base class
        if "CUDA" in str(error) and "out of memory" not in str(error):
            raise  # the CUDA context is lost: later results would mean nothing
        return failed(name, kernel, f"{type(error).__name__}: {error}")


def failed(name: str, kernel: str, why: str) -> Verdict:
    """Make a failed verdict for a case whose result cannot be compared."""
    return Verdict(name, kernel, math.inf, math.inf, math.inf, why)


def shown(verdict: Verdict) -> Verdict:
    """Print a failed verdict at once, because the next case may hang; return the verdict."""
    if not verdict.passed:
        print(f"FAILED {verdict.name} ({verdict.kernel}): {verdict.why}", file=sys.stderr, flush=True)
    return verdict


def result_of(
    start: float,
    verdicts: list[Verdict],
    random_verdicts: list[Verdict],
    seen: dict[str, str],
    kept: dict[str, str],
) -> dict[str, Any]:
    """Make the JSON document of `check`. seen: the objection to each wrong result; kept: the error of each promise."""
    everything = verdicts + random_verdicts
    worst = max(everything, key=lambda verdict: verdict.ratio, default=None)
    return {
        "passed": all(v.passed for v in everything)
        and all(seen.values())
        and not any(why for why in kept.values() if why != NOT_TRIED),
        "seconds": round(time.perf_counter() - start, 1),
        "cases": len(verdicts),
        "random_cases": len(random_verdicts),
        "failures": [asdict(v) for v in everything if not v.passed],
        "worst_error_ratio": 0.0 if worst is None else worst.ratio,
        "worst_case": None if worst is None else asdict(worst),
        "worst_lse_error": max((v.lse_error for v in everything), default=0.0),
        "mutations": {name: why or "NOT SEEN" for name, why in seen.items()},
        "promises": {name: why or "kept" for name, why in kept.items()},
        "verdicts": [asdict(v) for v in everything],
    }
