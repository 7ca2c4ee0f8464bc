"""Functions that users name as MODULE:FUNCTION."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from tritonhook.errors import UsageError


def load_function(target: str) -> Callable[..., Any]:
    """Import MODULE and return its FUNCTION; modules are looked for on sys.path. Raises UsageError."""
    module_name, colon, function_name = target.partition(":")
    if not (module_name and colon and function_name):
        raise UsageError(f"{target!r}: write MODULE:FUNCTION")
    try:
        module = import_module(module_name)
    except ModuleNotFoundError as error:
        raise UsageError(
            f"{target}: cannot import {error.name!r}; run in the folder that holds it, or install it"
        ) from None
    function: Callable[..., Any] | None = getattr(module, function_name, None)
    if function is None:
        raise UsageError(f"{target}: {module_name} has no {function_name!r}")
    if not callable(function):
        raise UsageError(f"{target} is a {type(function).__name__}, not a function")
    return function


def call_function(target: str, **options: Any) -> Any:
    """Call MODULE:FUNCTION; its module may also lie in the current folder. Raises UsageError."""
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    return load_function(target)(**options)


def compiled_ptx(target: str, **options: Any) -> str:
    """The PTX text of the Triton kernel that MODULE:FUNCTION compiles and returns. Raises UsageError."""
    compiled = call_function(target, **options)
    try:
        return str(compiled.asm["ptx"].rstrip("\0"))
    except (AttributeError, KeyError, TypeError):
        raise UsageError(f"{target} returned no compiled Triton kernel (nothing with .asm['ptx'])") from None
