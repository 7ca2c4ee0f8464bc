"""Assembling: the ptxas that a session uses instead of the compiler's own ptxas, and further options for ptxas."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from tritonhook.capture.model import Assembler
from tritonhook.errors import CaptureError
from tritonhook.ptx.module import Ptx, lowered_for

if TYPE_CHECKING:
    from tritonhook.ptxas.tool import Tool


@dataclass(frozen=True, slots=True)
class Assembling:
    """The ptxas and the options that a session uses.

    path, version, sha256: they describe the chosen ptxas; all are None if the compiler's own ptxas is used. options:
    further options, appended to the compiler's options.
    """

    path: str | None = None
    version: str | None = None
    sha256: str | None = None
    options: tuple[str, ...] = ()

    @classmethod
    def of(cls, ptxas: str | None, options: str | Sequence[str] | None) -> Assembling | None:
        """Read the user's `ptxas=` and `options=`. Returns None if both are unset.

        ptxas: a version, e.g. "13.5.37", or a path. Raises ToolError if there is no such ptxas, CaptureError if an
        option is not text.
        """
        words = shlex.split(options) if isinstance(options, str) else tuple(options or ())
        if not all(isinstance(word, str) and word for word in words):
            raise CaptureError(f"options={options!r}: give ptxas options as text, e.g. options='-O1 -v'")
        if ptxas is None:
            return cls(options=tuple(words)) if words else None
        from tritonhook.ptxas.tool import binary_sha256, find_ptxas

        tool = find_ptxas(ptxas)
        return cls(str(tool.path), tool.version, binary_sha256(tool.path), tuple(words))

    @property
    def key(self) -> str:
        """Text for cache keys: the SHA-256 of the ptxas binary and the options."""
        return "|".join(("ptxas", self.sha256 or "", *self.options))

    def readable(self, ptx: Ptx) -> Ptx:
        """Lower the `.version` of a PTX module if this ptxas is too old to read it."""
        return lowered_for(ptx, self.version) if self.version else ptx

    def instead_of(self, own: Assembler) -> Assembler:
        """Return the Assembler that replaces `own`, the compiler's ptxas and arguments."""
        arguments = (*(own.arguments or ()), *self.options)
        return replace(own, path=self.path or own.path, version=self.version or own.version, arguments=arguments)


def tool_of(assembler: Assembler) -> Tool:
    """Make a Tool from an assembler's path and version; the file is not checked."""
    from tritonhook.ptxas.tool import Tool

    return Tool(Path(assembler.path or ""), assembler.version or "(unknown version)", "the session")


def assemble_by(assembler: Assembler, text: str) -> bytes:
    """Assemble PTX into a cubin. Raises AssembleError if ptxas fails, ToolError if it is missing."""
    from tritonhook.ptxas.toolchain import Toolchain

    tool = tool_of(assembler)
    return Toolchain(tool, tool).assemble_or_raise(Ptx(text), assembler.arguments or ()).cubin.data
