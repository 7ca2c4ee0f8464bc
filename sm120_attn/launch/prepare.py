"""From tensors to a launch: checks them, picks and gets the kernel, fills its arguments. Compiling is compiled.py's.

What a call costs on the host is part of its speed where sequences are short. Everything that follows from shapes,
strides and flags is worked out once and kept (`Prepared`); a call that looks like an earlier one puts its addresses and
the stream in, and jumps into the compiled host function.
"""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Sequence
from dataclasses import replace
from functools import cache, lru_cache
from typing import Any, NamedTuple

import torch

from ..compile import abi
from ..compile import cache as compiled
from ..config import ALIGNMENTS, FP8, FP8_MMA_VARIABLE, FP8_MMAS, Config
from ..mask_bounds import Bounds, whole_tiles
from ..planner import Shape, plan

DTYPES = {
    torch.bfloat16: "bf16", torch.float16: "fp16", torch.float8_e4m3fn: "e4m3", torch.float8_e5m2: "e5m2",
}  # fmt: skip
OUT_DTYPES = {torch.bfloat16: "bf16", torch.float16: "fp16", torch.float32: "fp32"}
ARCHS = {(12, 0): "sm_120a", (12, 1): "sm_121a", (9, 0): "sm_90a"}
ALIGN_BYTES = 16  # of addresses and of all strides but the last
MAX_SIZE = 2**31 - 1  # sizes are passed as int32, strides as int64
KEPT_CALLS = 4096  # prepared calls, a few KB each
LOG2_E = math.log2(math.e)
PLAIN = (torch.Tensor, torch.nn.Parameter)  # no subclass, which may have a meaning of its own
is_compiling, is_grad_enabled = torch.compiler.is_compiling, torch.is_grad_enabled  # a lookup costs, too
DESCALES = ("q_descale", "k_descale", "v_descale")


class Call(NamedTuple):
    """What is asked for, beside the tensors.

    softcap 0: none.
    max_q, max_k: rows of the longest sequence if varlen, else those of the tensors.
    config: this kernel instead of the planned one, for tests and benchmarks.
    out: of FP8 inputs, the output's dtype (None: bfloat16); else None.
    """

    visible: Bounds
    align: str
    scale: float
    softcap: float
    lse: bool
    max_q: int
    max_k: int
    config: Config | None = None
    out: torch.dtype | None = None


# Of Q, K and V, for FP8 inputs: float32 tensors, of one number or [batch, heads] each; None is 1.
Descales = tuple[torch.Tensor | None, torch.Tensor | None, torch.Tensor | None]
NO_DESCALES: Descales = (None, None, None)


def forward(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cu_seqlens_q: torch.Tensor | None,
    cu_seqlens_k: torch.Tensor | None,
    call: Call,
    descales: Descales = NO_DESCALES,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """O and, if asked for, LSE (else None). Launches on torch's current stream of q's device and does not wait."""
    facts = facts_of(q, k, v, cu_seqlens_q, cu_seqlens_k, descales, call)
    found = prepared.get(facts) or prepare(facts, q, k, v, cu_seqlens_q, cu_seqlens_k, call, descales)
    return found.run(q, k, v, cu_seqlens_q, cu_seqlens_k, descales)


def facts_of(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cu_seqlens_q: torch.Tensor | None,
    cu_seqlens_k: torch.Tensor | None,
    descales: Descales,
    asked: tuple[Any, ...],
) -> tuple[Any, ...]:
    """All that decides how a call is launched, but for addresses and the stream. Calls of equal facts look alike."""
    facts = (
        asked, q.shape, q.stride(), k.shape, k.stride(), v.shape, v.stride(), q.dtype, k.dtype, v.dtype,
        q.get_device(), k.get_device(), v.get_device(),
    )  # fmt: skip
    if cu_seqlens_q is not None or cu_seqlens_k is not None:
        facts += _facts_of_others(cu_seqlens_q, cu_seqlens_k)
    if descales is not NO_DESCALES:
        facts += _facts_of_others(*descales)
    return facts


def _facts_of_others(*tensors: torch.Tensor | None) -> tuple[Any, ...]:
    return tuple(t if t is None else (t.shape, t.stride(), t.dtype, t.get_device()) for t in tensors)


# --- what a call may be ------------------------------------------------------------------------------------------


def check(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cu_seqlens_q: torch.Tensor | None,
    cu_seqlens_k: torch.Tensor | None,
    call: Call,
) -> None:
    """Raises TypeError or ValueError, with what is wrong and what would be right. Looks at no data."""
    tensors = {"q": q, "k": k, "v": v}
    varlen = cu_seqlens_q is not None or cu_seqlens_k is not None
    _check_kinds(tensors, 3 if varlen else 4)
    heads_axis = 1 if varlen else 2
    if k.shape[heads_axis] != v.shape[heads_axis] or k.shape[:heads_axis] != v.shape[:heads_axis]:
        raise ValueError(f"k is {sizes(k)} and v is {sizes(v)}: they must agree in all sizes but the last")
    if not q.shape[-1] == k.shape[-1] == v.shape[-1]:
        raise ValueError(f"head_dim is {q.shape[-1]} in q, {k.shape[-1]} in k, {v.shape[-1]} in v: must be the same")
    heads, heads_kv = q.shape[heads_axis], k.shape[heads_axis]
    if heads_kv == 0 or heads % heads_kv:
        raise ValueError(f"{heads} query heads and {heads_kv} key heads: the first must be a multiple of the second")
    if varlen:
        _check_varlen(q, cu_seqlens_q, cu_seqlens_k, call)
    elif q.shape[0] != k.shape[0]:
        raise ValueError(f"batch is {q.shape[0]} in q and {k.shape[0]} in k: must be the same")
    _check_call(call)


def _check_kinds(tensors: dict[str, torch.Tensor], dimensions: int) -> None:
    q = tensors["q"]
    form = "[total, heads, head_dim]" if dimensions == 3 else "[batch, sequence, heads, head_dim]"
    for name, tensor in tensors.items():
        if tensor.dim() != dimensions:
            raise ValueError(f"{name} has {tensor.dim()} dimensions {sizes(tensor)}: must be {form}")
        if tensor.dtype not in DTYPES:
            raise TypeError(f"{name} is {tensor.dtype}: must be one of {', '.join(map(str, DTYPES))}")
        if tensor.dtype != q.dtype:
            raise TypeError(f"{name} is {tensor.dtype} and q is {q.dtype}: must be the same")
        if tensor.device.type != "cuda":
            raise ValueError(f"{name} is on {tensor.device}: must be on a CUDA device")
        if tensor.device != q.device:
            raise ValueError(f"{name} is on {tensor.device} and q on {q.device}: must be the same device")
        if max(tensor.shape) > MAX_SIZE:
            raise ValueError(f"{name} has a size of {max(tensor.shape)}: sizes go up to {MAX_SIZE}")


def _check_varlen(
    q: torch.Tensor, cu_seqlens_q: torch.Tensor | None, cu_seqlens_k: torch.Tensor | None, call: Call
) -> None:
    for name, tensor in (("cu_seqlens_q", cu_seqlens_q), ("cu_seqlens_k", cu_seqlens_k)):
        if tensor is None:
            raise ValueError(f"{name} is missing: packed sequences need both cu_seqlens_q and cu_seqlens_k")
        check_offsets(name, tensor, q)
    if cu_seqlens_q.shape != cu_seqlens_k.shape:
        raise ValueError(
            f"cu_seqlens_q has {cu_seqlens_q.shape[0]} entries and cu_seqlens_k {cu_seqlens_k.shape[0]}: "
            "must be batch + 1 in both"
        )
    for name, longest in (("max_seqlen_q", call.max_q), ("max_seqlen_k", call.max_k)):
        if not 0 <= longest <= MAX_SIZE:
            raise ValueError(f"{name} is {longest}: must be the rows of the longest sequence, 0 to {MAX_SIZE}")


def check_offsets(name: str, tensor: torch.Tensor, q: torch.Tensor) -> None:
    """Of packed sequences, where each begins."""
    if tensor.dtype != torch.int32:
        raise TypeError(f"{name} is {tensor.dtype}: must be torch.int32")
    if tensor.dim() != 1 or tensor.shape[0] < 1 or tensor.stride(0) != 1:
        raise ValueError(f"{name} is {sizes(tensor)}: must be contiguous, of one dimension, [batch + 1]")
    if tensor.device != q.device:
        raise ValueError(f"{name} is on {tensor.device} and q on {q.device}: must be the same device")


def _check_call(call: Call) -> None:
    if call.align not in ALIGNMENTS:
        raise ValueError(f"align is {call.align!r}: must be {' or '.join(map(repr, ALIGNMENTS))}")
    if not (math.isfinite(call.scale) and call.scale > 0):
        raise ValueError(f"scale is {call.scale}: must be finite and greater than 0")
    if not (math.isfinite(call.softcap) and call.softcap >= 0):
        raise ValueError(f"softcap is {call.softcap}: must be finite, and 0 for none")
    for name, keys in (("left", call.visible.left), ("right", call.visible.right)):
        if not -1 <= keys <= MAX_SIZE:
            raise ValueError(f"window's {name} is {keys}: must be 0 to {MAX_SIZE}, or -1 (or None) for all")


def check_fp8(
    q: torch.Tensor, k: torch.Tensor, cu_seqlens_q: torch.Tensor | None, call: Call, descales: Descales
) -> None:
    """What FP8 inputs bring with them: descales, and the output's dtype."""
    if DTYPES[q.dtype] not in FP8:
        if call.out not in (None, q.dtype):
            raise TypeError(f"out_dtype is {call.out} with {q.dtype} inputs: their output has their dtype")
        for name, tensor in zip(DESCALES, descales, strict=True):
            if tensor is not None:
                raise TypeError(f"{name} is given with {q.dtype} inputs: it is for FP8 inputs only")
        return
    if call.out is not None and call.out not in OUT_DTYPES:
        raise TypeError(f"out_dtype is {call.out}: must be {', '.join(map(str, OUT_DTYPES))}")
    batch = q.shape[0] if cu_seqlens_q is None else cu_seqlens_q.shape[0] - 1
    for name, tensor, heads in zip(DESCALES, descales, (q.shape[-2], k.shape[-2], k.shape[-2]), strict=True):
        if tensor is None:
            continue
        if tensor.dtype != torch.float32:
            raise TypeError(f"{name} is {tensor.dtype}: must be torch.float32")
        if tensor.device != q.device:
            raise ValueError(f"{name} is on {tensor.device} and q on {q.device}: must be the same device")
        if tensor.numel() != 1 and tuple(tensor.shape) != (batch, heads):
            raise ValueError(f"{name} is {sizes(tensor)}: must be one number, or [batch, heads], [{batch}, {heads}]")


def sizes(tensor: torch.Tensor) -> str:
    return f"[{', '.join(map(str, tensor.shape))}]"


# --- a call in the making ----------------------------------------------------------------------------------------


class Prepared:
    """All that is known of calls that look alike. `run` is the hot path: what it does, every call pays."""

    __slots__ = (
        *("at", "call", "contiguous", "copies", "index", "kernel", "local", "lse_shape", "one", "out", "places"),
        *("shape", "values"),
    )

    def __init__(self, q: torch.Tensor, call: Call, lse_shape: tuple[int, ...], copies: tuple[bool, ...]) -> None:
        self.call = call
        self.index = q.get_device()
        self.shape = q.shape
        self.out = output_dtype(q, call.out)
        self.contiguous = q.is_contiguous() and self.out == q.dtype
        self.one: torch.Tensor | None = None  # the descale of a tensor that has none
        self.lse_shape = lse_shape if call.lse else None
        self.copies = copies if any(copies) else None
        self.kernel: compiled.Compiled | None = None  # None: there is nothing to launch
        self.values: list[Any] = []
        self.places: dict[str, int] = {}
        self.at: tuple[int, ...] = ()  # of those that every call needs
        self.local = threading.local()

    def run(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        cu_seqlens_q: torch.Tensor | None,
        cu_seqlens_k: torch.Tensor | None,
        descales: Descales = NO_DESCALES,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        if self.kernel is None:
            return self._without_a_key(q)
        q_at, k_at, v_at = q.data_ptr(), k.data_ptr(), v.data_ptr()
        if self.copies is not None or (q_at | k_at | v_at) % ALIGN_BYTES:
            return self._with_copies(q, k, v, cu_seqlens_q, cu_seqlens_k, descales)
        buffer = getattr(self.local, "buffer", None) or self._buffer()
        words = buffer.words
        at_q, at_k, at_v, at_o, at_stream = self.at
        # cheaper than torch.empty
        o = torch.empty_like(q) if self.contiguous else q.new_empty(self.shape, dtype=self.out)
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
        if self.one is not None:
            for name, descale in zip(DESCALES, descales, strict=True):
                words[self.places[name]] = (self.one if descale is None else descale).data_ptr()
        enter(self.kernel, buffer, at_stream, self.index)
        return o, lse

    def _buffer(self) -> abi.Buffer:
        """This thread's: the GIL is not held while a launch reads it."""
        buffer = self.local.buffer = abi.Buffer(self.kernel.layout)
        buffer.fill(self.values)
        return buffer

    def _without_a_key(self, q: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        """No query, or none that sees a key: O is 0 and LSE -inf."""
        lse = None
        if self.lse_shape is not None:
            lse = q.new_full(self.lse_shape, -math.inf, dtype=torch.float32)
        return q.new_zeros(self.shape, dtype=self.out), lse

    def _with_copies(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        cu_seqlens_q: torch.Tensor | None,
        cu_seqlens_k: torch.Tensor | None,
        descales: Descales,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """The kernels load 16 bytes at a time; a tensor that stands off that grid is copied first."""
        copies = self.copies or (False, False, False)
        q, k, v = (
            aligned_copy(t) if copy or t.data_ptr() % ALIGN_BYTES else t
            for t, copy in zip((q, k, v), copies, strict=True)
        )
        return forward(q, k, v, cu_seqlens_q, cu_seqlens_k, self.call, descales)


def enter(kernel: compiled.Compiled, buffer: abi.Buffer, stream: int, index: int) -> None:
    """Jumps into the host function, on torch's current stream of device `index`. stream: its place in the buffer."""
    buffer.words[stream] = torch._C._cuda_getCurrentRawStream(index)
    if torch._C._cuda_getDevice() == index:
        kernel.entry(buffer.address)
    else:
        with torch.cuda.device(index):
            kernel.entry(buffer.address)
    if buffer.error.value:
        name = _error_name(buffer.error.value)
        raise RuntimeError(f"CUDA error {name} at the launch of {kernel.config.name}")


# By `facts_of`; `attention` and `forward` ask it with different words for the same.
prepared: dict[tuple[Any, ...], Prepared] = {}


def prepare(
    facts: tuple[Any, ...],
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cu_seqlens_q: torch.Tensor | None,
    cu_seqlens_k: torch.Tensor | None,
    call: Call,
    descales: Descales = NO_DESCALES,
) -> Prepared:
    """Checks a call, gets its kernel, and keeps what follows. Raises what `check` and compiled.get raise."""
    check(q, k, v, cu_seqlens_q, cu_seqlens_k, call)
    check_fp8(q, k, cu_seqlens_q, call, descales)
    made = _prepare(q, k, v, cu_seqlens_q, call, descales)
    if len(prepared) >= KEPT_CALLS:
        prepared.clear()
    prepared[facts] = made
    return made


def _prepare(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cu_seqlens_q: torch.Tensor | None,
    call: Call,
    descales: Descales,
) -> Prepared:
    """Compiles or loads the kernel if this process does not have it."""
    varlen = cu_seqlens_q is not None
    heads, rows = q.shape[-2], q.shape[-3]
    lse_shape = (heads, rows) if varlen else (q.shape[0], heads, rows)
    made = Prepared(q, call, lse_shape, tuple(not is_aligned(t) for t in (q, k, v)))
    shape = shape_of(q, k, cu_seqlens_q, call)
    config = call.config or planned(shape)  # also where there is nothing to launch: says what is not supported
    if not (q.numel() and k.numel() and call.max_q and call.max_k and shape.batch):
        return made
    if not compiled.is_ready(config) and torch.cuda.is_current_stream_capturing():
        raise RuntimeError(
            f"{config.name} is not compiled yet, and a CUDA graph is being captured: "
            "call attention once with such tensors before the capture"
        )
    made.kernel = compiled.get(config)
    left, right = call.visible.sides
    offsets = ((shape.batch + 1,), (1,))
    fields: dict[str, Any] = {
        "q": (q.shape, strides(q)),
        "k": (k.shape, strides(k)),
        "v": (v.shape, strides(v)),
        "o": (q.shape, contiguous_strides(q.shape)),
        "lse": (lse_shape, contiguous_strides(lse_shape)),
        "cu_seqlens_q": offsets,
        "cu_seqlens_k": offsets,
        "max_seqlen_q": call.max_q,
        "scale_log2": call.scale * LOG2_E,
        "softcap": call.softcap,
        "window_left": left,
        "window_right": right,
        "sms": shape.sms,
        "stream": 0,
    }
    if config.fp8:
        made.one = torch.ones((), dtype=torch.float32, device=q.device)
        for name, descale, tensor in zip(DESCALES, descales, (q, k, v), strict=True):
            size = (shape.batch, tensor.shape[-2])
            fields[name] = (size, (0, 0) if descale is None or descale.numel() == 1 else descale.stride())
    for slot in made.kernel.layout.slots:
        field = fields[slot.name]
        made.values += abi.tensor_values(slot, 0, *field) if slot.rank else (field,)
    made.places = made.kernel.layout.places
    made.at = tuple(made.places[name] for name in ("q", "k", "v", "o", "stream"))
    return made


def shape_of(q: torch.Tensor, k: torch.Tensor, cu_seqlens_q: torch.Tensor | None, call: Call) -> Shape:
    """What picks the kernel, with lengths in whole tiles. With as many queries as keys both alignments are one."""
    arch, sms = device_facts(q.get_device())
    square = cu_seqlens_q is None and call.max_q == call.max_k
    return Shape(
        arch=arch,
        dtype=DTYPES[q.dtype],
        head_dim=q.shape[-1],
        batch=q.shape[0] if cu_seqlens_q is None else cu_seqlens_q.shape[0] - 1,
        heads=q.shape[-2],
        heads_kv=k.shape[-2],
        seqlen_q=whole_tiles(call.max_q),
        seqlen_k=whole_tiles(call.max_k),
        sms=sms,
        causal=call.visible.causal,
        window=call.visible.window,
        align=ALIGNMENTS[0] if square else call.align,
        softcap=call.softcap > 0,
        varlen=cu_seqlens_q is not None,
        lse=call.lse,
        out_dtype=OUT_DTYPES[output_dtype(q, call.out)] if DTYPES[q.dtype] in FP8 else "",
    )


def is_plain(*tensors: torch.Tensor) -> bool:
    """Whether nothing but the launch wants to know of this call."""
    if is_compiling():
        return False
    gradients = is_grad_enabled()
    for tensor in tensors:
        if type(tensor) not in PLAIN or (gradients and tensor.requires_grad):
            return False
    return not torch._C._len_torch_dispatch_stack()


def output_dtype(q: torch.Tensor, asked: torch.dtype | None) -> torch.dtype:
    """Of O: q's, but for FP8."""
    return (asked or torch.bfloat16) if DTYPES.get(q.dtype) in FP8 else q.dtype


@lru_cache(maxsize=4096)
def planned(shape: Shape) -> Config:
    """plan() is arithmetic on many numbers, and lengths come by the thousand where text is generated."""
    config = plan(shape).config
    return replace(config, fp8_mma=fp8_mma()) if config.fp8 else config


def fp8_mma() -> str:
    """The path of FP8 that is asked for."""
    asked = os.environ.get(FP8_MMA_VARIABLE, FP8_MMAS[0])
    if asked not in FP8_MMAS:
        raise ValueError(f"{FP8_MMA_VARIABLE}={asked}: must be one of {', '.join(FP8_MMAS)}, or not be set")
    return asked


@cache
def device_facts(index: int) -> tuple[str, int]:
    """The device's architecture as ptxas names it, and its multiprocessors."""
    properties = torch.cuda.get_device_properties(index)
    capability = (properties.major, properties.minor)
    if capability not in ARCHS:
        known = ", ".join(f"{major}.{minor}" for major, minor in ARCHS)
        raise ValueError(
            f"{properties.name} has compute capability {capability[0]}.{capability[1]}: the kernels are for {known}"
        )
    return ARCHS[capability], properties.multi_processor_count


def is_aligned(tensor: torch.Tensor) -> bool:
    """Whether the last stride is 1 and all others are multiples of 16 bytes. Says nothing of the address."""
    strides = tensor.stride()
    if strides[-1] != 1:
        return False
    off = [step * tensor.element_size() % ALIGN_BYTES for step in strides[:-1]]
    return not any(off) or all(size == 1 for size, bad in zip(tensor.shape, off, strict=False) if bad)


def aligned_copy(tensor: torch.Tensor) -> torch.Tensor:
    """The same values, with rows that start at multiples of 16 bytes: those of FP8 may need some bytes in between."""
    *outer, columns = tensor.shape
    wide = whole_rows(columns, tensor.element_size())
    if wide == columns:
        return tensor.clone(memory_format=torch.contiguous_format)
    return tensor.new_empty((*outer, wide))[..., :columns].copy_(tensor)


def whole_rows(columns: int, element_bytes: int) -> int:
    """Columns up to the next multiple of 16 bytes."""
    each = ALIGN_BYTES // element_bytes
    return -(-columns // each) * each


def strides(tensor: torch.Tensor) -> Sequence[int]:
    """As they are; a dimension of size 1, whose stride may be anything, gets what it has in an aligned copy."""
    shape, strides = tensor.shape, tensor.stride()
    if 1 not in shape:
        return strides
    usual = contiguous_strides((*shape[:-1], whole_rows(shape[-1], tensor.element_size())))
    return [step if size != 1 else u for size, step, u in zip(shape, strides, usual, strict=True)]


def contiguous_strides(shape: Sequence[int]) -> list[int]:
    strides = [1] * len(shape)
    for i in range(len(shape) - 2, -1, -1):
        strides[i] = strides[i + 1] * shape[i + 1]
    return strides


def _error_name(code: int) -> str:
    try:
        from cuda.bindings import runtime

        name = runtime.cudaGetErrorName(runtime.cudaError_t(code))[1]
        return f"{code} ({name.decode()})"
    except Exception:  # an unknown code, or other bindings
        return str(code)
