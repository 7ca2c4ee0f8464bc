"""Find the origin of an address in machine code: the pointer parameters of the kernel that it was computed from.

This runs once, after an access failed. For each register, the listing is searched backwards for the nearest instruction
that writes it. Values that were loaded from memory are not traced. 32-bit values that wrapped are not searched for;
emulate the PTX to find them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from tritonhook.cubin.sass import Instruction
from tritonhook.emulate.errors import Origin

_ADDRESS = re.compile(r"(?<!desc)\[([^\]]*)\]")
_REGISTER = re.compile(r"\b(U?R)(\d+)\b")
_CONSTANT = re.compile(r"c\[0x0\]\[(0x[0-9a-f]+)\]")
_FROM_MEMORY = ("LD", "ATOM", "TEX", "S2R", "S2UR", "SHFL", "CS2R")  # prefixes; LDC, which loads parameters, is traced
_WIDE = {"64": 2, "WIDE": 2, "96": 3, "128": 4}  # number of registers, by modifier

Register = tuple[str, int]


def origin(code: Sequence[Instruction], constants: bytes, pc: int, thread: int, address: int) -> Origin:
    """Find the pointer parameters from which the instruction at `pc` computes its address. constants: constant bank 0,
    which holds the parameters. thread, address: not used here."""
    pointers = dict[int, None]()
    left = [(pc, one) for text in _ADDRESS.findall(code[pc].operands) for one in _registers(text, 2)]
    seen = set(left)
    while left:
        before, register = left.pop()
        for index in _writers(code, before, register):
            one = code[index]
            base = one.opcode.split(".")[0]
            if base.startswith(_FROM_MEMORY) and base != "LDC":
                continue
            sources = one.operands.partition(",")[2]
            for at in _CONSTANT.findall(sources):
                begin = int(at, 16) // 8 * 8
                pointers[int.from_bytes(constants[begin : begin + 8], "little")] = None
            new = {(index, source) for source in _registers(sources, _width(one))} - seen
            seen |= new
            left += new
    return Origin(tuple(pointers))


def _registers(text: str, width: int) -> Iterator[Register]:
    """Yield, for each register in the operands, this register and the next ones: `width` registers in all."""
    for kind, number in _REGISTER.findall(text):
        yield from ((kind, int(number) + n) for n in range(width))


def _width(one: Instruction) -> int:
    return max((_WIDE.get(part, 1) for part in one.opcode.split(".")[1:]), default=1)


def _writers(code: Sequence[Instruction], before: int, register: Register) -> Iterator[int]:
    """Yield the indices of instructions that may have written a register, nearest first. Stop after the first one
    without a predicate, which certainly wrote it."""
    for index in range(before - 1, -1, -1):
        one = code[index]
        if register in _registers(one.operands.partition(",")[0], _width(one)) and not one.opcode.startswith("ST"):
            yield index
            if not one.predicate.startswith("@"):
                return
