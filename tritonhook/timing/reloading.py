"""Load Triton's kernels again, so that a drawn order and not the first call decides where their code lies."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tritonhook.capture.patching import Patch


@contextmanager
def noting_loads(kernels: dict[int, Any]) -> Iterator[None]:
    """Keep the kernels that Triton loads in a `with` block, by their id. torch.compile's static launcher and the CuTe
    DSL load theirs themselves."""
    from triton.compiler import CompiledKernel

    def noting(original: Callable[..., Any]) -> Callable[..., Any]:
        def init(kernel: Any, *arguments: Any) -> Any:
            kernels[id(kernel)] = kernel
            return original(kernel, *arguments)

        return init

    if "_init_handles" not in CompiledKernel.__dict__:  # another Triton: its kernels stay where they were loaded first
        yield
        return
    patch = Patch(CompiledKernel, "_init_handles", noting)
    try:
        yield
    finally:
        patch.undo()


def forget_loaded(kernels: dict[int, Any]) -> None:
    """Have Triton load these kernels again at their next launch. Their old code stays where it is."""
    for kernel in kernels.values():
        kernel.module = kernel.function = kernel._run = None
