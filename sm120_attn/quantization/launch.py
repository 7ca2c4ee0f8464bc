"""Launch a quantisation kernel. As in ../launch/ for attention, calls are prepared once and then repeated."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import torch

from ..compile import cache as kernels
from ..kernels.quantize.config import Cut, QuantizeConfig, cut, fits_whole, why_not
from ..launch.checks import MAX_SIZE, check_cu_seqlens, sizes
from ..launch.hot_path import Launcher, enter
from ..launch.prepare import device_facts, fill, keep, refuse_in_capture
from ..launch.strides import ALIGN_BYTES, aligned_copy, contiguous_strides, is_aligned, kernel_strides, whole_rows

IN_DTYPES = {torch.bfloat16: "bf16", torch.float16: "fp16", torch.float32: "fp32"}
OUT_DTYPES = {torch.float8_e4m3fn: "e4m3", torch.float8_e5m2: "e5m2"}
NAMES = {1: ("x",), 3: ("q", "k", "v")}
MOST_BLOCKS = 2**31 - 1  # limit of a grid

Tensors = tuple[torch.Tensor, ...]  # x; or q, k and v
Starts = tuple[torch.Tensor, ...]  # (cu_seqlens,) or (cu_seqlens_q, cu_seqlens_k); empty if not packed
Result = tuple[list[torch.Tensor], list[torch.Tensor]]  # outputs, descales


class QuantizeCall(NamedTuple):
    """Options of a call, without its tensors.

    longest: length of the longest sequence of each tensor.
    config: replaces the planned kernel; l2_bytes: replaces the device's L2 size. Both are for tests.
    """

    dtype: torch.dtype
    longest: tuple[int, ...]
    config: QuantizeConfig | None = None
    l2_bytes: int | None = None


def check(xs: Tensors, starts: Starts, call: QuantizeCall) -> None:
    """Raise TypeError or ValueError, with the wrong value and the requirement. Reads no data on the device."""
    dtype, longest = call.dtype, call.longest
    if dtype not in OUT_DTYPES:
        raise TypeError(f"dtype is {dtype}: must be torch.float8_e4m3fn or torch.float8_e5m2")
    form = "[total, heads, head_dim]" if starts else "[batch, rows, heads, head_dim]"
    first = xs[0]
    for name, x in zip(NAMES[len(xs)], xs, strict=True):
        if not isinstance(x, torch.Tensor):
            raise TypeError(f"{name} is of type {type(x).__name__}: must be a torch.Tensor")
        if x.dim() != (3 if starts else 4):
            raise ValueError(f"{name} has {x.dim()} dimensions {sizes(x)}: must be {form}")
        if x.dtype not in IN_DTYPES:
            raise TypeError(f"{name} is {x.dtype}: must be torch.bfloat16, torch.float16 or torch.float32")
        if x.device.type != "cuda":
            raise ValueError(f"{name} is on {x.device}: must be on a CUDA device")
        if (x.dtype, x.device, x.shape[-1]) != (first.dtype, first.device, first.shape[-1]):
            raise ValueError(
                f"{name} is {sizes(x)} of {x.dtype} on {x.device}, q is {sizes(first)} of {first.dtype} on "
                f"{first.device}: head_dim, dtype and device must be the same"
            )
        if max(x.shape) > MAX_SIZE:
            raise ValueError(f"{name} has a size of {max(x.shape)}: must be at most {MAX_SIZE}")
    names = ("cu_seqlens",) if len(xs) == 1 else ("cu_seqlens_q", "cu_seqlens_k")
    for name, tensor in zip(names, starts, strict=False):
        check_cu_seqlens(name, tensor, first)
    if min(longest) < 0:
        raise ValueError(f"max_seqlen is {min(longest)}: must be the longest sequence's number of rows, at least 0")


class PreparedQuantize(Launcher):
    """The state that equal calls share; see launch.hot_path.PreparedCall.

    scratch: number of words that the first kernel passes to the second; 0 with one kernel.
    """

    __slots__ = ("at", "call", "copies", "descales", "dtype", "index", "like_inputs", "scratch")

    def __init__(self, xs: Tensors, call: QuantizeCall, descales: list[tuple[int, int]]) -> None:
        super().__init__()
        self.call = call
        self.index = xs[0].get_device()
        self.dtype = call.dtype
        self.descales = descales
        self.copies = not all(is_aligned(x) for x in xs)
        # Whether outputs can have the strides of their inputs. torch allocates such tensors faster.
        self.like_inputs = all(x.is_contiguous() and whole_rows(x.shape[-1], 1) == x.shape[-1] for x in xs)
        self.scratch = 0
        self.at: list[tuple[int, int, int]] = []  # the buffer's words of each x, y and descale

    def set_kernel(self, kernel: kernels.Compiled, values: list[Any]) -> None:
        super().set_kernel(kernel, values)
        places = self.places
        self.at = [(places[f"x{i}"], places[f"y{i}"], places[f"descale{i}"]) for i in range(len(self.descales))]

    def run(self, xs: Tensors, starts: Starts) -> Result:
        first, dtype = xs[0], self.dtype
        ys = [torch.empty_like(x, dtype=dtype) if self.like_inputs else new_output(x, dtype) for x in xs]
        if self.kernel is None:
            return ys, [first.new_ones(size, dtype=torch.float32) for size in self.descales]
        buffer = getattr(self.local, "buffer", None) or self.make_buffer(self.kernel)
        words, descales = buffer.words, []
        for x, y, size, (at_x, at_y, at_descale) in zip(xs, ys, self.descales, self.at, strict=True):
            address = x.data_ptr()
            if self.copies or address % ALIGN_BYTES:
                return run(tuple(aligned_copy(x) for x in xs), starts, self.call)
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
        enter(self.kernel, buffer, self.places["stream"], self.index)
        return ys, descales


def new_output(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Make an empty tensor for the FP8 values, with rows that begin at multiples of 16 bytes."""
    *outer, columns = x.shape
    wide = whole_rows(columns, dtype.itemsize)
    if wide == columns:
        return x.new_empty(x.shape, dtype=dtype)
    return x.new_empty_strided(x.shape, contiguous_strides((*outer, wide)), dtype=dtype)


prepared_calls: dict[tuple[Any, ...], PreparedQuantize] = {}


def run(xs: Tensors, starts: Starts, call: QuantizeCall) -> Result:
    """Launch the quantisation on torch's current stream. Does not wait for the GPU."""
    facts: list[Any] = [call]
    for x in xs:
        facts += (x.shape, x.stride(), x.dtype, x.get_device())
    for start in starts:
        facts += (start.shape, start.stride(), start.dtype, start.get_device())
    key = tuple(facts)
    found = prepared_calls.get(key)
    if found is None:
        check(xs, starts, call)
        found = keep(prepared_calls, key, _prepare(xs, starts, call))
    return found.run(xs, starts)


def plan(xs: Tensors, starts: Starts, call: QuantizeCall) -> QuantizeConfig:
    """Choose the kernel for these tensors."""
    arch, _ = device_facts(xs[0].get_device())
    x = xs[0]
    config = QuantizeConfig(arch, IN_DTYPES[x.dtype], OUT_DTYPES[call.dtype], x.shape[-1], len(xs), bool(starts))
    whole = replace(config, whole=True)
    return whole if fits_whole(whole, max(call.longest)) else config


def _prepare(xs: Tensors, starts: Starts, call: QuantizeCall) -> PreparedQuantize:
    """Make a PreparedQuantize. Compile or load its kernel if this process has not done so yet."""
    config = call.config or plan(xs, starts, call)
    wrong = why_not(config)
    if wrong:
        raise ValueError(wrong)
    batches = [starts[min(i, len(starts) - 1)].shape[0] - 1 if starts else x.shape[0] for i, x in enumerate(xs)]
    descales = [(batch, x.shape[-2]) for batch, x in zip(batches, xs, strict=True)]
    made = PreparedQuantize(xs, call, descales)
    heads, longest = sum(batch * count for batch, count in descales), max(call.longest)
    if not heads or not any(x.numel() for x in xs) or not longest:
        return made
    work = cut(config, heads, longest, l2_bytes(made.index) if call.l2_bytes is None else call.l2_bytes)
    if max(work.blocks, longest * config.row_vectors) > MOST_BLOCKS:
        raise ValueError(f"{heads} heads of up to {longest} rows are too many; quantise them in parts")
    refuse_in_capture(config, "quantize")
    kernel = kernels.get(config)
    made.scratch = 0 if config.whole else work.scratch
    made.set_kernel(kernel, fill(kernel, _arguments(xs, descales, work)))
    return made


def _arguments(xs: Tensors, descales: list[tuple[int, int]], work: Cut) -> dict[str, Any]:
    """Map the names of the kernel's arguments to their values: (sizes, strides) of a tensor, or a number."""
    arguments: dict[str, Any] = {
        "partials": ((work.scratch,), (1,)),
        "pieces": work.pieces,
        "chunks": work.chunks,
        "group": work.group,
        "stream": 0,
    }
    for i, (x, size) in enumerate(zip(xs, descales, strict=True)):
        arguments[f"x{i}"] = (x.shape, kernel_strides(x))
        rows = (*x.shape[:-1], whole_rows(x.shape[-1], 1))
        arguments[f"y{i}"] = (x.shape, contiguous_strides(rows))
        arguments[f"descale{i}"] = (size, (size[1], 1))
        arguments[f"starts{i}"] = ((size[0] + 1,), (1,))
    return arguments


def l2_bytes(index: int) -> int:
    """Read the size of a device's L2 cache."""
    return int(torch.cuda.get_device_properties(index).L2_cache_size)
