"""Count what machine code stores to local memory and loads from it, and tell whether that is register spills.

A cubin does not record spills; only `ptxas -v` prints them. Its figure is the bytes of all STL and LDL instructions,
each counted once, without those that the program asked for itself: variables in local memory, and calls. The tests
hold the count to ptxas's figure.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_STEP = 16  # bytes of an instruction, since sm_70
_FIRST_SM = 70
_STL, _LDL = 0x187, 0x183  # the low 9 bits of an instruction; above them is the form of its operands
_LOW_BYTES = re.compile(b"[\x83\x87]")
_WIDTHS = (1, 1, 2, 2, 4, 8, 16, 16)  # bytes, by bits 73 to 75: U8, S8, U16, S16, 32, 64, 128


class LocalTraffic(NamedTuple):
    """Bytes of all instructions that store to local memory or load from it, each instruction counted once."""

    stores: int
    loads: int


def local_traffic(code: bytes, arch: int) -> LocalTraffic | None:
    """Count a kernel's STL and LDL instructions. arch: SM number. None: code of before sm_70, which is not read."""
    if arch < _FIRST_SM:
        return None
    bytes_of = {_STL: 0, _LDL: 0}
    for match in _LOW_BYTES.finditer(code[0::_STEP]):
        at = match.start() * _STEP
        opcode = int.from_bytes(code[at : at + 2], "little") & 0x1FF
        if opcode in bytes_of:
            bytes_of[opcode] += _WIDTHS[code[at + 9] >> 1 & 7]
    return LocalTraffic(bytes_of[_STL], bytes_of[_LDL])


def proven_spills(traffic: LocalTraffic | None) -> LocalTraffic | None:
    """The spills that the code alone proves: none, if it has no traffic. None: they are not known.

    If its PTX asks for no stack (ptx.statements.stackless_entries), all traffic is spills.
    """
    return traffic if traffic == (0, 0) else None
