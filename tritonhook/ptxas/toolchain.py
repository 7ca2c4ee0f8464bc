"""Toolchain: one ptxas and one nvdisasm, so that both sides of a comparison are made by the same programs."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from tritonhook._display import Brief
from tritonhook.cubin.image import Cubin
from tritonhook.cubin.sass import Sass, parse_nvdisasm
from tritonhook.ptx.module import Ptx
from tritonhook.ptxas.assembler import DEFAULT_ARGUMENTS, Assembled, AssembleError, Crash, assemble
from tritonhook.ptxas.disassembler import run_nvdisasm
from tritonhook.ptxas.discovery import find_nvdisasm, find_ptxas
from tritonhook.ptxas.process import TIMEOUT_S
from tritonhook.ptxas.tool import Tool

_FEW = 100  # kernels that are worth asking for one by one; a command line has no room for tens of thousands


@dataclass(frozen=True, slots=True, repr=False)
class Toolchain(Brief):
    """One ptxas and one nvdisasm, used for both sides of every comparison."""

    _shown: ClassVar[tuple[str, ...]] = ("ptxas", "nvdisasm")

    ptxas: Tool
    nvdisasm: Tool

    def assemble(
        self, ptx: Ptx, arguments: Sequence[str] = DEFAULT_ARGUMENTS, timeout_s: float = TIMEOUT_S
    ) -> Assembled | Crash:
        """Assemble a module. The target is the PTX's own unless `arguments` name one."""
        return assemble(self.ptxas, ptx, arguments, timeout_s)

    def assemble_or_raise(self, ptx: Ptx, arguments: Sequence[str] = DEFAULT_ARGUMENTS) -> Assembled:
        """As assemble; raises AssembleError instead of returning a Crash."""
        result = self.assemble(ptx, arguments)
        if isinstance(result, Crash):
            raise AssembleError(result)
        return result

    def disassemble(self, cubin: Cubin, kernels: Sequence[str] | None = None) -> dict[str, Sass]:
        """The code of an image's kernels, or only of those named, by kernel. Raises ToolError or CubinError."""
        wanted = cubin.kernels if kernels is None else kernels
        known = [cubin.symbols[kernel] for kernel in wanted if kernel in cubin.symbols]
        few = len(wanted) < len(cubin.kernels) and len(known) == len(wanted) <= _FEW
        output = run_nvdisasm(self.nvdisasm, cubin.data, known if few else ())
        return parse_nvdisasm(output, {k: cubin.text(k) for k in wanted}, cubin.indirect_targets or {})


def reading_toolchain() -> Toolchain:
    """A toolchain to disassemble with. It must assemble nothing: its ptxas is nvdisasm. Raises ToolError."""
    nvdisasm = find_nvdisasm()
    return Toolchain(nvdisasm, nvdisasm)


def find_toolchain(ptxas: str | os.PathLike[str] | None = None) -> Toolchain:
    """The ptxas that `find_ptxas` finds, with nvdisasm. Raises ToolError."""
    return toolchain_of(find_ptxas(ptxas))


def toolchain_of(ptxas: Tool) -> Toolchain:
    """This ptxas, with nvdisasm. Raises ToolError."""
    return Toolchain(ptxas, find_nvdisasm())
