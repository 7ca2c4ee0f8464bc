"""PTX text that computes exp2 with multiply-adds. Imports no triton.

Softmax needs one exp2 per score. The exp2 unit (MUFU) computes 16 per clock and SM, while the FMA pipes are nearly
idle. So these kernels, like FlashAttention-4, can compute some of their exponentials in the FMA pipes: x is split into
the nearest integer n and a fraction |f| <= 1/2 (Cody and Waite), a polynomial approximates 2^f, and n is added to the
exponent field of the result.
"""

import struct

# Degree -> coefficients of f^0, f^1, ... with the least relative error on [-1/2, 1/2] (Remez): 1.7e-3 and 7.5e-5.
# Rounding a probability costs up to 6e-2 in e4m3, 4e-3 in bf16, 5e-4 in fp16.
COEFFICIENTS = {
    2: (1.0004431419479758, 0.7034480059096527, 0.2384289358094525),
    3: (0.9999280735404955, 0.6932609854573362, 0.24261112219433098, 0.055171669074864024),
}
# The low bits of the mantissa of x + MAGIC are n, the integer nearest to x.
MAGIC = 1.5 * 2**23
# Smaller x are replaced by LEAST: their 2^x would be subnormal, too small to matter beside the largest probability.
LEAST = -126.0


def word(x: float) -> int:
    """Convert x to fp32 and return its bits."""
    return int.from_bytes(struct.pack("<f", x), "little")


def exp2_asm(degree: int) -> str:
    """Return PTX for $0 = exp2($2) and $1 = exp2($3), for inputs up to 127. Inputs below -126 give 2^-126, not 0."""

    def pair(x: float) -> str:
        return f"0x{word(x):08X}{word(x):08X}"

    *lower, top = COEFFICIENTS[degree]
    lines = [
        ".reg .b64 x, t, n, f, p, c;",
        ".reg .b32 x0, x1, t0, t1, p0, p1;",
        f"max.f32 x0, $2, 0f{word(LEAST):08X};",
        f"max.f32 x1, $3, 0f{word(LEAST):08X};",
        "mov.b64 x, {x0, x1};",
        f"mov.b64 c, {pair(MAGIC)};",
        "add.rn.f32x2 t, x, c;",
        f"mov.b64 c, {pair(-MAGIC)};",
        "add.rn.f32x2 n, t, c;",
        f"mov.b64 c, {pair(-1.0)};",
        "fma.rn.f32x2 f, n, c, x;",
        f"mov.b64 p, {pair(top)};",
    ]
    for coefficient in reversed(lower):
        lines += [f"mov.b64 c, {pair(coefficient)};", "fma.rn.f32x2 p, p, f, c;"]
    lines += [
        "mov.b64 {t0, t1}, t;",
        "mov.b64 {p0, p1}, p;",
        "shl.b32 t0, t0, 23;",
        "shl.b32 t1, t1, 23;",
        "add.s32 $0, t0, p0;",
        "add.s32 $1, t1, p1;",
    ]
    return "\n".join(["{", *lines, "}"])
