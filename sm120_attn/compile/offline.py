"""Compile a kernel for any target without a GPU, and return its PTX and cubin. Launches nothing."""

from __future__ import annotations

import re
from dataclasses import dataclass

from .build import KernelConfig
from .compiler import compile_function


@dataclass(frozen=True, slots=True)
class Assembled:
    """The compiler's output for a config. ptxas: version of the assembler inside the DSL, such as "13.4.59"."""

    config: KernelConfig
    ptx: str
    cubin: bytes
    ptxas: str | None

    @property
    def name(self) -> str:
        """The entry's name."""
        return str(re.findall(r"\.entry\s+([\w$]+)", self.ptx)[0])


def compile_offline(config: KernelConfig) -> Assembled:
    """Compile for config.arch. Raises ValueError for a config that cannot be built, ImportError without the DSL."""
    compiled = compile_function(config)
    return Assembled(config, compiled.function.__ptx__.rstrip("\0"), compiled.cubin, compiled.ptxas)
