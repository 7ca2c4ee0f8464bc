"""Probabilities as the bits of an 8-bit float, as PTX text. Only text and numbers, no triton.

The bits of a positive float, read as an integer, are nearly its logarithm: the exponent and, below it, the mantissa,
a straight line from each power of two to the next. So a score in bits, times the steps that the type has for one bit
and rounded to an integer, is a probability in that type: no exp2, no conversion.
"""

import math
from dataclasses import dataclass

from .exp2 import MAGIC, word

# A line is up to 6 % above 2^x. This many bits less, the mean error is 0: -3.9 to 2.0 %, 1.8 % in the mean square.
LINE_BITS = math.log2(0.5 / math.log(2) ** 2)
# The code that a score's saturation stands for: no number of either type.
TOP = 127


@dataclass(frozen=True, slots=True)
class Code:
    """Of a type, steps: codes from a power of two to the next; bias: of its exponents; largest: number's code."""

    steps: int
    bias: int
    largest: int

    @property
    def one(self) -> int:
        """The code of 1.0."""
        return self.bias * self.steps

    @property
    def guard(self) -> int:
        """What is added to each code, so that the byte's highest bit shows one that is no number."""
        return 0x7F - self.largest

    @property
    def guards(self) -> int:
        """`guard` in each byte of a word."""
        return 0x01010101 * self.guard

    @property
    def scale(self) -> float:
        """Of scores in bits, for codes_asm."""
        return self.steps / TOP

    @property
    def start(self) -> float:
        """What is added to scores in bits, before they are scaled."""
        return self.bias - LINE_BITS

    def asm(self, guarded: bool = True) -> str:
        """PTX: $0 = the codes of 2 to the power of four scores, $1 to $4 in its bytes, if `guarded` more by `guard`.

        $5: `scale` times what makes bits of scores; $6: `scale` times `start` and what is added to scores in bits.
        Scores of -inf and NaN give 0. What is larger than the largest number has its byte's highest bit set.
        """
        top, magic = f"0f{word(TOP):08X}", f"0f{word(MAGIC + self.guard * guarded):08X}"
        lines = [".reg .f32 x;", ".reg .b32 t<4>;"]
        for i in range(4):
            lines += [
                f"fma.rn.ftz.sat.f32 x, ${i + 1}, $5, $6;",
                f"fma.rn.f32 x, x, {top}, {magic};",  # its low bits: the nearest integer
                f"mov.b32 t{i}, x;",
            ]
        # Multiply-adds, since the pipe of byte permutations has more to do.
        lines += ["mad.lo.s32 t0, t1, 256, t0;", "mad.lo.s32 t2, t3, 256, t2;", "prmt.b32 $0, t0, t2, 0x5410;"]
        return "\n".join(["{", *lines, "}"])


CODES = {"fp8e4nv": Code(steps=8, bias=7, largest=0x7E), "fp8e5": Code(steps=4, bias=15, largest=0x7B)}
