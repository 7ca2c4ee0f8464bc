"""Which operands an instruction writes and reads, by its opcode and their texts. What it computes is not known here."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from tritonhook.ptx.statements import split_operands

NAME = re.compile(r"[A-Za-z_$%][\w$%]*", re.ASCII)
# Instructions that write no operand, but whose first one may be no address. `bar.red` writes it, and so does a call
# that has it in parentheses.
_NO_RESULT = (
    *("bar.", "barrier.", "bra", "brx", "call", "cp.", "nanosleep", "pmevent", "setmaxnreg", "stackrestore"),
    *("tcgen05.dealloc", "wgmma.wait_group"),
)


class Access(NamedTuple):
    """result: the operand that is written, "" for none. sources: those that are read, also as parts of an address."""

    result: str
    sources: Sequence[str]


def access(opcode: str, operands: Sequence[str]) -> Access:
    """What an instruction does with its operands. An address in brackets is never its result."""
    first = operands[0] if operands else ""
    is_written = first.startswith("(") or ".red." in opcode
    if first.startswith("[") or (opcode.startswith(_NO_RESULT) and not is_written):
        return Access("", operands)
    adds = opcode.startswith("wgmma") and operands[3:4] != ("0",)  # the result is also the sum so far
    return Access(first, operands if adds else operands[1:])


def elements(operand: str) -> Sequence[str]:
    """An operand, or the elements of a list in braces or parentheses."""
    return split_operands(operand[1:-1]) if operand[:1] + operand[-1:] in ("{}", "()") else (operand,)
