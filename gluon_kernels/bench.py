"""The kernels against each other and against what everybody has, in one run on one GPU. Torch; knows no files.

A launch is timed only after its output agreed with PyTorch's. What cannot run is absent with the reason.
"""

from __future__ import annotations

import functools
import importlib
import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from .reference import TORCH_NAMES
from .timer import Timed, time_all

# A subject is one of these and a dtype, "mma_bf16". Baselines take bf16.
KERNELS = {"mma": "attention_mma", "hopper": "attention_hopper", "blackwell": "attention_blackwell"}
BASELINES = ("sdpa_flash", "cudnn", "flex", "fa4")
# Largest difference from PyTorch's output, of the row's largest value: bf16 has 8 bits and rounds on both sides,
# e4m3 has 4 bits and rounds inputs and probabilities.
TOLERANCE = {"bf16": 2.0**-5, "fp16": 2.0**-5, "fp8e4nv": 0.3, "fp8e5": 0.6}
FRESH_SEED = 1


@dataclass(frozen=True, slots=True)
class Shape:
    """One problem. `causal`: query i sees keys 0..i; only with as many queries as keys, where the alignments agree."""

    batch: int
    heads: int
    queries: int
    head_dim: int
    causal: bool = False
    kv_heads: int | None = None
    keys: int | None = None

    @property
    def sizes(self) -> tuple[int, int, int, int, int, int]:
        """batch, heads, kv_heads, queries, keys, head_dim"""
        kv_heads, keys = self.kv_heads or self.heads, self.keys or self.queries
        return self.batch, self.heads, kv_heads, self.queries, keys, self.head_dim

    @property
    def flops(self) -> float:
        """Of the two matrix products; half of them where the mask is causal, as everybody counts."""
        batch, heads, _, queries, keys, head_dim = self.sizes
        return 4.0 * batch * heads * queries * keys * head_dim / (2 if self.causal else 1)

    @property
    def label(self) -> str:
        batch, heads, kv_heads, queries, keys, head_dim = self.sizes
        group = "" if kv_heads == heads else f"/{kv_heads}"
        other = "" if keys == queries else f"x{keys}"
        return f"B{batch} H{heads}{group} S{queries}{other} D{head_dim}{' causal' if self.causal else ''}"

    def inputs(self, seed: int = FRESH_SEED):
        """bf16 q, k, v, standard normal."""
        import torch

        batch, heads, kv_heads, queries, keys, head_dim = self.sizes
        random = torch.Generator("cuda").manual_seed(seed)
        shapes = [(batch, n, s, head_dim) for n, s in ((heads, queries), (kv_heads, keys), (kv_heads, keys))]
        return tuple(torch.randn(shape, generator=random, device="cuda").bfloat16() for shape in shapes)


@dataclass(slots=True)
class Row:
    """What one shape gave. `absent`: label -> why it was not timed."""

    shape: Shape
    times: dict[str, Timed] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)

    def tflops(self, label: str) -> float | None:
        return self.shape.flops / self.times[label].median_ms / 1e9 if label in self.times else None

    def ratio(self, label: str, baseline: str) -> float | None:
        """How many times faster `label` is than `baseline`."""
        if label not in self.times or baseline not in self.times:
            return None
        return self.times[baseline].median_ms / self.times[label].median_ms


class Absent(Exception):
    """Why a subject or baseline cannot run here."""


def bench(
    shapes: Iterable[Shape],
    subjects: Iterable[str],
    baselines: Iterable[str] = BASELINES,
    rounds: int = 25,
    flex_shapes: int = 4,
    report: Callable[[Row], None] = lambda row: None,
) -> list[Row]:
    """One Row for each shape; its labels are the subjects ("mma_bf16") and the baselines' names.

    torch.compile takes long for each shape: FlexAttention only has the first `flex_shapes`.
    """
    rows = []
    for number, shape in enumerate(shapes):
        left_out = {"flex": "only for the first shapes: it compiles for each"} if number >= flex_shapes else {}
        rows.append(_bench_shape(shape, list(subjects), list(baselines), rounds, left_out))
        report(rows[-1])
    return rows


def _bench_shape(shape, subjects, baselines, rounds, left_out) -> Row:
    import torch

    row = Row(shape)
    inputs = shape.inputs()
    expected = torch_output(inputs, shape)
    made = {name: functools.partial(baseline, name, inputs, shape) for name in baselines}
    made |= {label: functools.partial(subject, label, inputs, shape) for label in subjects}
    launches = {}
    for label, make in made.items():
        try:
            if label in left_out:
                raise Absent(left_out[label])
            launch = make()
            agree(label.rpartition("_")[2], launch(), expected)
            launches[label] = launch
        except Absent as reason:
            row.absent[label] = _without_paths(str(reason))
        except Exception as error:  # a baseline of another project may fail in any way: it is absent, and says why
            last = (str(error).strip().splitlines() or [""])[-1]
            row.absent[label] = _without_paths(f"{type(error).__name__}: {last}")[:300]
        torch.cuda.synchronize()
    row.times = time_all(launches, rounds)
    return row


def _without_paths(text: str) -> str:
    """Results are published: what failed is named, where it is installed is not."""
    return re.sub(r"(?<![\w.])/[^\s'\"),:]+/", "", text)


def torch_output(inputs, shape):
    """PyTorch's output for the same inputs, by whatever backend it chooses."""
    import torch

    q, k, v = inputs
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=shape.causal, enable_gqa=True)


def agree(dtype: str, out, expected) -> None:
    """Absent if `out`, of a kernel in `dtype`, is not what PyTorch says."""
    tolerance = TOLERANCE.get(dtype, TOLERANCE["bf16"])
    # Of a 1024th of the rows: the large shapes' outputs take gigabytes in float32.
    rows = slice(None, None, 1 + expected.shape[2] // 1024)
    out, expected = out[:, :, rows].float(), expected[:, :, rows].float()
    error = ((out - expected).abs().amax(-1) / expected.abs().amax(-1)).max().item()
    if not error <= tolerance:
        raise Absent(
            f"wrong: a row differs from PyTorch's by {error:.2g} of its largest value, {tolerance:.2g} allowed"
        )


def subject(label: str, inputs, shape: Shape) -> Callable[[], Any]:
    """A launch of one of this package's kernels; Absent says why it cannot be."""
    import torch

    kernel, _, dtype = label.partition("_")
    if kernel not in KERNELS or dtype not in TORCH_NAMES:
        raise ValueError(
            f"subject {label!r}: one of {', '.join(KERNELS)} and one of {', '.join(TORCH_NAMES)}, mma_bf16"
        )
    try:
        attention = importlib.import_module(f".{KERNELS[kernel]}", __package__).attention
    except ImportError as error:
        raise Absent(f"{KERNELS[kernel]}: {error}") from None
    q, k, v = (x.to(getattr(torch, TORCH_NAMES[dtype])) for x in inputs)
    launch = functools.partial(attention, q, k, v, causal="top-left" if shape.causal else None)
    try:
        launch()
    except (TypeError, ValueError) as error:
        raise Absent(str(error)) from None
    return launch


def baseline(name: str, inputs, shape: Shape) -> Callable[[], Any]:
    return {"sdpa_flash": _sdpa, "cudnn": _sdpa, "flex": _flex, "fa4": _fa4}[name](name, inputs, shape)


def _sdpa(name: str, inputs, shape: Shape) -> Callable[[], Any]:
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.functional import scaled_dot_product_attention

    backend = {"sdpa_flash": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION}[name]

    def launch():
        with sdpa_kernel(backend):
            return scaled_dot_product_attention(*inputs, is_causal=shape.causal, enable_gqa=True)

    return launch


def _flex(name: str, inputs, shape: Shape) -> Callable[[], Any]:
    import torch
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    torch._dynamo.reset()
    compiled = torch.compile(flex_attention, dynamic=False)
    gqa = inputs[0].shape[1] != inputs[1].shape[1]
    mask = None
    if shape.causal:
        mask = create_block_mask(lambda b, h, i, j: i >= j, None, None, shape.queries, shape.queries, device="cuda")
    return functools.partial(compiled, *inputs, block_mask=mask, enable_gqa=gqa)


def _fa4(name: str, inputs, shape: Shape) -> Callable[[], Any]:
    try:
        from flash_attn.cute import flash_attn_func
    except Exception as error:
        raise Absent(f"FlashAttention-4 (flash_attn.cute) cannot be imported: {error}") from None
    q, k, v = (x.transpose(1, 2).contiguous() for x in inputs)

    def launch():
        out = flash_attn_func(q, k, v, causal=shape.causal)
        return (out[0] if isinstance(out, tuple) else out).transpose(1, 2)

    return launch


def geomean(values: Iterable[float | None]) -> float | None:
    """None where there is no value."""
    logs = [math.log(value) for value in values if value is not None]
    return math.exp(sum(logs) / len(logs)) if logs else None


def table(rows: list[Row], against: tuple[str, ...] = ("sdpa_flash", "cudnn", "fa4")) -> str:
    """TFLOPS of everything that ran, and each subject's ratios to the baselines in the last lines."""
    labels = list(dict.fromkeys(label for row in rows for label in row.times))
    width = max([len(row.shape.label) for row in rows] + [24])
    lines = [f"{'TFLOPS':{width}}" + "".join(f"{label:>14}" for label in labels)]
    for row in rows:
        cells = [row.tflops(label) for label in labels]
        lines.append(
            f"{row.shape.label:{width}}" + "".join("-".rjust(14) if c is None else f"{c:14.1f}" for c in cells)
        )
    for label in labels:
        for other in against:
            mean = geomean(row.ratio(label, other) for row in rows)
            if label.partition("_")[0] in KERNELS and mean is not None:
                lines.append(f"{label} is {mean:.3f} times as fast as {other} (geometric mean)")
    reasons = dict.fromkeys(f"{label}: {reason}" for row in rows for label, reason in row.absent.items())
    return "\n".join([*lines, *(f"absent: {reason}" for reason in reasons)])
