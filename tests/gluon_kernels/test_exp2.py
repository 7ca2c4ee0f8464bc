"""exp2 by multiply-adds: its PTX text, run instruction by instruction on fp32 words."""

import math
import random
import re
import struct

import pytest

from gluon_kernels.exp2 import (
    COEFFICIENTS,
    LINE_BASE,
    LINE_BITS,
    LINE_SHIFT,
    STEPS,
    WITHOUT_MUFU,
    exp2_asm,
    softmax_exp2_asm,
    word,
)


def number(bits: int) -> float:
    return struct.unpack("<f", struct.pack("<I", bits))[0]


class Ptx:
    """The instructions of exp2.py. A 64-bit register is a list of two words; an fma of doubles, rounded once more."""

    def __init__(self, *inputs: float, results: int = 2):
        self.results = [f"${i}" for i in range(results)]
        self.registers: dict[str, object] = {f"${results + i}": word(x) for i, x in enumerate(inputs)}

    def value(self, operand: str):
        if operand.startswith("0x"):
            both = int(operand, 16)
            return [both & 0xFFFFFFFF, both >> 32]
        if operand.startswith("0f"):
            return int(operand[2:], 16)
        return int(operand) if operand.isdigit() else self.registers[operand]

    def run(self, text: str) -> tuple[float, ...]:
        assert text.startswith("{\n") and text.endswith("\n}")
        for line in text.splitlines()[1:-1]:
            opcode, rest = line.rstrip(";").split(" ", 1)
            if opcode != ".reg":
                self.step(opcode, re.findall(r"\{[^}]*\}|[^\s,{}]+", rest))
        return tuple(number(self.registers[name]) for name in self.results)

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


OPERATIONS = {
    "mov.b64": list,
    "mov.b32": int,
    "neg.f32": scalar(lambda a: -a),
    "sub.rn.f32": scalar(lambda a, b: a - b),
    "fma.rn.f32": scalar(lambda a, b, c: a * b + c),
    "fma.rn.ftz.sat.f32": scalar(lambda a, b, c: min(max(a * b + c, 0.0), 1.0)),
    "ex2.approx.ftz.f32": scalar(lambda a: 2.0**a),
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


RANDOM = random.Random(0)
SCORES = [-RANDOM.uniform(0, 125) for _ in range(2000)] + [-i / 64 for i in range(-9 * 64, 16 * 64)]


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


def softmax_exponentials(scores, scale, offset, by_fma, text=None):
    count = len(scores)
    rows = [[scale] * count, [offset] * count, [scale / STEPS] * count, [(126 - offset) / STEPS] * count]
    text = text or softmax_exp2_asm(count, by_fma)
    return Ptx(*scores, *(x for row in rows for x in row), results=count).run(text)


def worst_softmax_error(by_fma, text=None):
    errors = []
    for first in range(0, 800, 8):
        scores, scale, offset = [10 * x for x in SCORES[first : first + 8]], 0.09375, 1.75
        for score, y in zip(scores, softmax_exponentials(scores, scale, offset, by_fma, text), strict=True):
            errors.append(abs(y / 2.0 ** (score * scale - offset) - 1))
    return max(errors)


@pytest.mark.parametrize("by_fma", range(1, 9))
def test_exponentials_of_scores_are_made_in_two_ways(by_fma):
    text = softmax_exp2_asm(8, by_fma)
    assert text.count("ex2.approx") == 8 - by_fma
    assert worst_softmax_error(by_fma, text) < 1.8e-3


def line_errors(text=None):
    """Of exponentials read off straight lines, relative."""
    errors = []
    for first in range(0, 2000, 8):
        scores, scale, offset = [10 * x for x in SCORES[first : first + 8]], 0.09375, 1.75
        text = text or softmax_exp2_asm(8, 0, 8)
        for score, y in zip(scores, softmax_exponentials(scores, scale, offset, 0, text), strict=True):
            errors.append(y / 2.0 ** (score * scale - offset) - 1)
    return errors


def test_lines_err_less_than_e4m3_rounds_and_not_to_one_side():
    errors = line_errors()
    assert min(errors) > -0.0393 and max(errors) < 0.0201  # e4m3 rounds by up to 1/16
    assert abs(sum(errors) / len(errors)) < 1e-3
    assert 0.016 < math.sqrt(sum(e * e for e in errors) / len(errors)) < 0.019


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (f"shl.b32 $0, n, {LINE_SHIFT}", f"shl.b32 $0, n, {LINE_SHIFT - 1}"),
        (f"0f{word(LINE_BASE + 1 - LINE_BITS):08X}", f"0f{word(LINE_BASE + 1):08X}"),
        (f"0f{word(STEPS):08X}", f"0f{word(256.0):08X}"),
    ],
)
def test_broken_lines_are_found(old, new):
    text = softmax_exp2_asm(8, 0, 8)
    assert old in text
    errors = line_errors(text.replace(old, new))
    assert min(errors) < -0.0393 or max(errors) > 0.0201


def test_without_the_exp2_unit_both_rows_of_a_thread_are_served_alike():
    for count in range(0, 17, 2):
        rows = [i // 2 % 2 for i in WITHOUT_MUFU[:count]]
        assert abs(sum(rows) - count / 2) <= 1 if count % 4 else sum(rows) == count / 2
    assert sorted(WITHOUT_MUFU) == list(range(16))


def test_nothing_to_do_without_the_exp2_unit_is_no_text():
    assert softmax_exp2_asm(16, 0) == softmax_exp2_asm(16, 0, 0) == ""
    assert softmax_exp2_asm(16, 2, 8) == softmax_exp2_asm(16, 0, 8)


@pytest.mark.parametrize("ways", [(4, 0), (0, 4)])
def test_exponentials_of_scores_are_limited(ways):
    least, *_, most = softmax_exponentials([-math.inf, -1e30, -1000.0, 1e30], 1.0, 0.0, 4, softmax_exp2_asm(4, *ways))
    assert 0 < least < 2.0**-125
    assert 2.0**126 < most < math.inf


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("shl.b32 n, n, 23", "shl.b32 n, n, 22"),
        ("fma.rn.f32 f, x,", "fma.rn.f32 f, t,"),
        (f"0f{word(COEFFICIENTS[2][1]):08X}", f"0f{word(0.69):08X}"),
        ("fma.rn.f32 x, $14", "fma.rn.f32 x, $13"),
        (f"0f{word(STEPS):08X}", f"0f{word(256.0):08X}"),
    ],
)
def test_a_broken_text_for_scores_is_found(old, new):
    text = softmax_exp2_asm(8, 2)
    assert old in text
    assert worst_softmax_error(2, text.replace(old, new)) > 1.8e-3
