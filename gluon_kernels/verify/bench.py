"""Time this package's kernels and other attention implementations in one run on one GPU. Needs torch.

A launch is timed only if its output agrees with PyTorch's. A launch that fails is listed as absent, with the reason.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from ..api import launcher
from ..config import TORCH_NAMES
from ..host import Tensor
from .timer import Timed, time_all

# A subject is a kernel and a dtype, such as "mma_bf16". Baselines are other attentions; they run in bf16.
KERNELS = ("mma", "hopper", "blackwell")
BASELINES = ("sdpa_flash", "cudnn", "flex", "fa4")
# Largest allowed difference from PyTorch's output, divided by the row's largest value. bf16 has 8 bits and both outputs
# are rounded; e4m3 has 4 bits, and inputs and probabilities are rounded.
TOLERANCE = {"bf16": 2.0**-5, "fp16": 2.0**-5, "fp8e4nv": 0.3, "fp8e5": 0.6}
FRESH_SEED = 1
FLEX_SHAPES = 4


@dataclass(frozen=True, slots=True)
class Shape:
    """The sizes of one problem. `causal`: query i sees keys 0 .. i; seqlen_q and seqlen_k must then be equal."""

    batch: int
    num_heads: int
    seqlen_q: int
    head_dim: int
    causal: bool = False
    num_heads_kv: int | None = None  # None: num_heads
    seqlen_k: int | None = None  # None: seqlen_q

    @property
    def sizes(self) -> tuple[int, int, int, int, int, int]:
        """The sizes (batch, num_heads, num_heads_kv, seqlen_q, seqlen_k, head_dim)."""
        num_heads_kv, seqlen_k = self.num_heads_kv or self.num_heads, self.seqlen_k or self.seqlen_q
        return self.batch, self.num_heads, num_heads_kv, self.seqlen_q, seqlen_k, self.head_dim

    @property
    def flops(self) -> float:
        """Floating-point operations of the two matrix products. By convention a causal mask halves the number."""
        batch, num_heads, _, seqlen_q, seqlen_k, head_dim = self.sizes
        return 4.0 * batch * num_heads * seqlen_q * seqlen_k * head_dim / (2 if self.causal else 1)

    @property
    def label(self) -> str:
        batch, num_heads, num_heads_kv, seqlen_q, seqlen_k, head_dim = self.sizes
        kv_heads = "" if num_heads_kv == num_heads else f"/{num_heads_kv}"
        keys = "" if seqlen_k == seqlen_q else f"x{seqlen_k}"
        return f"B{batch} H{num_heads}{kv_heads} S{seqlen_q}{keys} D{head_dim}{' causal' if self.causal else ''}"

    def inputs(self, seed: int = FRESH_SEED) -> tuple[Tensor, ...]:
        """Draw standard normal q, k and v in bf16, on the GPU."""
        import torch

        batch, num_heads, num_heads_kv, seqlen_q, seqlen_k, head_dim = self.sizes
        random = torch.Generator("cuda").manual_seed(seed)
        shapes = [(batch, n, s, head_dim) for n, s in ((num_heads, seqlen_q), *[(num_heads_kv, seqlen_k)] * 2)]
        return tuple(torch.randn(shape, generator=random, device="cuda").bfloat16() for shape in shapes)


@dataclass(slots=True)
class Row:
    """Results for one shape, by label. times: with CUDA graphs. eager: without them. absent: reason for no time."""

    shape: Shape
    times: dict[str, Timed] = field(default_factory=dict)
    eager: dict[str, Timed] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)

    def tflops(self, label: str, *, eager: bool = False) -> float | None:
        """Compute the speed in TFLOPS from the median time; None if `label` was not timed."""
        times = self.eager if eager else self.times
        return self.shape.flops / times[label].median_ms / 1e9 if label in times else None

    def ratio(self, label: str, baseline: str, *, eager: bool = False) -> float | None:
        """Compute how many times as fast `label` is as `baseline`; None if one of them was not timed."""
        times = self.eager if eager else self.times
        if label not in times or baseline not in times:
            return None
        return times[baseline].median_ms / times[label].median_ms


class Absent(Exception):
    """Error: a subject or baseline cannot run here, or its output is wrong. The message is the reason."""


# A function of bf16 inputs and their Shape that returns a launch of another attention. Raises Absent if it cannot run.
Peer = Callable[[tuple[Tensor, ...], Shape], Callable[[], Any]]


def bench(
    shapes: Iterable[Shape],
    subjects: Iterable[str],
    baselines: Iterable[str] = BASELINES,
    rounds: int = 25,
    report: Callable[[Row], None] = lambda row: None,
    *,
    eager: bool = False,
    peers: Mapping[str, Peer] = MappingProxyType({}),
) -> list[Row]:
    """Time subjects, e.g. "mma_bf16", and baselines for each shape; return a Row for each shape.

    FlexAttention runs for the first FLEX_SHAPES shapes only, as torch.compile takes long for each shape. `report` is
    called with each Row. `eager`: time all launches also without CUDA graphs. `peers`: more attentions by label; a
    label ends with "_" and a dtype.
    """
    rows = []
    for number, shape in enumerate(shapes):
        left_out = {"flex": "timed only for the first shapes, as each is compiled"} if number >= FLEX_SHAPES else {}
        made = {name: functools.partial(baseline, name) for name in baselines} | dict(peers)
        made |= {label: functools.partial(subject, label) for label in subjects}
        rows.append(_bench_shape(shape, made, rounds, left_out, eager))
        report(rows[-1])
    return rows


def _bench_shape(shape: Shape, made: Mapping[str, Peer], rounds: int, left_out: dict[str, str], eager: bool) -> Row:
    import torch

    row = Row(shape)
    inputs = shape.inputs()
    expected = torch_output(inputs, shape)
    launches: dict[str, Callable[[], Any]] = {}
    for label, make in made.items():
        try:
            if label in left_out:
                raise Absent(left_out[label])
            launch = make(inputs, shape)
            agree(label.rpartition("_")[2], launch(), expected)
            launches[label] = launch
        except Absent as reason:
            row.absent[label] = _without_paths(str(reason))
        except Exception as error:  # a baseline of another project may fail in any way
            last = (str(error).strip().splitlines() or [""])[-1]
            row.absent[label] = _without_paths(f"{type(error).__name__}: {last}")[:300]
        torch.cuda.synchronize()
    row.times = time_all(launches, rounds)
    if eager:
        row.eager = time_all(launches, rounds, graph=False)
    return row


def _without_paths(text: str) -> str:
    """Remove folder names from a text, because published results should not contain paths of the machine."""
    return re.sub(r"(?<![\w.])/[^\s'\"),:]+/", "", text)


def in_dtype(inputs: Iterable[Tensor], dtype: str) -> list[Tensor]:
    """Convert the inputs to a dtype of the kernels."""
    import torch

    return [x.to(getattr(torch, TORCH_NAMES[dtype])) for x in inputs]


def torch_output(inputs: tuple[Tensor, ...], shape: Shape) -> Tensor:
    """Compute PyTorch's output for the same inputs. PyTorch chooses the backend."""
    import torch

    q, k, v = inputs
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=shape.causal, enable_gqa=True)


def agree(dtype: str, out: Tensor, expected: Tensor) -> None:
    """Raise Absent if `out`, computed in `dtype`, differs too much from PyTorch's output."""
    tolerance = TOLERANCE.get(dtype, TOLERANCE["bf16"])
    # About 1024 rows of each head: all of them would take gigabytes in float32 for large shapes.
    rows = slice(None, None, 1 + expected.shape[2] // 1024)
    out, expected = out[:, :, rows].float(), expected[:, :, rows].float()
    error = ((out - expected).abs().amax(-1) / expected.abs().amax(-1)).max().item()
    if not error <= tolerance:
        raise Absent(
            f"wrong: a row differs from PyTorch's by {error:.2g} of its largest value, {tolerance:.2g} allowed"
        )


def subject(label: str, inputs: tuple[Tensor, ...], shape: Shape) -> Callable[[], Any]:
    """Return a function that launches one of this package's kernels. Raises Absent."""
    kernel, _, dtype = label.partition("_")
    if kernel not in KERNELS or dtype not in TORCH_NAMES:
        raise ValueError(
            f"subject {label!r}: must be one of {', '.join(KERNELS)}, '_' and one of {', '.join(TORCH_NAMES)}"
        )
    try:
        attention = launcher(kernel).attention
    except ImportError as error:
        raise Absent(f"{kernel}: {error}") from None
    launch = functools.partial(attention, *in_dtype(inputs, dtype), causal="top-left" if shape.causal else None)
    try:
        launch()
    except (TypeError, ValueError) as error:
        raise Absent(str(error)) from None
    return launch


def baseline(name: str, inputs: tuple[Tensor, ...], shape: Shape) -> Callable[[], Any]:
    """Return a function that launches another attention. Raises Absent."""
    return {"sdpa_flash": _sdpa, "cudnn": _sdpa, "flex": _flex, "fa4": _fa4}[name](name, inputs, shape)


def _sdpa(name: str, inputs: tuple[Tensor, ...], shape: Shape) -> Callable[[], Any]:
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.functional import scaled_dot_product_attention

    backend = {"sdpa_flash": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION}[name]

    def launch() -> Tensor:
        with sdpa_kernel(backend):
            return scaled_dot_product_attention(*inputs, is_causal=shape.causal, enable_gqa=True)

    return launch


def _flex(name: str, inputs: tuple[Tensor, ...], shape: Shape) -> Callable[[], Any]:
    import torch
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    torch._dynamo.reset()
    compiled = torch.compile(flex_attention, dynamic=False)
    gqa = inputs[0].shape[1] != inputs[1].shape[1]
    mask = None
    if shape.causal:
        length = shape.seqlen_q
        mask = create_block_mask(lambda b, h, i, j: i >= j, None, None, length, length, device="cuda")
    return functools.partial(compiled, *inputs, block_mask=mask, enable_gqa=gqa)


def _fa4(name: str, inputs: tuple[Tensor, ...], shape: Shape) -> Callable[[], Any]:
    try:
        from flash_attn.cute import flash_attn_func
    except Exception as error:
        raise Absent(f"FlashAttention-4 (flash_attn.cute) cannot be imported: {error}") from None
    q, k, v = (x.transpose(1, 2).contiguous() for x in inputs)

    def launch() -> Tensor:
        out = flash_attn_func(q, k, v, causal=shape.causal)
        return (out[0] if isinstance(out, tuple) else out).transpose(1, 2)

    return launch


def geomean(values: Iterable[float | None]) -> float | None:
    """Compute the geometric mean of the values that are not None; None if there is no such value."""
    logs = [math.log(value) for value in values if value is not None]
    return math.exp(sum(logs) / len(logs)) if logs else None


def table(rows: list[Row], against: tuple[str, ...] = ("sdpa_flash", "cudnn", "fa4")) -> str:
    """Format a text table of TFLOPS, with each subject's ratios to the baselines in the last lines."""
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
