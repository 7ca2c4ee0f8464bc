"""Probabilities as codes of an 8-bit float: the PTX text, run on words, compared with the values of the codes."""

import math
import random

import pytest

from gluon_kernels.device.exp2_polynomial import MAGIC, word
from gluon_kernels.device.fp8_codes import CODES, LINE_BITS, TOP
from gluon_kernels.hopper.config import HopperConfig
from tests.gluon_kernels.support.ptx_interpreter import Ptx

MANTISSA_BITS = {"fp8e4nv": 3, "fp8e5": 2}
LARGEST = {"fp8e4nv": 448.0, "fp8e5": 57344.0}
SCALE, OFFSET = 0.09375, 1.75  # log2 of a probability is score * SCALE - OFFSET


def decoded(dtype: str, code: int) -> float:
    """The value of a code by the definition of the type: a mantissa with a hidden one, or subnormal."""
    bits, bias = MANTISSA_BITS[dtype], {"fp8e4nv": 7, "fp8e5": 15}[dtype]
    exponent, mantissa = divmod(code, 2**bits)
    return math.ldexp(mantissa + (2**bits if exponent else 0), max(exponent, 1) - bias - bits)


def bytes_of(dtype: str, exponents: list[float], text: str | None = None) -> list[int]:
    """The bytes that the kernel computes for 2 ** exponent, guards included."""
    code, made = CODES[dtype], []
    for first in range(0, len(exponents), 4):
        scores = [(x + OFFSET) / SCALE for x in exponents[first : first + 4]]
        row = (code.scale * SCALE, (code.start - OFFSET) * code.scale)
        (packed,) = Ptx(*scores, *row, results=1).words(text or code.asm())
        made += packed.to_bytes(4, "little")
    return made


def errors(dtype: str, text: str | None = None) -> list[float]:
    """Relative errors of probabilities that are normal numbers of the type."""
    least = 1 - CODES[dtype].bias
    random_ = random.Random(0)
    exponents = [random_.uniform(least + 0.1, math.log2(LARGEST[dtype]) - 0.1) for _ in range(4000)]
    made = bytes_of(dtype, exponents, text)
    return [
        decoded(dtype, max(0, byte - CODES[dtype].guard)) / 2.0**x - 1 for byte, x in zip(made, exponents, strict=True)
    ]


def mean(xs) -> float:
    xs = list(xs)
    return sum(xs) / len(xs)


@pytest.mark.parametrize("dtype", CODES)
def test_a_code_is_what_the_type_says(dtype):
    code = CODES[dtype]
    assert decoded(dtype, code.one) == 1.0
    assert decoded(dtype, code.largest) == LARGEST[dtype]
    assert decoded(dtype, code.one + code.steps) == 2.0
    assert code.largest + 1 + code.guard == 0x80 and code.largest < TOP + 1 <= 0x80


@pytest.mark.parametrize(("dtype", "worst", "spread"), [("fp8e4nv", 0.081, 0.032), ("fp8e5", 0.12, 0.056)])
def test_codes_are_exponentials_as_rough_as_the_type_and_not_to_one_side(dtype, worst, spread):
    found = errors(dtype)
    assert max(map(abs, found)) < worst  # the error of a line, and half a step of the type
    assert abs(mean(found)) < 3e-3
    assert math.sqrt(mean(x * x for x in found)) < spread


@pytest.mark.parametrize("dtype", CODES)
def test_far_below_the_maximum_nothing_is_left(dtype):
    code = CODES[dtype]
    assert bytes_of(dtype, [-math.inf, -1e30, -1000.0, math.nan]) == [code.guard] * 4
    least = -code.bias - 1 / code.steps
    assert bytes_of(dtype, [least] * 4) == [code.guard] * 4


@pytest.mark.parametrize("dtype", CODES)
def test_what_is_no_number_has_the_highest_bit(dtype):
    code = CODES[dtype]
    last = (code.largest + 0.4) / code.steps - code.bias + LINE_BITS
    first = (code.largest + 0.6) / code.steps - code.bias + LINE_BITS
    assert bytes_of(dtype, [last] * 4) == [code.largest + code.guard] * 4
    for exponent in (first, first + 0.2, first + 3, 1e30, math.inf):
        for byte in bytes_of(dtype, [exponent, last, last, exponent])[::3]:
            assert byte >= 0x80, exponent


@pytest.mark.parametrize("dtype", CODES)
def test_each_byte_is_of_its_own_score(dtype):
    code = CODES[dtype]
    expected = [code.one + code.guard + i * code.steps for i in range(4)]
    assert bytes_of(dtype, [LINE_BITS + i for i in range(4)]) == expected


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("0x5410", "0x1054"),
        ("mad.lo.s32 t2, t3, 256, t2", "mad.lo.s32 t2, t3, 128, t2"),
        (f"0f{word(MAGIC + 1):08X}", f"0f{word(MAGIC):08X}"),
        (f"0f{word(TOP):08X}", f"0f{word(TOP + 1):08X}"),
        ("fma.rn.ftz.sat.f32", "fma.rn.f32"),
    ],
)
def test_a_broken_text_is_found(old, new):
    """Mutation check: the tests above fail on it."""
    dtype = "fp8e4nv"
    code = CODES[dtype]
    assert old in code.asm()
    text = code.asm().replace(old, new)
    worst = max(map(abs, errors(dtype, text)))
    blind = bytes_of(dtype, [-1000.0] * 4, text)
    assert worst > 0.081 or blind != [code.guard] * 4


def test_without_the_shift_of_the_lines_their_error_is_to_one_side():
    above = [0.1, 0.35, 0.6, 0.85]
    made = bytes_of("fp8e4nv", [x + LINE_BITS for x in above])
    assert mean(decoded("fp8e4nv", byte - 1) / 2**x for byte, x in zip(made, above, strict=True)) > 1.03


def own_key_error(margin_bits: int, head_bits: int, far_keys: int = 640, head_dim: int = 64, few: int = 10) -> float:
    """The error of O, relative to its largest value, for a row with q = k that sees itself last.

    Plain numbers: the first block by exact exponentials, e4m3's rounding left out, the others as codes.
    """
    random_, keys = random.Random(1), far_keys + few
    k, v = ([[random_.gauss(0, 1) for _ in range(head_dim)] for _ in range(keys)] for _ in range(2))
    q = k[-1]
    bits = [sum(a * b for a, b in zip(q, row, strict=True)) * head_dim**-0.5 / math.log(2) for row in k]
    guess = max(bits[-few:]) + margin_bits
    exponents = [x - guess + head_bits for x in bits]
    code = CODES["fp8e4nv"]
    far = [decoded("fp8e4nv", byte - code.guard) for byte in bytes_of("fp8e4nv", exponents[:-few])]
    made, exact = far + [2**x for x in exponents[-few:]], [2**x for x in exponents]
    rows = [
        [sum(p * row[d] for p, row in zip(ps, v, strict=True)) / sum(ps) for d in range(head_dim)]
        for ps in (made, exact)
    ]
    return max(abs(a - b) for a, b in zip(*rows, strict=True)) / max(map(abs, rows[1]))


def test_a_query_whose_own_key_outweighs_all_others_still_sees_them():
    """Mutation check included: with the margin of other rows with few keys, the other keys would be lost."""
    config = HopperConfig("fp8e4nv", 64, "top-left", guess=True, codes=True)
    assert own_key_error(config.margin_bits, config.head_bits) < 0.06
    assert own_key_error(3, config.head_bits) > 0.2


@pytest.mark.parametrize("dtype", CODES)
def test_without_guards_a_byte_is_the_code(dtype):
    code, exponents = CODES[dtype], [0.3, -4.0, 5.1, -math.inf]
    guarded = bytes_of(dtype, exponents)
    assert bytes_of(dtype, exponents, code.asm(guarded=False)) == [byte - code.guard for byte in guarded]
