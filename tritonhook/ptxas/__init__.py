"""NVIDIA's assembler and disassembler: find them, install ptxas by version, run them and report crashes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tritonhook._util.imports import lazy_names

if TYPE_CHECKING:
    from tritonhook.ptxas.tool import Tool as Tool
    from tritonhook.ptxas.tool import available_ptxas as available_ptxas
    from tritonhook.ptxas.tool import find_nvdisasm as find_nvdisasm
    from tritonhook.ptxas.tool import find_ptxas as find_ptxas
    from tritonhook.ptxas.toolchain import Assembled as Assembled
    from tritonhook.ptxas.toolchain import AssembleError as AssembleError
    from tritonhook.ptxas.toolchain import Crash as Crash
    from tritonhook.ptxas.toolchain import Toolchain as Toolchain
    from tritonhook.ptxas.toolchain import assemble as assemble
    from tritonhook.ptxas.toolchain import find_toolchain as find_toolchain

_FINDING = ("Tool", "available_ptxas", "find_nvdisasm", "find_ptxas")
_RUNNING = ("Assembled", "AssembleError", "Crash", "Toolchain", "assemble", "find_toolchain")
_HOMES = {**dict.fromkeys(_FINDING, "tool"), **dict.fromkeys(_RUNNING, "toolchain")}
__all__ = list(_HOMES)
__getattr__ = lazy_names(__name__, _HOMES)
