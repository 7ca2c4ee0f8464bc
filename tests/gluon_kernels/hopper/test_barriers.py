"""The flags of the Hopper attention: their PTX, run on words."""

import math
import re

import pytest


@pytest.fixture
def barriers():
    pytest.importorskip("triton", reason="needs triton")
    from gluon_kernels.hopper import barriers

    return barriers


def test_a_flag_says_that_a_number_is_larger(barriers):
    text = barriers.flag_asm.fn(2, "sums")
    assert "setp.gt.f32 p, $2, $4; setp.gt.or.f32 p, $3, $5, p;" in text and "vote.sync.any.pred flag_2, p" in text


@pytest.mark.parametrize(
    ("words", "maxima", "flag"),
    [
        ((0x7F7F7F7F, 0x01010101), (1.0, -3.0), False),
        *[((0x80 << shift, 0), (1.0, -3.0), True) for shift in (0, 8, 16, 24)],
        *[((0, 0x80 << shift), (1.0, -3.0), True) for shift in (0, 8, 16, 24)],
        ((0, 0), (-math.inf, 0.0), True),
        ((0, 0), (0.0, -math.inf), True),
        ((0, 0), (math.inf, 0.0), False),
    ],
)
def test_a_guess_is_given_up_for_a_high_bit_or_a_row_without_a_key(barriers, words, maxima, flag):
    text = barriers.flag_asm.fn(0, "codes")
    registers = dict(zip(("$2", "$3", "$4", "$5"), (*words, *maxima), strict=True))
    for statement in re.findall(r"\b((?:or|and|setp|vote)\.[^;]*);", text):
        opcode, rest = statement.split(" ", 1)
        target, *operands = re.split(r",\s*", rest)
        a, b, *more = [
            registers[x] if x in registers else -math.inf if x == "0fFF800000" else int(x, 0) for x in operands
        ]
        registers[target] = {
            "or.b32": lambda: a | b,  # noqa: B023
            "and.b32": lambda: a & b,  # noqa: B023
            "setp.ne.u32": lambda: a != b,  # noqa: B023
            "setp.eq.or.f32": lambda: a == b or more[0],  # noqa: B023
            "vote.sync.any.pred": lambda: a,  # noqa: B023
        }[opcode]()
    assert registers["flag_0"] is flag


def test_words_are_joined_by_or(barriers):
    assert barriers.either.fn(0x80, 0x7F00) == 0x7F80
