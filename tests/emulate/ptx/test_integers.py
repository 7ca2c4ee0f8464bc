"""Integer instructions against Python's integers, on random and special values."""

from __future__ import annotations

import pytest

np = pytest.importorskip("numpy")

from emulated import compute  # noqa: E402

from tritonhook.errors import NotUnderstood  # noqa: E402

SPECIAL = [0, 1, 2, 31, 32, 33, 255, 0x7FFF, 0x8000, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFE, 0xFFFFFFFF]


def words(bits, seed, count=128):
    rng = np.random.default_rng(seed)
    found = rng.integers(0, 1 << 62, count, dtype=np.uint64) << np.uint64(rng.integers(0, 3))
    found[: len(SPECIAL)] = SPECIAL
    found[len(SPECIAL) : 2 * len(SPECIAL)] = [one << 32 | one for one in SPECIAL]
    return (rng.permutation(found) & np.uint64((1 << bits) - 1)).astype(f"u{bits // 8}")


def signed(value, bits):
    return value - (1 << bits) if value >> bits - 1 else value


def quotient(a, b):
    return -1 if b == 0 else abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def remainder(a, b):
    return -1 if b == 0 else a - quotient(a, b) * b  # executed


def lut(table):
    def found(a, b, c):
        bit = lambda x, n: x >> n & 1  # noqa: E731
        return sum((table >> (bit(a, n) << 2 | bit(b, n) << 1 | bit(c, n)) & 1) << n for n in range(32))

    return found


def extracted(bits, is_signed):
    def found(a, place, count):
        if bits == 32:  # of 64 bits a GPU takes all of both numbers
            place, count = place & 255, count & 255
        word = a & (1 << bits) - 1
        fill = word >> min(place + count - 1, bits - 1) & 1 if is_signed and count else 0
        return sum((word >> place + n & 1 if n < count and place + n < bits else fill) << n for n in range(bits))

    return found


def inserted(a, b, place, count, bits=32):
    if bits == 32:
        place, count = place & 255, count & 255
    mask = (1 << count) - 1 << place & (1 << bits) - 1
    return (b & ~mask) | (a << place & mask)


def permuted(a, b, chosen):
    taken = (b << 32 | a).to_bytes(8, "little")
    found = 0
    for place in range(4):
        nibble = chosen >> 4 * place & 15
        byte = taken[nibble & 7]
        found |= ((255 if byte & 128 else 0) if nibble & 8 else byte) << 8 * place
    return found


def low_24(n):
    return signed(n & 0xFFFFFF, 24)


def dot(a, b):
    return sum((a >> at & 255) * (b >> at & 255) for at in (0, 8, 16, 24))


def funnel(left, wraps):
    def found(low, high, count):
        count = count & 31 if wraps else min(count, 32)
        both = high << 32 | low
        return both << count >> 32 if left else both >> count

    return found


u32, s32, u64, s64, u16, s16 = ((bits, is_signed) for bits in (32, 64, 16) for is_signed in (False, True))
CASES = [
    ("add.s32 d, a, b;", u32, lambda a, b: a + b),
    ("add.s64 d, a, b;", u64, lambda a, b: a + b),
    ("add.u16 d, a, b;", u16, lambda a, b: a + b),
    ("add.sat.s32 d, a, b;", s32, lambda a, b: max(-(1 << 31), min((1 << 31) - 1, a + b))),
    ("add.u16x2 d, a, b;", u32, lambda a, b: (a + b & 0xFFFF) | ((a >> 16) + (b >> 16) & 0xFFFF) << 16),
    ("sub.s32 d, a, b;", u32, lambda a, b: a - b),
    ("sub.s64 d, a, b;", u64, lambda a, b: a - b),
    ("mul.lo.s32 d, a, b;", u32, lambda a, b: a * b),
    ("mul.lo.s64 d, a, b;", u64, lambda a, b: a * b),
    ("mul.hi.u32 d, a, b;", u32, lambda a, b: a * b >> 32),
    ("mul.hi.s32 d, a, b;", s32, lambda a, b: a * b >> 32),
    ("mul.hi.u64 d, a, b;", u64, lambda a, b: a * b >> 64),
    ("mul.hi.s64 d, a, b;", s64, lambda a, b: a * b >> 64),
    ("mul.hi.s16 d, a, b;", s16, lambda a, b: a * b >> 16),
    ("mad.lo.s32 d, a, b, c;", u32, lambda a, b, c: a * b + c),
    ("mad.hi.u32 d, a, b, c;", u32, lambda a, b, c: (a * b >> 32) + c),
    ("mul24.lo.u32 d, a, b;", u32, lambda a, b: (a & 0xFFFFFF) * (b & 0xFFFFFF)),
    ("mul24.lo.s32 d, a, b;", u32, lambda a, b: low_24(a) * low_24(b)),
    ("mul24.hi.u32 d, a, b;", u32, lambda a, b: (a & 0xFFFFFF) * (b & 0xFFFFFF) >> 16),
    ("mad24.hi.s32 d, a, b, c;", u32, lambda a, b, c: (low_24(a) * low_24(b) >> 16) + c),
    ("mad24.lo.u32 d, a, b, c;", u32, lambda a, b, c: (a & 0xFFFFFF) * (b & 0xFFFFFF) + c),
    ("mad24.lo.s32 d, a, b, c;", u32, lambda a, b, c: low_24(a) * low_24(b) + c),
    ("sad.s32 d, a, b, c;", s32, lambda a, b, c: abs(a - b) + c),
    ("div.s32 d, a, b;", s32, quotient),
    ("div.u32 d, a, b;", u32, quotient),
    ("div.s64 d, a, b;", s64, quotient),
    ("rem.s32 d, a, b;", s32, remainder),
    ("rem.u32 d, a, b;", u32, remainder),
    ("min.s32 d, a, b;", s32, min),
    ("min.u64 d, a, b;", u64, min),
    ("max.s16 d, a, b;", s16, max),
    ("min.relu.s32 d, a, b;", s32, lambda a, b: max(min(a, b), 0)),
    ("abs.s32 d, a;", s32, abs),
    ("neg.s64 d, a;", s64, lambda a: -a),
    ("and.b32 d, a, b;", u32, lambda a, b: a & b),
    ("or.b64 d, a, b;", u64, lambda a, b: a | b),
    ("xor.b16 d, a, b;", u16, lambda a, b: a ^ b),
    ("not.b32 d, a;", u32, lambda a: ~a),
    ("cnot.b32 d, a;", u32, lambda a: int(a == 0)),
    ("lop3.b32 d, a, b, c, 0x96;", u32, lut(0x96)),
    ("lop3.b32 d, a, b, c, 0xE4;", u32, lut(0xE4)),
    ("shl.b32 d, a, b;", u32, lambda a, b: a << b if b < 32 else 0),
    ("shr.u32 d, a, b;", u32, lambda a, b: a >> b if b < 32 else 0),
    ("shr.s32 d, a, b;", s32, lambda a, b: a >> min(b & 0xFFFFFFFF, 31)),
    ("shr.s16 d, a, 3;", s16, lambda a: a >> 3),
    ("shl.b64 d, a, 33;", u64, lambda a: a << 33),
    ("shr.s64 d, a, 40;", s64, lambda a: a >> 40),
    ("shf.l.wrap.b32 d, a, b, c;", u32, funnel(True, True)),
    ("shf.r.wrap.b32 d, a, b, c;", u32, funnel(False, True)),
    ("shf.l.clamp.b32 d, a, b, c;", u32, funnel(True, False)),
    ("shf.r.clamp.b32 d, a, b, c;", u32, funnel(False, False)),
    ("prmt.b32 d, a, b, c;", u32, permuted),
    ("bfe.u32 d, a, b, c;", u32, extracted(32, False)),
    ("bfe.s32 d, a, b, c;", u32, extracted(32, True)),
    ("bfi.b32 d, a, b, c, 7;", u32, lambda a, b, c: inserted(a, b, c, 7)),
    ("bfi.b32 d, a, b, 5, c;", u32, lambda a, b, c: inserted(a, b, 5, c)),
    ("brev.b32 d, a;", u32, lambda a: int(f"{a:032b}"[::-1], 2)),
    ("popc.b32 d, a;", u32, lambda a: a.bit_count()),
    ("clz.b32 d, a;", u32, lambda a: 32 - a.bit_length()),
    ("bfind.u32 d, a;", u32, lambda a: a.bit_length() - 1),
    ("bfind.s32 d, a;", s32, lambda a: (~a if a < 0 else a).bit_length() - 1),
    ("bfind.shiftamt.u32 d, a;", u32, lambda a: 32 - a.bit_length() if a else -1),
    ("selp.b32 d, a, b, %p1;", u32, lambda a, b: b),
    ("setp.lt.s32 %p2, a, b; selp.b32 d, 1, 0, %p2;", s32, lambda a, b: int(a < b)),
    ("setp.hi.u32 %p2, a, b; selp.b32 d, 1, 0, %p2;", u32, lambda a, b: int(a > b)),
    ("setp.lt.u32 %p2 | %p3, a, b; selp.b32 d, 1, 0, %p3;", u32, lambda a, b: int(a >= b)),
    ("setp.eq.u32 %p4, a, a; setp.ne.xor.s32 %p2, a, b, %p4; selp.b32 d, 1, 0, %p2;", u32, lambda a, b: int(a == b)),
    ("set.ge.u32.u32 d, a, b;", u32, lambda a, b: 0xFFFFFFFF if a >= b else 0),
    ("dp4a.u32.u32 d, a, b, c;", u32, lambda a, b, c: dot(a, b) + c),
    ("add.cc.u32 d, a, b; addc.u32 d, 0, 0;", u32, lambda a, b: a + b >> 32),
    ("add.cc.u32 d, a, b; addc.cc.u32 d, -1, 0; addc.u32 d, 0, 0;", u32, lambda a, b: a + b >> 32),
    ("sub.cc.u32 d, a, b; subc.cc.u32 d, 0, 0; subc.u32 d, 9, 0;", u32, lambda a, b: 9 - (a < b)),
    ("sub.cc.u32 d, a, b; subc.u32 d, a, 0;", u32, lambda a, b: a - (a < b)),
    ("mad.lo.cc.u32 d, a, b, c; madc.hi.u32 d, a, b, 0;", u32, lambda a, b, c: a * b + c >> 32),
]


@pytest.mark.parametrize("lines, kind, expected", CASES, ids=[case[0] for case in CASES])
def test_an_instruction_computes_what_it_says(lines, kind, expected):
    bits, is_signed = kind
    names = [name for name in "abc" if f" {name}," in lines or f" {name};" in lines]
    given = {name: words(bits, number) for number, name in enumerate(names)}
    found = compute(lines, bits // 8, **given)
    columns = [[signed(int(x), bits) if is_signed else int(x) for x in given[name]] for name in names]
    wanted = [expected(*row) & (1 << bits) - 1 for row in zip(*columns, strict=True)]
    assert found.tolist() == wanted


@pytest.mark.parametrize("line", ["bfe.u64 d, a, b, c;", "bfe.s64 d, a, b, c;", "bfi.b64 d, a, a, b, c;"])
def test_bit_fields_of_64_bits(line):
    """Places and lengths at and beyond 64."""
    a, draw = words(64, 1), np.random.default_rng(2)
    b, c = (draw.choice([0, 1, 5, 31, 32, 33, 63, 64, 65, 255, 256], len(a)).astype(np.uint32) for _ in range(2))
    exact = (lambda x, y, z: inserted(x, x, y, z, 64)) if "bfi" in line else extracted(64, ".s" in line)
    found = compute(line, 8, a=a, b=b, c=c).tolist()
    assert found == [exact(*map(int, row)) & (1 << 64) - 1 for row in zip(a, b, c, strict=True)]


def test_wide_products_have_twice_the_bits():
    a, b = words(32, 1), words(32, 2)
    wanted = [signed(int(x), 32) * signed(int(y), 32) & (1 << 64) - 1 for x, y in zip(a, b, strict=True)]
    assert compute("mul.wide.s32 d, a, b;", 8, a=a, b=b).tolist() == wanted
    assert compute("mad.wide.u32 d, a, b, 7;", 8, a=a, b=b).tolist() == [
        int(x) * int(y) + 7 for x, y in zip(a, b, strict=True)
    ]


def test_vectors_are_split_and_joined():
    a = words(64, 1)
    assert compute("mov.b64 {%r11, %r12}, a; mov.b64 d, {%r12, %r11};", 8, a=a).tolist() == [
        (int(x) >> 32 | int(x) << 32) & (1 << 64) - 1 for x in a
    ]


def test_a_smaller_number_is_extended_as_its_type_says():
    a = words(16, 3)
    assert compute("cvt.s32.s16 d, a;", 4, a=a).tolist() == [signed(int(x), 16) & 0xFFFFFFFF for x in a]
    assert compute("cvt.u32.u16 d, a;", 4, a=a).tolist() == a.tolist()
    assert compute("cvt.sat.u8.s32 %r11, a; mov.b32 d, %r11;", 4, a=words(32, 4)).tolist() == [
        max(0, min(255, signed(int(x), 32))) for x in words(32, 4)
    ]


@pytest.mark.parametrize("lines", ["frob.b32 d, a;", "add.weird.s32 d, a, a;", "prmt.b32.f5e d, a, a, a;"])
def test_what_is_not_known_is_not_guessed(lines):
    with pytest.raises(NotUnderstood, match=lines.partition(" ")[0].replace(".", r"\.")):
        compute(lines, 4, a=words(32, 1))
