"""Check that fp8 attention is as exact as its inputs allow: kinds of data, and a verdict for each.

Needs torch; any device. The measure, with which a kernel is compared, is an exact softmax whose probabilities are
rounded to fp8, times 2^8, with sums in fp32: see reference.quantised_reference. The errors of the kernel and of the
measure are differences from a float64 reference of the same fp8 inputs. Normal inputs alone prove little: they hide
errors for a V whose mean is not 0, and for a key that outweighs the others.

Scores from 8-bit wgmma have an error that no softmax can undo. For a kernel with such scores, the measure computes its
scores with the same error.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from ..config import TORCH_NAMES
from ..host import Tensor
from .reference import attention_reference, quantised_reference

# Allowed error, as a multiple of the measure's error: the root mean square of all rows, and the worst row.
MOST_RMS_RATIO, MOST_ROW_RATIO = 1.15, 1.5
# Allowed error if V is all ones, so that each output is 1: half a unit in the last place of bf16.
MOST_ONES_ERROR = 2.0**-8
# Relative errors below this come from rounding O to bf16.
ROUNDING = 2.0**-9
LENGTHS = (4096, 16384, 65536)
ROWS = 256
ONES = "V of ones"

Inputs = tuple[Any, Any, Any]  # q, k, v in fp32


def _scaled_queries(q: Tensor, k: Tensor, v: Tensor) -> Inputs:
    """Make q four times as large, so that scores are, too."""
    return q * 4, k, v


def _sink(key: int, nats: float) -> Callable[[Tensor, Tensor, Tensor], Inputs]:
    """Return a function that gives one key a score `nats` above the mean of the others, for all queries."""

    def make(q: Tensor, k: Tensor, v: Tensor) -> Inputs:
        q[..., 0], k[..., 0] = 4.0, 0.0
        k[:, :, key] = 0.0
        k[:, :, key, 0] = nats * math.sqrt(q.shape[-1]) / 4.0
        return q, k, v

    return make


def _equal(q: Tensor, k: Tensor, v: Tensor) -> Inputs:
    """Set q = k: each query's own key outweighs the others."""
    return k[:, :, -q.shape[2] :].clone(), k, v


def _outlier_channels(q: Tensor, k: Tensor, v: Tensor) -> Inputs:
    """Make four channels of q and k, and four other channels of v, four times as large."""
    q[..., :4] *= 4
    k[..., :4] *= 4
    v[..., 8:12] *= 4
    return q, k, v


def _smooth(q: Tensor, k: Tensor, v: Tensor) -> Inputs:
    """Make neighbours in the sequence alike, as in images and after convolutions."""
    import torch

    def smoothed(x: Tensor) -> Tensor:
        nodes = x[:, :, :: min(64, x.shape[2])].flatten(0, 1).transpose(1, 2)
        line = torch.nn.functional.interpolate(nodes, size=x.shape[2], mode="linear", align_corners=True)
        return line.transpose(1, 2).reshape(x.shape).contiguous() * 1.2 + 0.2 * x

    return smoothed(q), smoothed(k), smoothed(v)


def _rising(q: Tensor, k: Tensor, v: Tensor) -> Inputs:
    """Make the first key six times as long as the last: kernels that visit keys backwards meet rising maxima."""
    import torch

    return q, k * torch.linspace(6.0, 1.0, k.shape[2], device=k.device)[:, None], v


def _heavy_tails(q: Tensor, k: Tensor, v: Tensor) -> Inputs:
    """Cube the normal numbers; keep their standard deviation."""
    return q**3 / math.sqrt(15), k**3 / math.sqrt(15), v**3 / math.sqrt(15)


KINDS: dict[str, Callable[[Any, Any, Any], Inputs]] = {
    "normal": lambda q, k, v: (q, k, v),
    "scores times 4": _scaled_queries,
    **{f"first key at {nats} nats": _sink(0, nats) for nats in (7.8, 9.2, 12.0)},
    **{f"last key at {nats} nats": _sink(-1, nats) for nats in (7.8, 9.2, 12.0)},
    "q = k": _equal,
    "outlier channels": _outlier_channels,
    "smooth": _smooth,
    "rising": _rising,
    "heavy tails": _heavy_tails,
    "V of mean 0.5": lambda q, k, v: (q, k, v + 0.5),
    "V of mean 1": lambda q, k, v: (q, k, v + 1),
    ONES: lambda q, k, v: (q, k, v * 0 + 1),
}


@dataclass(frozen=True, slots=True)
class AccuracyCase:
    """One kind of data. The queries have the positions of the last keys. `causal`: use a mask, "bottom-right"."""

    kind: str
    seqlen_k: int
    head_dim: int
    dtype: str
    causal: bool = False
    seqlen_q: int = ROWS
    num_heads: int = 2

    def inputs(self, seed: int, device: str) -> tuple[Tensor, Tensor, Tensor]:
        import torch

        random = torch.Generator(device).manual_seed(seed)
        lengths = (self.seqlen_q, self.seqlen_k, self.seqlen_k)
        normal = [torch.randn((1, self.num_heads, n, self.head_dim), generator=random, device=device) for n in lengths]
        q, k, v = (x.to(getattr(torch, TORCH_NAMES[self.dtype])) for x in KINDS[self.kind](*normal))
        return q, k, v


@dataclass(frozen=True, slots=True)
class Accuracy:
    """Relative errors of a kernel and of the measure in one case: of all rows together, and of the worst row.

    `ones_error`: if V is all ones, the largest distance of an output from 1. `with_wgmma`: for a kernel with scores
    from 8-bit wgmma, both errors of a measure whose scores are added up in the same way.
    """

    case: AccuracyCase
    rms: float
    worst_row: float
    measure_rms: float
    measure_worst_row: float
    ones_error: float | None = None
    with_wgmma: tuple[float, float] | None = None

    @property
    def rms_ratio(self) -> float:
        return self.rms / max(self.measure_rms, ROUNDING)

    @property
    def row_ratio(self) -> float:
        return self.worst_row / max(self.measure_worst_row, ROUNDING)

    @property
    def allowed(self) -> tuple[float, float]:
        """The allowed values of `rms` and `worst_row`."""
        rms, worst_row = self.with_wgmma or (0.0, 0.0)
        rms, worst_row = max(rms, self.measure_rms, ROUNDING), max(worst_row, self.measure_worst_row, ROUNDING)
        # In bf16 an output of 1 may become a neighbour of 1. The lower one is 2^-8 away: more than 1.5 times ROUNDING.
        # The reference's outputs for V of ones also differ a little from 1.
        least = 1.001 * MOST_ONES_ERROR if self.case.kind == ONES else 0.0
        return MOST_RMS_RATIO * rms, max(MOST_ROW_RATIO * worst_row, least)

    @property
    def reason(self) -> str | None:
        """Reason why the attention is too inexact, or None. NaN counts as too inexact."""
        if self.ones_error is not None and not self.ones_error <= MOST_ONES_ERROR:
            return f"with V of ones an output is off by {self.ones_error:.2e}, {MOST_ONES_ERROR:.2e} allowed"
        for what, error, most in zip(
            ("error", "worst row's error"), (self.rms, self.worst_row), self.allowed, strict=True
        ):
            if not error <= most:
                return f"{self.case.kind}: the {what} is {error:.2e}, {most:.2e} allowed"
        return None


def accuracy_cases(dtype: str, head_dim: int, lengths: tuple[int, ...] = LENGTHS) -> Iterator[AccuracyCase]:
    """List every kind at every length, without and with a mask."""
    for length in lengths:
        for kind in KINDS:
            for causal in (False, True):
                yield AccuracyCase(kind, length, head_dim, dtype, causal)


def judge_accuracy(
    case: AccuracyCase, attention: Callable[..., Any], seed: int, device: str = "cuda", wgmma_scores: bool = False
) -> Accuracy:
    """Run `attention` without and with lse on random inputs; the larger error counts.

    `wgmma_scores`: the kernel computes scores with 8-bit wgmma.
    """
    q, k, v = case.inputs(seed, device)
    causal = "bottom-right" if case.causal else None
    exact = attention_reference(q, k, v, causal=causal)[0]
    outputs = [attention(q, k, v, causal=causal), attention(q, k, v, causal=causal, return_lse=True)[0]]
    ours = [_errors(o, exact) for o in outputs]
    measure = _errors(quantised_reference(q, k, v, causal=causal)[0], exact)
    ones = max(float((o.double() - 1).abs().max()) for o in outputs) if case.kind == ONES else None
    hopper = None
    if wgmma_scores:
        hopper = _errors(quantised_reference(q, k, v, causal=causal, wgmma_scores=True)[0], exact)
    return Accuracy(case, _most(e[0] for e in ours), _most(e[1] for e in ours), *measure, ones, hopper)


def _errors(o: Tensor, exact: Tensor) -> tuple[float, float]:
    """Compute the error relative to the norm, of all rows together and of the worst row."""
    error = o.double() - exact
    rows = error.norm(dim=-1) / exact.norm(dim=-1)
    return float(error.norm() / exact.norm()), float(rows.max())


def _most(errors: Iterator[float]) -> float:
    """Compute the largest error; NaN if there is a NaN."""
    found = list(errors)
    return math.nan if any(map(math.isnan, found)) else max(found)
