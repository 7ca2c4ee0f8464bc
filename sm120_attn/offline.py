"""Compile a kernel for any target without a GPU, and keep its PTX and cubin. Nothing is launched here."""

from __future__ import annotations

import re
import tempfile
from dataclasses import dataclass

from .build import build
from .config import Config


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
        found = re.search(r"Cuda compilation tools, release .*V([\d.]+)", self.ptx)
        return found[1] if found else None


def compile_offline(config: Config) -> Assembled:
    """PTX and cubin for config.arch. Raises ValueError for a config that cannot be built."""
    host, arguments = build(config)
    import cutlass.cute as cute

    with tempfile.TemporaryDirectory() as folder:
        options = f"--gpu-arch {config.arch} --keep-ptx --keep-cubin --dump-dir={folder}"
        compiled = cute.compile(host, *arguments, options=options)
        ptx, cubin = compiled.__ptx__, compiled.__cubin__
    return Assembled(config, ptx.rstrip("\0"), cubin)
