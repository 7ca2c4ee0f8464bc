"""Run the PTX text of exp2_polynomial.py on the CPU, instruction by instruction, on 32-bit words."""

import re
import struct

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


OPERATIONS = {
    "mov.b64": list,
    "mov.b32": int,
    "max.f32": lambda a, b: max(a, b, key=number),
    "add.rn.f32x2": each(lambda a, b: a + b),
    "fma.rn.f32x2": each(lambda a, b, c: a * b + c),
    "shl.b32": lambda a, n: a << n & 0xFFFFFFFF,
    "add.s32": lambda a, b: a + b & 0xFFFFFFFF,
}
