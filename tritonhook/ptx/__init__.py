"""PTX text: parse it, rename its symbols, rewrite its statements."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tritonhook._util.imports import lazy_names

if TYPE_CHECKING:
    from tritonhook.ptx.module import Ptx as Ptx

__all__ = ["Ptx"]
__getattr__ = lazy_names(__name__, {"Ptx": "module"})
