"""Compile a kernel for any target without a GPU, and keep its PTX and cubin. Nothing is launched here."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ..config import Config
from .cache import compile_function, ptxas_version


@dataclass(frozen=True, slots=True)
class Assembled:
    """What the compiler made of a Config. ptxas: the version of the assembler inside the DSL, "13.4.59"."""

    config: Config
    ptx: str
    cubin: bytes

    @property
    def name(self) -> str:
        """The entry's name."""
        return re.findall(r"\.entry\s+([\w$]+)", self.ptx)[0]

    @property
    def ptxas(self) -> str | None:
        return ptxas_version(self.cubin)


def compile_offline(config: Config) -> Assembled:
    """PTX and cubin for config.arch. Raises ValueError where a config cannot be built, ImportError without the DSL."""
    function, _, _, cubin = compile_function(config)
    return Assembled(config, function.__ptx__.rstrip("\0"), cubin)
