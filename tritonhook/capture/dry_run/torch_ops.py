"""Operators that libraries register with torch for CUDA. In a dry run they are for where its tensors are: the CPU, or
no memory. They run within the mode of torch_tensors.py, which torch turns off inside of an operator."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from tritonhook.capture.dry_run.gpu import NONE
from tritonhook.capture.patching import Patch

Around = Callable[[Callable[..., Any]], Callable[..., Any]]
_FAKE, _ANY = "Meta", "CompositeExplicitAutograd"
_TORCH_S = ("aten", "prims")


@contextmanager
def operators_of_the_gpu(memory: str, within: Around) -> Iterator[None]:
    """Let what is registered for CUDA from now on be for where tensors are. within: puts the mode around a function."""
    import torch

    place = _FAKE if memory == NONE else "CPU"
    keys = {"CUDA": place, "AutogradCUDA": f"Autograd{place}", "AutocastCUDA": "AutocastCPU"}
    if memory == NONE:
        keys[_ANY] = place  # else torch would ask the operator's fake implementation
    taken: set[tuple[str, str, str]] = set()  # namespace, operator, key
    kept = getattr(torch.library, "fallthrough_kernel", None)
    others: dict[str, Any] = {}

    def library_for(library: Any, key: str) -> Any:
        """The library, or another one if this one is for another key only."""
        if library.dispatch_key in ("", key):
            return library
        return others.setdefault(library.ns, torch.library.Library(library.ns, "IMPL"))

    def wrap(original: Callable[..., None]) -> Callable[..., None]:
        def impl(library: Any, op_name: Any, fn: Any, dispatch_key: str = "", **options: Any) -> None:
            asked = dispatch_key or library.dispatch_key
            key = asked if library.ns in _TORCH_S and asked == _ANY else keys.get(asked, asked)
            name = op_name if isinstance(op_name, str) else op_name._schema.name
            this = library.ns, name.rpartition("::")[2], key
            if key != asked:
                taken.add(this)
            elif this in taken:
                return  # it is there for the GPU already
            is_fake = fn is kept or asked == _FAKE or not callable(fn)
            with warnings.catch_warnings():
                if key != asked:  # torch warns where the operator has one for the CPU too
                    warnings.simplefilter("ignore", UserWarning)
                original(library_for(library, key), op_name, fn if is_fake else within(fn), key, **options)

        return impl

    with ExitStack() as stack:
        stack.callback(Patch(torch.library.Library, "impl", wrap).undo)
        yield
