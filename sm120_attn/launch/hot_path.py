"""Work done at every call: decide if the call may launch directly, compute the key of its PreparedCall, and launch."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from typing import Any

import torch

from ..compile import abi
from ..compile.cache import Compiled
from .call import DESCALES, Call, Tensors, output_dtype
from .strides import ALIGN_BYTES, aligned_copy, lse_shape

PLAIN = (torch.Tensor, torch.nn.Parameter)  # a subclass may intercept operators
is_compiling, is_grad_enabled = torch.compiler.is_compiling, torch.is_grad_enabled  # saves a lookup per call

Result = tuple[torch.Tensor, torch.Tensor | None]  # O, and LSE or None


def is_plain(*tensors: torch.Tensor) -> bool:
    """Check whether a call may launch directly: nothing traces or intercepts it, and no tensor requires a gradient."""
    if is_compiling():
        return False
    gradients = is_grad_enabled()
    for tensor in tensors:
        if type(tensor) not in PLAIN or (gradients and tensor.requires_grad):
            return False
    return not torch._C._len_torch_dispatch_stack()


def facts_of(tensors: Tensors | tuple[Any, ...], asked: tuple[Any, ...]) -> tuple[Any, ...]:
    """Collect everything that decides how a call is launched, except addresses and the stream. asked: the options.

    tensors: in the order of Tensors; building that NamedTuple would slow down every call. Calls with equal facts share
    a PreparedCall.
    """
    q, k, v, cu_seqlens_q, cu_seqlens_k, q_descale, k_descale, v_descale, sinks = tensors
    facts: tuple[Any, ...] = (
        asked, q.shape, q.stride(), k.shape, k.stride(), v.shape, v.stride(), q.dtype, k.dtype, v.dtype,
        q.get_device(), k.get_device(), v.get_device(),
    )  # fmt: skip
    if cu_seqlens_q is not None or cu_seqlens_k is not None:
        facts += _facts_of_others(cu_seqlens_q, cu_seqlens_k)
    if not q_descale is k_descale is v_descale is None:
        facts += _facts_of_others(q_descale, k_descale, v_descale)
    if sinks is not None:
        facts += _facts_of_others(sinks)
    return facts


def _facts_of_others(*tensors: torch.Tensor | None) -> tuple[Any, ...]:
    return tuple(t if t is None else (t.shape, t.stride(), t.dtype, t.get_device()) for t in tensors)


class Launcher:
    """A kernel with its arguments, which can be launched repeatedly with other addresses.

    kernel: None if there is nothing to launch. values: the kernel's arguments, with addresses of 0. places: see
    abi.Layout.
    """

    __slots__ = ("kernel", "local", "places", "values")

    def __init__(self) -> None:
        self.kernel: Compiled | None = None
        self.values: list[Any] = []
        self.places: dict[str, int] = {}
        self.local = threading.local()

    def set_kernel(self, kernel: Compiled, values: list[Any]) -> None:
        self.kernel, self.values, self.places = kernel, values, kernel.layout.places

    def make_buffer(self, kernel: Compiled) -> abi.ArgumentBuffer:
        """Make this thread's buffer. Threads cannot share one: a launch reads it without holding the GIL."""
        buffer: abi.ArgumentBuffer = abi.ArgumentBuffer(kernel.layout)
        buffer.fill(self.values)
        self.local.buffer = buffer
        return buffer


class PreparedCall(Launcher):
    """The state that calls with equal facts share. `run` is executed at every call, so it must be fast.

    copies: which of q, k and v must be copied before the launch, because of their strides.
    relaunch: function that makes the call with the copied tensors.
    """

    __slots__ = (
        *("at", "call", "contiguous", "copies", "index", "lse_shape", "one", "out_dtype", "relaunch", "shape"),
    )

    def __init__(
        self,
        tensors: Tensors,
        call: Call,
        copies: tuple[bool, ...],
        relaunch: Callable[[Tensors, Call], Result],
    ) -> None:
        super().__init__()
        q = tensors.q
        self.call = call
        self.index = q.get_device()
        self.shape = q.shape
        self.out_dtype = output_dtype(q, call.out_dtype)
        self.contiguous = q.is_contiguous() and self.out_dtype == q.dtype
        self.one: torch.Tensor | None = None  # a descale of 1, for tensors without a descale
        self.lse_shape = lse_shape(q) if call.lse else None
        self.copies = copies if any(copies) else None
        self.relaunch = relaunch
        self.at: tuple[int, ...] = ()  # the buffer's words that every call writes

    def set_kernel(self, kernel: Compiled, values: list[Any]) -> None:
        super().set_kernel(kernel, values)
        self.at = tuple(self.places[name] for name in ("q", "k", "v", "o", "stream"))

    def run(self, tensors: Tensors | tuple[Any, ...]) -> Result:
        """Launch on torch's current stream of q's device. Does not wait. tensors: in the order of Tensors."""
        q, k, v, cu_seqlens_q, cu_seqlens_k, q_descale, k_descale, v_descale, sinks = tensors
        if self.kernel is None:
            return zeros(q, self.shape, self.out_dtype, self.lse_shape, sinks)
        q_at, k_at, v_at = q.data_ptr(), k.data_ptr(), v.data_ptr()
        if self.copies is not None or (q_at | k_at | v_at) % ALIGN_BYTES:
            return self._with_copies(Tensors(*tensors))
        buffer = getattr(self.local, "buffer", None) or self.make_buffer(self.kernel)
        words = buffer.words
        at_q, at_k, at_v, at_o, at_stream = self.at
        # empty_like is cheaper than new_empty
        o = torch.empty_like(q) if self.contiguous else q.new_empty(self.shape, dtype=self.out_dtype)
        words[at_q] = q_at
        words[at_k] = k_at
        words[at_v] = v_at
        words[at_o] = o.data_ptr()
        lse = None
        if self.lse_shape is not None:
            lse = q.new_empty(self.lse_shape, dtype=torch.float32)
            words[self.places["lse"]] = lse.data_ptr()
        if cu_seqlens_q is not None and cu_seqlens_k is not None:
            words[self.places["cu_seqlens_q"]] = cu_seqlens_q.data_ptr()
            words[self.places["cu_seqlens_k"]] = cu_seqlens_k.data_ptr()
        if sinks is not None:
            words[self.places["sinks"]] = sinks.data_ptr()
        if self.one is not None:
            for name, descale in zip(DESCALES, (q_descale, k_descale, v_descale), strict=True):
                words[self.places[name]] = (self.one if descale is None else descale).data_ptr()
        enter(self.kernel, buffer, at_stream, self.index)
        return o, lse

    def _with_copies(self, tensors: Tensors) -> Result:
        """Copy tensors whose rows do not start at multiples of 16 bytes, and make the call with the copies."""
        copies = self.copies or (False, False, False)
        q, k, v = (
            aligned_copy(t) if copy or t.data_ptr() % ALIGN_BYTES else t
            for t, copy in zip(tensors[:3], copies, strict=True)
        )
        return self.relaunch(tensors._replace(q=q, k=k, v=v), self.call)


def zeros(
    q: torch.Tensor,
    shape: torch.Size,
    dtype: torch.dtype,
    lse_shape: tuple[int, ...] | None,
    sinks: torch.Tensor | None,
) -> Result:
    """Make the result of a call in which no query sees a key: O is 0, and LSE is -inf or the head's sink."""
    lse = None
    if lse_shape is not None:
        lse = q.new_full(lse_shape, -math.inf, dtype=torch.float32)
        if sinks is not None:
            lse.copy_(sinks[:, None].expand(lse_shape))
    return q.new_zeros(shape, dtype=dtype), lse


def enter(kernel: Compiled, buffer: abi.ArgumentBuffer, stream: int, index: int) -> None:
    """Call the compiled host function on torch's current stream of device `index`. stream: Layout.places["stream"]."""
    buffer.words[stream] = torch._C._cuda_getCurrentRawStream(index)
    if torch._C._cuda_getDevice() == index:
        kernel.entry(buffer.address)
    else:
        with torch.cuda.device(index):
            kernel.entry(buffer.address)
    if buffer.error.value:
        name = _error_name(buffer.error.value)
        raise RuntimeError(f"CUDA error {name} at the launch of {kernel.config.name}")


def _error_name(code: int) -> str:
    try:
        from cuda.bindings import runtime

        name = runtime.cudaGetErrorName(runtime.cudaError_t(code))[1]
        return f"{code} ({name.decode()})"
    except Exception:  # unknown error code, or no suitable CUDA bindings
        return str(code)
