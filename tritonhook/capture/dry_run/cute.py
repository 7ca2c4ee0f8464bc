"""The CuTe DSL in a dry run: it compiles for the architecture that CUTE_DSL_ARCH names, and a call of what it compiled
does nothing."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from tritonhook.capture.patching import Patch

_MODULES = ("cutlass.base_dsl.jit_executor", "cutlass.cutlass_dsl.cuda_jit_executor")


def nothing_launched() -> ExitStack:
    """Let nothing that the DSL compiled be launched, until the stack is closed. It is imported."""
    with ExitStack() as stack:
        for module in filter(None, map(sys.modules.get, _MODULES)):
            for owner in [var for var in vars(module).values() if isinstance(var, type)]:
                if owner.__module__ == module.__name__:
                    _change(owner, stack)
        return stack.pop_all()


def _change(owner: type, stack: ExitStack) -> None:
    if "run_compiled_program" in vars(owner):
        stack.callback(Patch(owner, "run_compiled_program", _nothing).undo)
    if "to" in vars(owner) and hasattr(owner, "run_compiled_program"):
        stack.callback(Patch(owner, "to", _itself).undo)


def _nothing(original: Callable[..., Any]) -> Callable[..., Any]:
    return lambda function, arguments: None


def _itself(original: Callable[..., Any]) -> Callable[..., Any]:
    return lambda function, device=None: function
