"""Read cubins, the ELF images of GPU code: sections, resources, machine code and source lines of instructions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tritonhook._util.imports import lazy_names

if TYPE_CHECKING:
    from tritonhook.cubin.image import Cubin as Cubin

__all__ = ["Cubin"]
__getattr__ = lazy_names(__name__, {"Cubin": "image"})
