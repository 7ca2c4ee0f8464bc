"""What every call pays: is it like one before? Then outputs are made and the kernel is started, and nothing else.

A call is checked, planned and launched by Triton the first time. What follows from shapes, strides, dtypes and options
is kept. Addresses may differ from call to call. Nothing here waits for the GPU.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

from .driver import Launch, Unsupported
from .host import VECTOR_BYTES, Tensor

# How many different calls are kept. Text generation comes with thousands of lengths.
KEPT_CALLS = 8192
Facts = tuple[Any, ...]
# The tensors of a call, in the order in which a launch takes their addresses.
TENSORS = ("q", "k", "v", "o", "lse")


class Launched(NamedTuple):
    """A launch that Triton has made.

    `arguments`: by name. `tensors`: argument -> the one of TENSORS whose address it has.
    """

    compiled: Any
    grid: tuple[int, ...]
    arguments: dict[str, Any]
    tensors: dict[str, str]


class Prepared:
    """A call that was made once. `run` makes it again with other tensors."""

    __slots__ = ("device", "dtype", "launch", "lse_shape")

    def __init__(self, launched: Launched, q: Tensor, o: Tensor, lse: Tensor | None) -> None:
        """Prepare a launch that can be repeated. Raises Unsupported."""
        self.launch = Launch(*launched, TENSORS)
        self.device = q.get_device()
        self.dtype = None if o.dtype == q.dtype else o.dtype
        self.lse_shape = None if lse is None else lse.shape

    def run(self, q: Tensor, addresses: tuple[int, int, int]) -> Any:
        """Launch. `addresses`: of q, k and v."""
        import torch

        if torch._C._cuda_getDevice() != self.device:
            with torch.cuda.device(self.device):
                return self.run(q, addresses)
        o = torch.empty_like(q) if self.dtype is None else torch.empty_like(q, dtype=self.dtype)
        stream = torch._C._cuda_getCurrentRawStream(self.device)
        if self.lse_shape is None:
            self.launch((*addresses, o.data_ptr()), stream)
            return o
        lse = q.new_empty(self.lse_shape, dtype=torch.float32)
        self.launch((*addresses, o.data_ptr(), lse.data_ptr()), stream)
        return o, lse


_prepared: dict[Facts, Prepared] = {}


def facts_of(q: Tensor, k: Tensor, v: Tensor, asked: tuple[Any, ...]) -> Facts:
    """Collect all that decides how a call is launched, except addresses and stream. asked: kernel and options."""
    return (
        asked, q.shape, q.stride(), k.shape, k.stride(), v.shape, v.stride(), q.dtype, k.dtype, v.dtype,
        q.get_device(), k.get_device(), v.get_device(),
    )  # fmt: skip


def call(kernel: str, first: Callable[..., Any], q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Any:
    """Return the result of `first(q, k, v, **options)`; `first` is only called if no earlier call was like this one.

    `kernel`: the subpackage of `first`. Under torch.compile, with fake tensors and with subclasses of torch.Tensor the
    call goes through the operator.
    """
    if not _operator.is_plain(q, k, v):
        return _operator.traced(kernel, q, k, v, **options)
    facts = facts_of(q, k, v, (first, *options.values()))
    found = _prepared.get(facts)
    if found is not None and not is_watched():
        addresses = q.data_ptr(), k.data_ptr(), v.data_ptr()
        if not (addresses[0] | addresses[1] | addresses[2]) % VECTOR_BYTES:
            return found.run(q, addresses)
    return first(q, k, v, facts=facts, **options)


class _Operator:
    """The module torch_op, imported by the first call: it imports torch."""

    def __getattr__(self, name: str) -> Any:
        from . import torch_op

        self.__dict__ |= {"is_plain": torch_op.is_plain, "traced": torch_op.traced}
        return getattr(torch_op, name)


_operator = _Operator()


def keep(facts: Facts | None, launched: Launched | None, q: Tensor, o: Tensor, lse: Tensor | None) -> None:
    """Keep a launch for calls of the same facts, if it can be made without Triton."""
    if facts is None or launched is None or launched.compiled is None or is_watched():
        return
    try:
        made = Prepared(launched, q, o, lse)
    except Unsupported:
        return
    if len(_prepared) >= KEPT_CALLS:
        _prepared.clear()
    _prepared[facts] = made


def is_watched() -> bool:
    """Check whether a tool sees, renames or replaces Triton's launches: then each goes through Triton."""
    runtime, compiled_kernel, jit, own_key, own_run = _triton()
    enter, leave = runtime.launch_enter_hook, runtime.launch_exit_hook
    if getattr(enter, "calls", enter) or getattr(leave, "calls", leave):
        return True
    if getattr(runtime, "add_stages_inspection_hook", None) is not None:
        return True
    # Recorders wrap the launch, tools that rename kernels wrap the key. A wrapper may have the name of what it wraps.
    key, run = jit.compute_cache_key, compiled_kernel.run
    if getattr(key, "__code__", None) is not own_key or not isinstance(run, property):
        return True
    return getattr(run.fget, "__code__", None) is not own_run


@cache
def _triton() -> tuple[Any, Any, Any, Any, Any]:
    """Collect Triton's settings, the class and module with a launch's functions, and the code of these functions."""
    from triton import knobs
    from triton.compiler import CompiledKernel
    from triton.runtime import jit

    own = [own_code(inspect.unwrap(jit.compute_cache_key), jit), own_code(CompiledKernel.run, CompiledKernel)]
    return knobs.runtime, CompiledKernel, jit, *own


def own_code(function: Any, owner: Any) -> Any:
    """Find the code of a function or property of a module or class; None if it is not in the same file."""
    code = getattr(getattr(function, "fget", function), "__code__", None)
    home = getattr(owner, "__file__", None) or sys.modules[owner.__module__].__file__
    return code if code is not None and code.co_filename == home else None
