"""Kernels named on the command line as MODULE:FUNCTION. The function compiles one offline and returns it."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

from tritonhook.errors import UsageError
from tritonhook.ptx import Ptx


def call_subject(target: str, **options: Any) -> Any:
    """Call MODULE:FUNCTION. The current folder counts as a place for modules."""
    module_name, colon, function_name = target.partition(":")
    if not colon or not function_name:
        raise UsageError(f"{target!r}: write MODULE:FUNCTION")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise UsageError(
            f"{target}: cannot import {error.name!r}; run in the folder that holds it, or install it"
        ) from None
    function = getattr(module, function_name, None)
    if not callable(function):
        raise UsageError(f"{target}: {module_name} has no function {function_name!r}")
    return function(**options)


def compile_subject(target: str, **options: Any) -> Ptx:
    """The PTX of the kernel that MODULE:FUNCTION compiles."""
    compiled = call_subject(target, **options)
    try:
        return Ptx(compiled.asm["ptx"].rstrip("\0"))
    except (AttributeError, KeyError, TypeError):
        raise UsageError(f"{target} returned no compiled Triton kernel (nothing with .asm['ptx'])") from None
