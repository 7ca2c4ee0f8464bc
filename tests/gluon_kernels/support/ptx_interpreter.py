"""Run the PTX text of exp2_polynomial.py and fp8_codes.py on the CPU, instruction by instruction, on 32-bit words."""

import math
import re
import struct
from collections.abc import Sequence

from gluon_kernels.device.exp2_polynomial import word


def number(bits: int) -> float:
    return struct.unpack("<f", struct.pack("<I", bits))[0]


class Ptx:
    """The registers, and the instructions that these texts have.

    A 64-bit register is a list of two words. An fma is computed in doubles and rounded again.
    """

    def __init__(self, *inputs: float, results: int = 2):
        self.results = [f"${i}" for i in range(results)]
        self.registers: dict[str, object] = {f"${results + i}": word(x) for i, x in enumerate(inputs)}

    def value(self, operand: str):
        if operand.startswith("0x"):
            both = int(operand, 16)
            return both if len(operand) <= 10 else [both & 0xFFFFFFFF, both >> 32]
        if operand.startswith("0f"):
            return int(operand[2:], 16)
        return int(operand) if operand.isdigit() else self.registers[operand]

    def run(self, text: str) -> tuple[float, ...]:
        return tuple(number(bits) for bits in self.words(text))

    def words(self, text: str) -> tuple[int, ...]:
        assert text.startswith("{\n") and text.endswith("\n}")
        for line in text.splitlines()[1:-1]:
            opcode, rest = line.rstrip(";").split(" ", 1)
            if opcode != ".reg":
                self.step(opcode, re.findall(r"\{[^}]*\}|[^\s,{}]+", rest))
        return tuple(self.registers[name] for name in self.results)

    def step(self, opcode: str, operands: list[str]) -> None:
        target, *sources = operands
        if opcode == "mov.b64" and target.startswith("{"):
            self.registers.update(zip(re.findall(r"\w+", target), self.value(sources[0]), strict=True))
        elif opcode == "mov.b64" and sources[0].startswith("{"):
            self.registers[target] = [self.value(x) for x in re.findall(r"\w+", sources[0])]
        else:
            values = [self.value(x) for x in sources]
            self.registers[target] = OPERATIONS[opcode](*values)


def each(function):
    return lambda *pairs: [word(function(*map(number, words))) for words in zip(*pairs, strict=True)]


def scalar(function):
    return lambda *words: word(function(*map(number, words)))


def saturated(a: float, b: float, c: float) -> float:
    x = a * b + c
    return 0.0 if math.isnan(x) else min(max(x, 0.0), 1.0)


def selected(pool: Sequence, selector: int) -> list:
    """The four bytes that prmt.b32 selects from the eight bytes of its operands, the lowest first."""
    return [pool[selector >> shift & 7] for shift in (0, 4, 8, 12)]


def permuted(a: int, b: int, selector: int) -> int:
    pool = a.to_bytes(4, "little") + b.to_bytes(4, "little")
    return int.from_bytes(bytes(selected(pool, selector)), "little")


OPERATIONS = {
    "mov.b64": list,
    "mov.b32": int,
    "neg.f32": scalar(lambda a: -a),
    "sub.rn.f32": scalar(lambda a, b: a - b),
    "fma.rn.f32": scalar(lambda a, b, c: a * b + c),
    "fma.rn.ftz.sat.f32": scalar(saturated),
    "ex2.approx.ftz.f32": scalar(lambda a: 2.0**a),
    "max.f32": lambda a, b: max(a, b, key=number),
    "add.rn.f32x2": each(lambda a, b: a + b),
    "fma.rn.f32x2": each(lambda a, b, c: a * b + c),
    "shl.b32": lambda a, n: a << n & 0xFFFFFFFF,
    "mad.lo.s32": lambda a, b, c: a * b + c & 0xFFFFFFFF,
    "prmt.b32": permuted,
    "add.s32": lambda a, b: a + b & 0xFFFFFFFF,
}
