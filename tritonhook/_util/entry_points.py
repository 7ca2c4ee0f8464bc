"""Functions that users name as MODULE:FUNCTION."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from tritonhook.errors import UsageError


def load_function(target: str) -> Callable[..., Any]:
    """The function behind MODULE:FUNCTION, from wherever sys.path leads. Raises UsageError."""
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
