"""Toolchain: one ptxas and one nvdisasm, so that both sides of a comparison are made by the same programs."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from typing import ClassVar

from tritonhook._display import Brief
from tritonhook.cubin.image import Cubin
from tritonhook.cubin.sass import INSTRUCTION_BYTES, Sass, parse_nvdisasm, words_of
from tritonhook.errors import ToolError
from tritonhook.ptx.module import Ptx
from tritonhook.ptxas.assembler import DEFAULT_ARGUMENTS, Assembled, AssembleError, Crash, assemble
from tritonhook.ptxas.disassembler import list_words, run_nvdisasm
from tritonhook.ptxas.discovery import find_nvdisasm, find_ptxas
from tritonhook.ptxas.process import TIMEOUT_S
from tritonhook.ptxas.tool import Tool

_FEW = 100  # kernels that are worth asking for one by one; a command line has no room for tens of thousands
_FIRST_WITH_A = 90  # targets such as sm_90a have instructions that sm_90 has not
BATCH = 400  # kernels that one run of nvdisasm reads; its start takes as long as some tens of kernels


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
        """Like assemble, but raises AssembleError instead of returning a Crash."""
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

    def disassemble_many(self, kernels: Sequence[tuple[Cubin, str]], workers: int = 1) -> list[Sass]:
        """The code of many kernels, each of its image. A run of nvdisasm reads many kernels of one architecture, and
        instructions that they share once. Raises ToolError or CubinError."""
        groups: dict[int, list[int]] = {}
        for number, (cubin, _) in enumerate(kernels):
            groups.setdefault(cubin.arch, []).append(number)
        batches = [
            numbers[start : start + BATCH] for numbers in groups.values() for start in range(0, len(numbers), BATCH)
        ]
        with ThreadPoolExecutor(workers) as pool:
            parts = list(pool.map(lambda batch: self._batch([kernels[n] for n in batch]), batches))
        by_number = dict(zip((n for batch in batches for n in batch), (s for part in parts for s in part), strict=True))
        return [by_number[number] for number in range(len(kernels))]

    def _batch(self, kernels: Sequence[tuple[Cubin, str]]) -> list[Sass]:
        if len(kernels) > 1:
            codes = [words_of(cubin.text(kernel)) for cubin, kernel in kernels]
            with suppress(ToolError):  # then one of them is damaged: read alone, it is named
                listed = list_words(self.nvdisasm, _full_target(kernels[0][0].arch), chain.from_iterable(codes))
                return [
                    Sass(
                        kernel,
                        tuple(listed[word].at(n * INSTRUCTION_BYTES) for n, word in enumerate(words)),
                        (cubin.indirect_targets or {}).get(kernel, ()),
                    )
                    for (cubin, kernel), words in zip(kernels, codes, strict=True)
                ]
        return [self._alone(cubin, kernel) for cubin, kernel in kernels]

    def _alone(self, cubin: Cubin, kernel: str) -> Sass:
        try:
            return self.disassemble(cubin, [kernel])[kernel]
        except ToolError as error:
            raise ToolError(f"{kernel} sm_{cubin.arch}: {error}") from None


def _full_target(arch: int) -> str:
    """The target of this architecture that has all its instructions."""
    return f"sm_{arch}a" if arch >= _FIRST_WITH_A else f"sm_{arch}"


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
