"""Repeat earlier launches without Triton: this keeps the host's time for a call short.

The first call with a combination of shapes, strides, dtypes and options is checked, planned and launched by Triton, and
its launch is kept. A later call with the same combination only allocates its outputs and starts the kernel. Tensor
addresses may differ from call to call. Nothing here waits for the GPU.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

from .driver import Launch, Unsupported
from .host import VECTOR_BYTES, Tensor

# Most launches to keep; when there are more, all are dropped. A process that generates text has thousands of lengths.
KEPT_CALLS = 8192
Facts = tuple[Any, ...]  # a combination of shapes, strides, dtypes and options: see facts_of
# The tensors of a call, in the order in which a launch takes their addresses.
TENSORS = ("q", "k", "v", "o", "lse")


class Launched(NamedTuple):
    """A launch by Triton.

    `arguments`: the kernel's arguments by name. `tensors`: argument -> the name in TENSORS whose address it has.
    """

    compiled: Any
    grid: tuple[int, ...]
    arguments: dict[str, Any]
    tensors: dict[str, str]


class Prepared:
    """A kept launch. `run` repeats it with other tensors."""

    __slots__ = ("device", "dtype", "launch", "lse_shape")

    def __init__(self, launched: Launched, q: Tensor, o: Tensor, lse: Tensor | None) -> None:
        """Prepare to repeat a launch. Raises Unsupported if only Triton can launch the kernel."""
        self.launch = Launch(*launched, TENSORS)
        self.device = q.get_device()
        self.dtype = None if o.dtype == q.dtype else o.dtype
        self.lse_shape = None if lse is None else lse.shape

    def run(self, q: Tensor, addresses: tuple[int, int, int]) -> Any:
        """Allocate o (and lse) and launch. `addresses`: the addresses of q, k and v."""
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
    """Collect everything that determines a launch, except addresses and stream. `asked`: kernel and options."""
    return (
        asked, q.shape, q.stride(), k.shape, k.stride(), v.shape, v.stride(), q.dtype, k.dtype, v.dtype,
        q.get_device(), k.get_device(), v.get_device(),
    )  # fmt: skip


def call(kernel: str, first: Callable[..., Any], q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Any:
    """Repeat the kept launch of an earlier call with equal `Facts`. If there is none, return the result of `first`.

    `kernel`: the subpackage of `first`. Under torch.compile, with fake tensors and with subclasses of torch.Tensor the
    call goes through the torch operator.
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
    """Proxy that imports the module torch_op at the first call, because torch_op imports torch."""

    def __getattr__(self, name: str) -> Any:
        from . import torch_op

        self.__dict__ |= {"is_plain": torch_op.is_plain, "traced": torch_op.traced}
        return getattr(torch_op, name)


_operator = _Operator()


def keep(facts: Facts | None, launched: Launched | None, q: Tensor, o: Tensor, lse: Tensor | None) -> None:
    """Keep a launch for later calls with the same facts, if it can be repeated without Triton."""
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
    """Check whether a tool records, renames or replaces Triton's launches. If so, each call must go through Triton."""
    runtime, compiled_kernel, jit, own_key, own_run = _triton()
    enter, leave = runtime.launch_enter_hook, runtime.launch_exit_hook
    if getattr(enter, "calls", enter) or getattr(leave, "calls", leave):
        return True
    if getattr(runtime, "add_stages_inspection_hook", None) is not None:
        return True
    # Recorders wrap `run`; tools that rename kernels wrap `compute_cache_key`. A wrapper may copy the function's name.
    key, run = jit.compute_cache_key, compiled_kernel.run
    if getattr(key, "__code__", None) is not own_key or not isinstance(run, property):
        return True
    return getattr(run.fget, "__code__", None) is not own_run


@cache
def _triton() -> tuple[Any, Any, Any, Any, Any]:
    """Return Triton's runtime knobs, CompiledKernel, the module jit, and the code of compute_cache_key and of run."""
    from triton import knobs
    from triton.compiler import CompiledKernel
    from triton.runtime import jit

    own = [own_code(inspect.unwrap(jit.compute_cache_key), jit), own_code(CompiledKernel.run, CompiledKernel)]
    return knobs.runtime, CompiledKernel, jit, *own


def own_code(function: Any, owner: Any) -> Any:
    """Return the code of a function or property, or None if it is not in the file of `owner`, a module or class."""
    code = getattr(getattr(function, "fget", function), "__code__", None)
    home = getattr(owner, "__file__", None) or sys.modules[owner.__module__].__file__
    return code if code is not None and code.co_filename == home else None
