"""An access of machine code outside of all buffers names the argument that its address came from."""

from __future__ import annotations

import struct

import pytest

from tritonhook.cubin.sass import Instruction
from tritonhook.emulate.sass.origin import origin

X, Y, INDEX = 0x1000, 0x2000, 0x3000
CONSTANTS = bytes(0x210) + struct.pack("<3Q", X, Y, INDEX)


@pytest.mark.parametrize(
    ("code", "pointers"),
    [
        (["LDC.64 R2, c[0x0][0x210]", "IMAD.WIDE R2, R0, 0x4, R2", "LDG.E R4, desc[UR4][R2.64+0x80]"], (X,)),
        (  # the low and the high half, on their own
            [
                *("IADD3 R6, P0, R0, c[0x0][0x218], RZ", "IADD3.X R7, R1, c[0x0][0x21c], RZ, P0, !PT"),
                "STG.E desc[UR4][R6.64], R9",
            ],
            (Y,),
        ),
        (  # an index that was loaded is no part of the address; a register that is written again is another
            [
                *("LDC.64 R8, c[0x0][0x220]", "LDG.E R3, desc[UR4][R8.64]", "LDC.64 R8, c[0x0][0x210]"),
                *("IMAD.WIDE R2, R3, 0x4, R8", "LDC.64 R8, c[0x0][0x218]", "LDG.E R4, desc[UR4][R2.64]"),
            ],
            (X,),
        ),
        (  # either of two
            [
                *("LDC.64 R8, c[0x0][0x210]", "@P0 LDC.64 R8, c[0x0][0x218]", "STG.E desc[UR4][R8.64], R1"),
            ],
            (Y, X),
        ),
        (["ULDC.64 UR6, c[0x0][0x218]", "MOV R2, UR6", "MOV R3, UR7", "LDG.E R4, [R2.64]"], (Y,)),
    ],
    ids=["wide", "halves", "loaded index", "predicate", "uniform"],
)
def test_the_pointers_of_an_address(code: list[str], pointers: tuple[int, ...]) -> None:
    listed = []
    for number, text in enumerate(code):
        predicate, rest = text.split(" ", 1) if text.startswith("@") else ("", text)
        opcode, _, operands = rest.partition(" ")
        listed.append(Instruction(16 * number, predicate, opcode, operands, 0))
    assert origin(listed, CONSTANTS, len(code) - 1, 0, 0).pointers == pointers
