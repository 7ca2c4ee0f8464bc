"""`quantize` and `quantize_qkv`: bf16, fp16 or fp32 to FP8, with a scale for each head of each sequence, on the device.

What they compute is in kernel_quantize.py. Plain calls go straight to the launch; under torch.compile and the like
they are torch operators, as `attention` is.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any, NamedTuple

import torch

from ..compile import abi
from ..compile import cache as compiled
from ..launch import prepare as launch
from .config import Cut, QuantizeConfig, cut, fits_whole, why_not

IN = {torch.bfloat16: "bf16", torch.float16: "fp16", torch.float32: "fp32"}
OUT = {torch.float8_e4m3fn: "e4m3", torch.float8_e5m2: "e5m2"}
NAMES = {1: ("x",), 3: ("q", "k", "v")}
MOST_BLOCKS = 2**31 - 1  # of a grid

Tensors = tuple[torch.Tensor, ...]
Starts = tuple[torch.Tensor, ...]


class Call(NamedTuple):
    """What is asked for, beside the tensors.

    longest: rows of the longest sequence of each tensor.
    config: this kernel instead of the planned one, for tests.
    """

    dtype: torch.dtype
    longest: tuple[int, ...]
    config: QuantizeConfig | None = None


_LIBRARY = torch.library.Library("sm120_attn", "FRAGMENT")
_LIBRARY.define(
    "quantize(Tensor x, ScalarType dtype, Tensor? cu_seqlens, SymInt max_seqlen) -> (Tensor, Tensor)",
    tags=(torch.Tag.pt2_compliant_tag,),
)
_LIBRARY.define(
    "quantize_qkv(Tensor q, Tensor k, Tensor v, ScalarType dtype, Tensor? cu_seqlens_q, Tensor? cu_seqlens_k, "
    "SymInt max_seqlen_q, SymInt max_seqlen_k) -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
    tags=(torch.Tag.pt2_compliant_tag,),
)


def quantize(
    x: torch.Tensor,
    dtype: torch.dtype = torch.float8_e4m3fn,
    *,
    cu_seqlens: torch.Tensor | None = None,
    max_seqlen: int | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """FP8 values and what they are to be multiplied with: (y, descale), x being about y * descale.

    x           [batch, rows, heads, head_dim], bfloat16, float16 or float32, any strides; head_dim 32 to 256 in steps
                of 8. Packed sequences: [total rows, heads, head_dim], with cu_seqlens (int32, [batch + 1]) and
                max_seqlen, rows of the longest
    dtype       float8_e4m3fn or float8_e5m2
    y           of x's shape; rows begin at multiples of 16 bytes, as attention wants them: contiguous where head_dim is
                a multiple of 16
    descale     float32, [batch, heads]: the largest absolute value of a head, over 448 (e5m2: 57344)

    y is x * (448 / amax), in float32, rounded to nearest. A head of zeros (or of nothing above 2^-100) has descale 1. A
    NaN makes its head NaN, descale and all; an infinity makes descale infinite, itself NaN, and the head's rest 0.

    Nothing waits for the GPU. Raises TypeError or ValueError for what is not supported.
    """
    longest = _longest(cu_seqlens, max_seqlen, x, "max_seqlen", "cu_seqlens")
    run = _quantize if launch.is_plain(x) else torch.ops.sm120_attn.quantize
    return run(x, dtype, cu_seqlens, longest)


def quantize_qkv(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    dtype: torch.dtype = torch.float8_e4m3fn,
    *,
    cu_seqlens_q: torch.Tensor | None = None,
    cu_seqlens_k: torch.Tensor | None = None,
    max_seqlen_q: int | None = None,
    max_seqlen_k: int | None = None,
) -> tuple[tuple[torch.Tensor, torch.Tensor, torch.Tensor], tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
    """`quantize` of three tensors in the same launches: ((q, k, v), (q_descale, k_descale, v_descale)).

    k and v may have other lengths and heads than q; head_dim and dtype are the same.
    """
    longest_q = _longest(cu_seqlens_q, max_seqlen_q, q, "max_seqlen_q", "cu_seqlens_q")
    longest_k = _longest(cu_seqlens_k, max_seqlen_k, k, "max_seqlen_k", "cu_seqlens_k")
    if (cu_seqlens_q is None) != (cu_seqlens_k is None):
        raise ValueError("packed sequences need both cu_seqlens_q and cu_seqlens_k")
    run = _quantize_qkv if launch.is_plain(q, k, v) else torch.ops.sm120_attn.quantize_qkv
    found = run(q, k, v, dtype, cu_seqlens_q, cu_seqlens_k, longest_q, longest_k)
    return found[:3], found[3:]


def _longest(starts: torch.Tensor | None, longest: int | None, x: torch.Tensor, name: str, starts_name: str) -> int:
    """Rows of the longest sequence."""
    if starts is not None:
        if longest is None:
            raise ValueError(f"{name} is needed with {starts_name}: reading it from there would wait for the GPU")
        return longest
    return x.shape[1] if isinstance(x, torch.Tensor) and x.dim() == 4 else 0


# --- what a call may be ------------------------------------------------------------------------------------------


def check(xs: Tensors, starts: Starts, call: Call) -> None:
    """Raises TypeError or ValueError, with what is wrong and what would be right. Looks at no data."""
    dtype, longest = call.dtype, call.longest
    if dtype not in OUT:
        raise TypeError(f"dtype is {dtype}: must be torch.float8_e4m3fn or torch.float8_e5m2")
    form = "[total, heads, head_dim]" if starts else "[batch, rows, heads, head_dim]"
    first = xs[0]
    for name, x in zip(NAMES[len(xs)], xs, strict=True):
        if not isinstance(x, torch.Tensor):
            raise TypeError(f"{name} is of type {type(x).__name__}: must be a torch.Tensor")
        if x.dim() != (3 if starts else 4):
            raise ValueError(f"{name} has {x.dim()} dimensions {launch.sizes(x)}: must be {form}")
        if x.dtype not in IN:
            raise TypeError(f"{name} is {x.dtype}: must be torch.bfloat16, torch.float16 or torch.float32")
        if x.device.type != "cuda":
            raise ValueError(f"{name} is on {x.device}: must be on a CUDA device")
        if (x.dtype, x.device, x.shape[-1]) != (first.dtype, first.device, first.shape[-1]):
            raise ValueError(
                f"{name} is {launch.sizes(x)} of {x.dtype} on {x.device}, q {launch.sizes(first)} of {first.dtype} on "
                f"{first.device}: head_dim, dtype and device must be the same"
            )
        if max(x.shape) > launch.MAX_SIZE:
            raise ValueError(f"{name} has a size of {max(x.shape)}: sizes go up to {launch.MAX_SIZE}")
    names = ("cu_seqlens",) if len(xs) == 1 else ("cu_seqlens_q", "cu_seqlens_k")
    for name, tensor in zip(names, starts, strict=False):
        launch.check_offsets(name, tensor, first)
    if min(longest) < 0:
        raise ValueError(f"max_seqlen is {min(longest)}: must be the rows of the longest sequence, at least 0")


# --- a call in the making ----------------------------------------------------------------------------------------


class Prepared:
    """All that is known of calls that look alike; see launch.Prepared."""

    __slots__ = ("at", "call", "copies", "descales", "index", "kernel", "local", "out", "places", "plain", "scratch")
    __slots__ += ("values",)

    def __init__(self, xs: Tensors, call: Call, descales: list[tuple[int, int]]) -> None:
        self.call = call
        self.index = xs[0].get_device()
        self.out = call.dtype
        self.descales = descales
        self.copies = not all(launch.is_aligned(x) for x in xs)
        # Outputs that are like their inputs: torch makes those faster.
        self.plain = all(x.is_contiguous() and launch.whole_rows(x.shape[-1], 1) == x.shape[-1] for x in xs)
        self.kernel: compiled.Compiled | None = None  # None: there is nothing to launch
        self.scratch = 0  # words of memory between the launches; 0: there is one
        self.values: list[Any] = []
        self.places: dict[str, int] = {}
        self.at: list[tuple[int, int, int]] = []  # of each x, y and descale
        self.local = threading.local()

    def run(self, xs: Tensors, starts: Starts) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        first, out = xs[0], self.out
        ys = [torch.empty_like(x, dtype=out) for x in xs] if self.plain else [output(x, out) for x in xs]
        if self.kernel is None:
            return ys, [first.new_ones(size, dtype=torch.float32) for size in self.descales]
        buffer = getattr(self.local, "buffer", None) or self._buffer()
        words, descales = buffer.words, []
        for x, y, size, (at_x, at_y, at_descale) in zip(xs, ys, self.descales, self.at, strict=True):
            address = x.data_ptr()
            if self.copies or address % launch.ALIGN_BYTES:
                return _run(tuple(launch.aligned_copy(x) for x in xs), starts, self.call)
            descale = first.new_empty(size, dtype=torch.float32)
            descales.append(descale)
            words[at_x] = address
            words[at_y] = y.data_ptr()
            words[at_descale] = descale.data_ptr()
        for i, start in enumerate(starts):
            words[self.places[f"starts{i}"]] = start.data_ptr()
        if self.scratch:
            scratch = first.new_empty(self.scratch, dtype=torch.int32)
            words[self.places["partials"]] = scratch.data_ptr()
        launch.enter(self.kernel, buffer, self.places["stream"], self.index)
        return ys, descales

    def _buffer(self) -> abi.Buffer:
        """This thread's: the GIL is not held while a launch reads it."""
        assert self.kernel is not None
        buffer = self.local.buffer = abi.Buffer(self.kernel.layout)
        buffer.fill(self.values)
        return buffer


def output(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Room for the FP8 values, in rows that begin at multiples of 16 bytes."""
    *outer, columns = x.shape
    wide = launch.whole_rows(columns, dtype.itemsize)
    if wide == columns:
        return x.new_empty(x.shape, dtype=dtype)
    return x.new_empty_strided(x.shape, launch.contiguous_strides((*outer, wide)), dtype=dtype)


prepared: dict[tuple[Any, ...], Prepared] = {}


def _run(xs: Tensors, starts: Starts, call: Call) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """(outputs, descales)"""
    facts: list[Any] = [call]
    for x in xs:
        facts += (x.shape, x.stride(), x.dtype, x.get_device())
    for start in starts:
        facts += (start.shape, start.stride(), start.dtype, start.get_device())
    key = tuple(facts)
    found = prepared.get(key)
    if found is None:
        check(xs, starts, call)
        found = _prepare(xs, starts, call)
        if len(prepared) >= launch.KEPT_CALLS:
            prepared.clear()
        prepared[key] = found
    return found.run(xs, starts)


def plan(xs: Tensors, starts: Starts, call: Call) -> QuantizeConfig:
    """The kernel for these tensors."""
    arch, _ = launch.device_facts(xs[0].get_device())
    config = QuantizeConfig(arch, IN[xs[0].dtype], OUT[call.dtype], xs[0].shape[-1], len(xs), bool(starts))
    whole = replace(config, whole=True)
    return whole if fits_whole(whole, max(call.longest)) else config


def _prepare(xs: Tensors, starts: Starts, call: Call) -> Prepared:
    """Compiles or loads the kernel if this process does not have it."""
    config = call.config or plan(xs, starts, call)
    wrong = why_not(config)
    if wrong:
        raise ValueError(wrong)
    batches = [starts[min(i, len(starts) - 1)].shape[0] - 1 if starts else x.shape[0] for i, x in enumerate(xs)]
    sizes = [(batch, x.shape[-2]) for batch, x in zip(batches, xs, strict=True)]
    made = Prepared(xs, call, sizes)
    heads, longest = sum(batch * count for batch, count in sizes), max(call.longest)
    if not heads or not any(x.numel() for x in xs) or not longest:
        return made
    work = cut(config, heads, longest, l2_bytes(made.index))
    if max(work.blocks, longest * config.row_vectors) > MOST_BLOCKS:
        raise ValueError(f"{heads} heads of up to {longest} rows are too many; quantise them in parts")
    if not compiled.is_ready(config) and torch.cuda.is_current_stream_capturing():
        raise RuntimeError(
            f"{config.name} is not compiled yet, and a CUDA graph is being captured: "
            "call quantize once with such tensors before the capture"
        )
    made.kernel = compiled.get(config)
    made.scratch = 0 if config.whole else work.scratch
    fields = _fields(xs, sizes, work)
    for slot in made.kernel.layout.slots:
        field = fields[slot.name]
        made.values += abi.tensor_values(slot, 0, *field) if slot.rank else (field,)
    places = made.places = made.kernel.layout.places
    made.at = [(places[f"x{i}"], places[f"y{i}"], places[f"descale{i}"]) for i in range(len(xs))]
    return made


def _fields(xs: Tensors, sizes: list[tuple[int, int]], work: Cut) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "partials": ((work.scratch,), (1,)),
        "pieces": work.pieces,
        "chunks": work.chunks,
        "group": work.group,
        "stream": 0,
    }
    for i, (x, size) in enumerate(zip(xs, sizes, strict=True)):
        fields[f"x{i}"] = (x.shape, launch.strides(x))
        rows = (*x.shape[:-1], launch.whole_rows(x.shape[-1], 1))
        fields[f"y{i}"] = (x.shape, launch.contiguous_strides(rows))
        fields[f"descale{i}"] = (size, (size[1], 1))
        fields[f"starts{i}"] = ((size[0] + 1,), (1,))
    return fields


def l2_bytes(index: int) -> int:
    return torch.cuda.get_device_properties(index).L2_cache_size


# --- torch operators ---------------------------------------------------------------------------------------------


def _quantize(
    x: torch.Tensor, dtype: torch.dtype, cu_seqlens: torch.Tensor | None, max_seqlen: int
) -> tuple[torch.Tensor, torch.Tensor]:
    ys, descales = _run((x,), () if cu_seqlens is None else (cu_seqlens,), Call(dtype, (max_seqlen,)))
    return ys[0], descales[0]


def _quantize_qkv(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    dtype: torch.dtype,
    cu_seqlens_q: torch.Tensor | None,
    cu_seqlens_k: torch.Tensor | None,
    max_seqlen_q: int,
    max_seqlen_k: int,
) -> tuple[torch.Tensor, ...]:
    starts = () if cu_seqlens_q is None or cu_seqlens_k is None else (cu_seqlens_q, cu_seqlens_k)
    ys, descales = _run((q, k, v), starts, Call(dtype, (max_seqlen_q, max_seqlen_k, max_seqlen_k)))
    return (*ys, *descales)


def _fake(
    x: torch.Tensor, dtype: torch.dtype, cu_seqlens: torch.Tensor | None, max_seqlen: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Shapes only; the checks are those of the launch, when it comes."""
    batch = x.shape[0] if cu_seqlens is None else cu_seqlens.shape[0] - 1
    return output(x, dtype), x.new_empty((batch, x.shape[-2]), dtype=torch.float32)


def _fake_qkv(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    dtype: torch.dtype,
    cu_seqlens_q: torch.Tensor | None,
    cu_seqlens_k: torch.Tensor | None,
    max_seqlen_q: int,
    max_seqlen_k: int,
) -> tuple[torch.Tensor, ...]:
    pairs = [_fake(x, dtype, s, 0) for x, s in ((q, cu_seqlens_q), (k, cu_seqlens_k), (v, cu_seqlens_k))]
    return (*(y for y, _ in pairs), *(descale for _, descale in pairs))


def _backward(context: Any, *gradients: Any) -> Any:
    raise NotImplementedError(
        "sm120_attn.quantize has no backward; call it under torch.no_grad(), or with x.detach() and the like"
    )


for _name, _implementation, _shapes in (
    ("quantize", _quantize, _fake),
    ("quantize_qkv", _quantize_qkv, _fake_qkv),
):
    _LIBRARY.impl(_name, _implementation, "CUDA")
    torch.library.register_fake(f"sm120_attn::{_name}", _shapes, lib=_LIBRARY)
    torch.library.register_autograd(f"sm120_attn::{_name}", _backward, lib=_LIBRARY)
