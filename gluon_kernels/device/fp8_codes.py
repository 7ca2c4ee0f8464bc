"""fp8 probabilities computed without exp2, as PTX text. Only text and numbers, no triton.

The bits of a positive float, read as an integer, are nearly its logarithm: the exponent and, below it, the mantissa,
which is a straight line from each power of two to the next. So log2 of a probability, times the codes that the type has
between two powers of two, rounded to an integer, is the code of that probability. This needs no exp2 and no conversion.
"""

import math
from dataclasses import dataclass

from .exp2_polynomial import MAGIC, word

# A straight line is up to 6 % above 2^x. With LINE_BITS subtracted from x, the error is -3.9 to 2.0 %: 0 in the mean,
# 1.8 % in the root mean square.
LINE_BITS = math.log2(0.5 / math.log(2) ** 2)
# The code of the largest score after saturation. It is no number of either type.
TOP = 127


@dataclass(frozen=True, slots=True)
class Code:
    """An 8-bit float type."""

    steps: int  # codes from one power of two to the next
    bias: int  # of the exponents
    largest: int  # the code of the largest number

    @property
    def one(self) -> int:
        """The code of 1.0."""
        return self.bias * self.steps

    @property
    def guard(self) -> int:
        """The number added to each code, so that the highest bit of a byte is set if the code is no number."""
        return 0x7F - self.largest

    @property
    def guards(self) -> int:
        """`guard` in each of four bytes."""
        return 0x01010101 * self.guard

    @property
    def scale(self) -> float:
        """The factor that turns log2 of a probability into the operands of `asm`."""
        return self.steps / TOP

    @property
    def start(self) -> float:
        """The number added to log2 of a probability before it is multiplied by `scale`."""
        return self.bias - LINE_BITS

    def asm(self, guarded: bool = True) -> str:
        """PTX of $0 = four codes, one in each byte, of exp2(score * factor + offset) for the scores $1 to $4.

        $5 is `scale` * factor, $6 is `scale` * (offset + `start`). `guarded`: `guard` is added to each code; then the
        highest bit of a byte is set if the result is above the largest number. Scores of -inf and NaN give the code 0.
        """
        top, magic = f"0f{word(TOP):08X}", f"0f{word(MAGIC + self.guard * guarded):08X}"
        lines = [".reg .f32 x;", ".reg .b32 t<4>;"]
        for i in range(4):
            lines += [
                f"fma.rn.ftz.sat.f32 x, ${i + 1}, $5, $6;",
                f"fma.rn.f32 x, x, {top}, {magic};",  # its low bits: the nearest integer
                f"mov.b32 t{i}, x;",
            ]
        # Multiply-adds instead of byte permutations, whose pipe is busier.
        lines += ["mad.lo.s32 t0, t1, 256, t0;", "mad.lo.s32 t2, t3, 256, t2;", "prmt.b32 $0, t0, t2, 0x5410;"]
        return "\n".join(["{", *lines, "}"])


CODES = {"fp8e4nv": Code(steps=8, bias=7, largest=0x7E), "fp8e5": Code(steps=4, bias=15, largest=0x7B)}
