"""RegisterLimit: the rewrite that limits the registers of a thread by `.maxnreg`. Works on Ptx values.

The directive stands before the body of an entry, so that all lines keep their numbers. An option of ptxas cannot do the
same: --maxrregcount is ignored for entries with `.reqntid` or `.maxntid`, which Triton's have.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from tritonhook.errors import PtxError
from tritonhook.ptx.module import Ptx
from tritonhook.ptx.statements import bodies

_DIRECTIVE = re.compile(r"\.maxnreg\s+(\d+)")
SMALLEST, LARGEST = 16, 255  # registers that ptxas can hold code to


@dataclass(frozen=True, slots=True)
class RegisterLimit:
    """Gives each entry that has a body `.maxnreg N`, in place of the one that it has."""

    registers: int

    @property
    def key(self) -> str:
        return f"maxnreg-1:{self.registers}"

    def apply(self, ptx: Ptx) -> Ptx:
        """Return the module with the limit; the same object if every entry has it. Raises PtxError for a number that is
        no limit."""
        if not SMALLEST <= self.registers <= LARGEST:
            raise PtxError(f".maxnreg {self.registers}: give a number from {SMALLEST} to {LARGEST}")
        pieces, done = [], 0
        for entry, body in bodies(ptx).items():
            if entry not in ptx.entries:
                continue
            brace = body.begin - 1
            match = _DIRECTIVE.search(body.header)
            start, end = (brace, brace) if match is None else (brace - len(body.header) + at for at in match.span())
            pieces += [ptx.text[done:start], f".maxnreg {self.registers}{' ' if match is None else ''}"]
            done = end
        text = "".join([*pieces, ptx.text[done:]])
        return ptx if text == ptx.text else Ptx(text)
