"""Check whether an attention is right: cases, and a verdict for each. Needs torch; any device.

An attention is a function `attention(q, k, v, *, causal, scale, return_lse)` as in the kernels' launch modules. It is
compared with a float64 reference of the same inputs. Its error in each row may be at most twice the error in the worst
row of PyTorch's own attention in the same precision, and lse must agree to 1e-3.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from ..config import CAUSAL, TORCH_NAMES
from ..host import Tensor
from .reference import attention_reference, low_precision, visible_keys

LENGTHS = (1, 15, 16, 17, 63, 64, 65, 127, 128, 129, 1000, 1024, 4096)
QHEADS_PER_KVHEAD = (1, 4, 8)
# Half a unit in the last place of o, relative to the row's largest value: rounding o alone can cause this error.
ROUNDING = {"bf16": 2.0**-8, "fp16": 2.0**-11, "fp8e4nv": 2.0**-8, "fp8e5": 2.0**-8}
FP8 = ("fp8e4nv", "fp8e5")
TIMES_WORSE = 2.0
LSE_TOLERANCE = 1e-3
FLOAT32_STEP = 2.0**-23
# Kernel -> the tensor cores' error in a sum of fp8 products, relative to the largest product: wgmma keeps about 13
# bits. mma.sync on sm_90 has no such error: ptxas converts fp8 to fp16 there.
FP8_LOSS = {"hopper": 2.0**-12}

Attention = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Case:
    """The inputs of one call.

    `logits`: about the largest absolute score; None: standard normal inputs.
    `rising`: length of the first key divided by that of the last. Kernels that visit keys backwards meet rising maxima.
    `negative`: all scores are negative.
    `layout`: order of the dimensions in memory, "bhsd" or "bshd".
    """

    seqlen_q: int
    seqlen_k: int
    head_dim: int = 64
    dtype: str = "bf16"
    causal: str | None = None
    batch: int = 1
    num_heads_kv: int = 1
    qheads_per_kvhead: int = 1
    logits: float | None = None
    rising: float = 1.0
    negative: bool = False
    layout: str = "bhsd"

    def inputs(self, seed: int, device: str) -> tuple[Tensor, Tensor, Tensor]:
        """Draw random q, k and v."""
        import torch

        random = torch.Generator(device).manual_seed(seed)
        # Scaled scores of standard normal inputs are standard normal; the largest of many is about 4.
        spread = 1.0 if self.logits is None else math.sqrt(self.logits / 4)

        def make(heads: int, length: int, spread: float, rising: float = 1.0, sign: int = 0) -> Tensor:
            shape = (self.batch, heads, length, self.head_dim)
            if self.layout == "bshd":
                shape = (self.batch, length, heads, self.head_dim)
            x = torch.randn(shape, generator=random, device=device).mul_(spread)
            if sign:
                x = x.abs_().mul_(sign)
            if rising != 1.0:
                longer = torch.linspace(rising, 1.0, length, device=device)
                x *= longer[:, None, None] if self.layout == "bshd" else longer[:, None]
            x = x.to(getattr(torch, TORCH_NAMES[self.dtype]))
            return x.transpose(1, 2) if self.layout == "bshd" else x

        return (
            make(self.num_heads_kv * self.qheads_per_kvhead, self.seqlen_q, spread, sign=int(self.negative)),
            make(self.num_heads_kv, self.seqlen_k, spread, self.rising, sign=-int(self.negative)),
            make(self.num_heads_kv, self.seqlen_k, 1.0),
        )


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of a case. `reason`: why it is wrong, or None. `skipped`: why it was not judged, or None."""

    case: Case
    error: float | None = None
    allowed: float | None = None
    lse_error: float | None = None
    reason: str | None = None
    skipped: str | None = None

    @property
    def right(self) -> bool:
        return self.reason is None and self.skipped is None


def matrix(dtypes: tuple[str, ...], head_dims: tuple[int, ...], quick: bool = False) -> Iterator[Case]:
    """List all cases: every pair of lengths with every mask; large logits; lengths of 0; rising and negative scores.

    Batches, query heads per K/V head and layouts alternate.
    """
    lengths = (1, 17, 64, 129, 1000) if quick else LENGTHS
    turn = itertools.cycle(itertools.product((1, 2), QHEADS_PER_KVHEAD, ("bhsd", "bshd")))
    for dtype, head_dim in itertools.product(dtypes, head_dims):
        for seqlen_q, seqlen_k, causal in itertools.product(lengths, lengths, CAUSAL):
            batch, group, layout = next(turn)
            heads = (1, 1) if seqlen_q * seqlen_k > 2**22 else (batch, 2)
            yield Case(seqlen_q, seqlen_k, head_dim, dtype, causal, *heads, group, layout=layout)
        # Sums of many small numbers: tensor cores that add with few bits would lose them.
        yield Case(256, 16384, head_dim, dtype, "bottom-right")
        # With logits of 50 the maximum still changes after the first keys; with 10,000 one key has all the weight.
        for causal, group, logits in itertools.product(CAUSAL, QHEADS_PER_KVHEAD, (50.0, 1e4)):
            yield Case(300, 333, head_dim, dtype, causal, 2, 2, group, logits=logits)
        for seqlen_q, seqlen_k, causal in itertools.product((0, 17), (0, 64), CAUSAL):
            if seqlen_q * seqlen_k == 0:
                yield Case(seqlen_q, seqlen_k, head_dim, dtype, causal, num_heads_kv=2, qheads_per_kvhead=4)
        for causal in CAUSAL:
            yield Case(300, 1000, head_dim, dtype, causal, 2, 2, 4, rising=6.0)
        yield from negative_cases(dtype, head_dim)


def negative_cases(dtype: str, head_dim: int) -> Iterator[Case]:
    """List cases with only negative scores, whose exponentials differ by more than fp32's range; no cases for fp8."""
    if dtype not in FP8:
        for seqlen_q, causal in itertools.product((300, 4096), CAUSAL):
            yield Case(seqlen_q, 333, head_dim, dtype, causal, logits=2500.0, negative=True)


def judge(case: Case, attention: Attention, seed: int, device: str = "cuda", fp8_loss: float = 0.0) -> Verdict:
    """Run `attention` on random inputs, with NaN in new memory, and check its outputs. `fp8_loss`: see FP8_LOSS."""
    if fp8_loss and case.dtype in FP8 and case.logits is not None:
        scores = f"scores of {case.logits:,.0f} from fp8 have an error of {fp8_loss * case.logits:.2g}"
        return Verdict(case, skipped=f"{scores} on this GPU's tensor cores: too large to judge the kernel")
    q, k, v = case.inputs(seed, device)
    try:
        with poisoned_memory():
            o, lse = attention(q, k, v, causal=case.causal, return_lse=True)
            alone = attention(q, k, v, causal=case.causal)  # without lse it may run another kernel
    except (TypeError, ValueError) as reason:
        return Verdict(case, skipped=str(reason))
    shapes = [tuple(x.shape) for x in (o, alone, lse)]
    if shapes != [tuple(q.shape), tuple(q.shape), tuple(q.shape[:3])]:
        return Verdict(case, reason=f"wrong shapes of o, o without lse, and lse: {shapes}; q has {tuple(q.shape)}")
    exact, exact_lse = attention_reference(q, k, v, causal=case.causal)
    blind = visible_keys(case.seqlen_q, case.seqlen_k, case.causal, device) == 0
    spare = _spare(case, q, k, v)
    errors = [_worst_row(x, exact, blind, spare) for x in (o, alone)]
    error = math.nan if any(map(math.isnan, errors)) else max(errors)
    torchs = 0.0 if bool(blind.all()) else _worst_row(low_precision(q, k, v, causal=case.causal), exact, blind)
    allowed = max(TIMES_WORSE * torchs, ROUNDING[case.dtype])
    lse_error = _lse_error(lse, exact_lse, blind, _lse_slack(case, q, k, exact_lse[:, :, ~blind], fp8_loss))
    verdict = Verdict(case, error, allowed, lse_error)
    zeros = all(bool((x[:, :, blind] == 0).all()) for x in (o, alone))
    if not (zeros and bool((lse[:, :, blind] == -math.inf).all())):
        return replace(verdict, reason="for a query that sees no key, o must be 0 and lse -inf")
    if not error <= allowed:  # also for NaN
        return replace(verdict, reason=f"a row's error is {error:.2e} of its largest value, {allowed:.2e} allowed")
    if not lse_error <= LSE_TOLERANCE:
        return replace(verdict, reason=f"the error of lse is {lse_error:.2e}, {LSE_TOLERANCE:.0e} allowed")
    return verdict


def _spare(case: Case, q: Tensor, k: Tensor, v: Tensor) -> Any:
    """Compute how much error each row may have from rounding its probabilities: 0 for cases without large logits.

    With large logits few keys have all the weight. PyTorch's largest probability is 1, which has no rounding error. In
    a kernel that scales by an earlier maximum, the largest probability is not 1 and is rounded.
    """
    if case.logits is None:
        return 0.0
    sizes = v.float().abs()  # torch has no abs of fp8 on a GPU
    return ROUNDING[case.dtype] * attention_reference(q, k, sizes, causal=case.causal)[0].amax(-1)


def _worst_row(o: Tensor, exact: Tensor, blind: Tensor, spare: Any = 0.0) -> float:
    """Compute the largest error beyond `spare`, relative to the largest value of its row; NaN if o has a NaN."""
    if bool(blind.all()):
        return 0.0
    size = exact.abs().amax(-1).clamp_min(1e-30)
    errors = (((o.double() - exact).abs().amax(-1) - spare) / size)[:, :, ~blind]
    return _largest(errors)


def _lse_slack(case: Case, q: Tensor, k: Tensor, exact: Tensor, fp8_loss: float) -> Any:
    """Estimate the error of lse that comes from the tensor cores.

    They add 16 products a step in float32 and truncate each step; sums of fp8 products lose more.
    """
    if fp8_loss and case.dtype in FP8 and q.numel() and k.numel():
        longest = [x.float().norm(dim=-1).amax() for x in (q, k)]
        return float(fp8_loss * longest[0] * longest[1] * case.head_dim**-0.5)
    return (4 + case.head_dim / 16) * FLOAT32_STEP * exact.abs()


def _lse_error(lse: Tensor, exact: Tensor, blind: Tensor, slack: Any) -> float:
    """Compute the largest error of lse beyond `slack`."""
    if bool(blind.all()):
        return 0.0
    error = (lse[:, :, ~blind].double() - exact[:, :, ~blind]).abs() - slack
    return _largest(error)


def _largest(errors: Tensor) -> float:
    """Compute the largest error, at least 0; NaN if there is a NaN."""
    largest = float(errors.max())
    return largest if math.isnan(largest) else max(0.0, largest)


@contextmanager
def poisoned_memory() -> Iterator[None]:
    """Fill torch.empty tensors with NaN inside this context, so that missing writes are found."""
    import torch

    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before[0], warn_only=before[1])


def run(attention: Attention, cases: Iterable[Case], device: str = "cuda", fp8_loss: float = 0.0) -> Iterator[Verdict]:
    """Judge each case on its own random inputs. An exception of the kernel becomes a verdict, too."""
    import torch

    for seed, case in enumerate(cases):
        try:
            yield judge(case, attention, seed, device, fp8_loss)
        except Exception as error:  # from compiling or launching: the case is wrong, the others still count
            yield Verdict(case, reason=f"{type(error).__name__}: {str(error).strip().splitlines()[-1:]}")
            if "CUDA error" in str(error):
                torch.cuda.synchronize()  # raises again: no later result of this process can be trusted
