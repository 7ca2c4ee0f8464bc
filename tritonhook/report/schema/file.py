"""Files with GPU code: `show FILE`."""

from __future__ import annotations

from typing import Literal

from tritonhook._util.schema import Count, Fields
from tritonhook.report.schema.captures import Resources
from tritonhook.report.schema.code import Code


class LoopMix(Fields):
    """A loop. offset: in bytes. instructions: how many. opcodes: the most frequent ones."""

    offset: Count
    instructions: Count
    innermost: bool
    opcodes: dict[str, Count]


class FileKernel(Fields):
    """A kernel of a file.

    ptxas: its version; null: not known. threads: per block, as the kernel limits them. needs: symbols of others. mix:
    instructions by class; null: the code was not read; so of `loops`. code: its machine code.
    """

    kernel: str
    arch: str
    ptxas: str | None
    resources: Resources
    barriers: Count | None
    threads: Count | list[Count] | None
    needs: list[str]
    mix: dict[str, Count] | None
    loops: list[LoopMix] | None
    code: Code | None = None


class File(Fields):
    """A cubin, PTX, fat binary or shared library. what: which of them. notes: what could not be read."""

    format: Literal[1]
    kind: Literal["file"]
    path: str
    what: str
    kernels: list[FileKernel]
    notes: list[str]
