"""Kernels named on the command line as MODULE:FUNCTION. The function compiles one offline and returns it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from tritonhook._util.entry_points import load_function
from tritonhook.errors import UsageError
from tritonhook.ptx.module import Ptx


def call_subject(target: str, **options: Any) -> Any:
    """Call MODULE:FUNCTION. The current folder counts as a place for modules."""
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    return load_function(target)(**options)


def compile_subject(target: str, **options: Any) -> Ptx:
    """The PTX of the kernel that MODULE:FUNCTION compiles."""
    compiled = call_subject(target, **options)
    try:
        return Ptx(compiled.asm["ptx"].rstrip("\0"))
    except (AttributeError, KeyError, TypeError):
        raise UsageError(f"{target} returned no compiled Triton kernel (nothing with .asm['ptx'])") from None
