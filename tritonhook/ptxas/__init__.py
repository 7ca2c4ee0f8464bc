"""NVIDIA's assembler and disassembler as processes: find them, install ptxas by version, run them, survive crashes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tritonhook._util.lazy import lazy_names

if TYPE_CHECKING:
    from tritonhook.ptxas.assembler import Assembled as Assembled
    from tritonhook.ptxas.assembler import AssembleError as AssembleError
    from tritonhook.ptxas.assembler import Crash as Crash
    from tritonhook.ptxas.assembler import assemble as assemble
    from tritonhook.ptxas.discovery import available_ptxas as available_ptxas
    from tritonhook.ptxas.discovery import find_nvdisasm as find_nvdisasm
    from tritonhook.ptxas.discovery import find_ptxas as find_ptxas
    from tritonhook.ptxas.tool import Tool as Tool
    from tritonhook.ptxas.toolchain import Toolchain as Toolchain
    from tritonhook.ptxas.toolchain import find_toolchain as find_toolchain

_HOMES = {
    "Assembled": "assembler",
    "AssembleError": "assembler",
    "Crash": "assembler",
    "assemble": "assembler",
    "available_ptxas": "discovery",
    "find_nvdisasm": "discovery",
    "find_ptxas": "discovery",
    "Tool": "tool",
    "Toolchain": "toolchain",
    "find_toolchain": "toolchain",
}
__all__ = list(_HOMES)
__getattr__ = lazy_names(__name__, _HOMES)
