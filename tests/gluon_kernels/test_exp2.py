"""exp2 by multiply-adds: its PTX text, run instruction by instruction on fp32 words."""

import math
import random
import re
import struct

import pytest

from gluon_kernels.exp2 import COEFFICIENTS, exp2_asm, word


def number(bits: int) -> float:
    return struct.unpack("<f", struct.pack("<I", bits))[0]


class Ptx:
    """The instructions of exp2_asm. A 64-bit register is a list of two words; an fma of doubles, rounded once more."""

    def __init__(self, *inputs: float):
        self.registers: dict[str, object] = {"$2": word(inputs[0]), "$3": word(inputs[1])}

    def value(self, operand: str):
        if operand.startswith("0x"):
            both = int(operand, 16)
            return [both & 0xFFFFFFFF, both >> 32]
        if operand.startswith("0f"):
            return int(operand[2:], 16)
        return int(operand) if operand.isdigit() else self.registers[operand]

    def run(self, text: str) -> tuple[float, float]:
        assert text.startswith("{\n") and text.endswith("\n}")
        for line in text.splitlines()[1:-1]:
            opcode, rest = line.rstrip(";").split(" ", 1)
            if opcode != ".reg":
                self.step(opcode, re.findall(r"\{[^}]*\}|[^\s,{}]+", rest))
        return number(self.registers["$0"]), number(self.registers["$1"])

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
    "max.f32": lambda a, b: max(a, b, key=number),
    "add.rn.f32x2": each(lambda a, b: a + b),
    "fma.rn.f32x2": each(lambda a, b, c: a * b + c),
    "shl.b32": lambda a, n: a << n & 0xFFFFFFFF,
    "add.s32": lambda a, b: a + b & 0xFFFFFFFF,
}


def worst_error(degree: int, xs: list[float], text: str | None = None) -> float:
    """Largest relative error over pairs of neighbours."""
    text = text or exp2_asm(degree)
    errors = []
    for a, b in zip(xs[::2], xs[1::2], strict=True):
        for x, y in zip((a, b), Ptx(a, b).run(text), strict=True):
            errors.append(abs(y / 2.0 ** number(word(x)) - 1))
    return max(errors)


SCORES = [-random.Random(0).uniform(0, 125) for _ in range(2000)] + [-i / 64 for i in range(-9 * 64, 16 * 64)]


@pytest.mark.parametrize(("degree", "most"), [(2, 1.8e-3), (3, 7.6e-5)])
def test_it_errs_less_than_the_rounding_of_a_probability(degree, most):
    assert worst_error(degree, SCORES) < most


@pytest.mark.parametrize("degree", COEFFICIENTS)
def test_far_below_the_maximum_it_is_next_to_nothing(degree):
    for x in (-126.0, -127.5, -1e30, -math.inf):
        for y in Ptx(x, x).run(exp2_asm(degree)):
            assert 0 <= y < 2.0**-125


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("shl.b32 t1, t1, 23", "shl.b32 t1, t1, 22"),
        ("fma.rn.f32x2 f, n, c, x", "fma.rn.f32x2 f, t, c, x"),
        ("max.f32 x1, $3", "max.f32 x1, $2"),
        (f"0x{word(COEFFICIENTS[3][1]):08X}", f"0x{word(0.6931):08X}"),
    ],
)
def test_a_broken_text_is_found(old, new):
    text = exp2_asm(3)
    assert old in text
    assert worst_error(3, SCORES, text.replace(old, new)) > 7.6e-5
