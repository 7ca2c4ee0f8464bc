"""cvt of small formats, two in a register, and of integers that are clamped; against fractions."""

from __future__ import annotations

import pytest

np = pytest.importorskip("numpy")

from emulated import compute, run_both  # noqa: E402
from exact_numbers import FORMATS, code_of, codes_near_edges, value_of  # noqa: E402

from tritonhook.errors import NotUnderstood  # noqa: E402

SMALL = {"e4m3": 8, "e5m2": 8, "e2m3": 8, "e3m2": 8, "e2m1": 4}
COUNT = 128


def values(codes, name):
    return [value_of(int(code), name) for code in codes]


@pytest.mark.parametrize("relu", ["", ".relu"])
@pytest.mark.parametrize("name", SMALL)
def test_two_single_numbers_become_small_ones(name, relu):
    bits, draw = SMALL[name], np.random.default_rng(2)
    a, b = (codes_near_edges("f32", draw, COUNT) for _ in range(2))
    for given in (a, b):  # half of them in the range of the format
        given[::2] = draw.normal(size=COUNT // 2).astype(np.float32).view(np.uint32) + np.uint32(1 << 24)
    register, kind = ("%rb5", "u8") if bits == 4 else ("%rs9", "u16")
    line = f"cvt.rn.satfinite{relu}.{name}x2.f32 {register}, a, b; cvt.u32.{kind} d, {register};"
    found = compute(line, 4, a=a, b=b)
    how = {"finite": True, "relu": bool(relu)}
    for one, x, y in zip(found.tolist(), values(a, "f32"), values(b, "f32"), strict=True):
        assert one == code_of(x, name, **how) << bits | code_of(y, name, **how), (x, y)


@pytest.mark.parametrize("relu", ["", ".relu"])
@pytest.mark.parametrize("half", ["f16", "bf16"])
@pytest.mark.parametrize("name", ["e4m3", "e5m2"])
def test_two_halves_become_small_ones_and_back(name, half, relu):
    draw = np.random.default_rng(3)
    low, high = (codes_near_edges(half, draw, COUNT) for _ in range(2))
    words = low | high << np.uint32(16)
    found = compute(f"cvt.rn.satfinite{relu}.{name}x2.{half}x2 %rs9, a; cvt.u32.u16 d, %rs9;", 4, a=words)
    how = {"finite": True, "relu": bool(relu)}
    for one, x, y in zip(found.tolist(), values(low, half), values(high, half), strict=True):
        assert one == code_of(x, name, **how) | code_of(y, name, **how) << 8
    every = np.arange(256, dtype=np.uint32)
    codes = every | every[::-1] << np.uint32(8)
    back = compute(f"cvt.u16.u32 %rs9, a; cvt.rn{relu}.{half}x2.{name}x2 d, %rs9;", 4, a=codes)
    for one, code in zip(back.tolist(), codes.tolist(), strict=True):
        wanted = [code_of(value_of(part, name), half, relu=bool(relu)) for part in (code & 255, code >> 8)]
        assert one == wanted[0] | wanted[1] << 16, hex(code)


@pytest.mark.parametrize("name", ["e2m1", "e2m3", "e3m2"])
def test_small_numbers_become_two_halves(name):
    size = SMALL[name]
    most = FORMATS[name][0]
    every = np.arange(1 << most, dtype=np.uint32)
    codes = every | every[::-1] << np.uint32(size)
    register, kind = ("%rb5", "u8") if size == 4 else ("%rs9", "u16")
    found = compute(f"cvt.{kind}.u32 {register}, a; cvt.rn.f16x2.{name}x2 d, {register};", 4, a=codes)
    for one, low, high in zip(found.tolist(), every.tolist(), every[::-1].tolist(), strict=True):
        assert one == code_of(value_of(low, name), "f16") | code_of(value_of(high, name), "f16") << 16


@pytest.mark.parametrize("how", [".rn", ".rz", ".rn.relu", ".rz.relu", ".rn.satfinite"])
@pytest.mark.parametrize("half", ["f16", "bf16"])
def test_two_single_numbers_become_two_halves(half, how):
    draw = np.random.default_rng(4)
    a, b = (codes_near_edges("f32", draw, COUNT) for _ in range(2))
    found = compute(f"cvt{how}.{half}x2.f32 d, a, b;", 4, a=a, b=b)
    options = {"relu": "relu" in how, "finite": "satfinite" in how}
    for one, x, y in zip(found.tolist(), values(a, "f32"), values(b, "f32"), strict=True):
        assert one == code_of(x, half, how[1:3], **options) << 16 | code_of(y, half, how[1:3], **options)


INTEGERS = {f"{sign}{bits}": bits for sign in "us" for bits in (8, 16, 32, 64)}


@pytest.mark.parametrize("source", ["u16", "s16", "u32", "s32", "u64", "s64"])
@pytest.mark.parametrize("to", INTEGERS)
def test_integers_are_clamped_to_the_other_type(to, source):
    bits, wide = INTEGERS[to], INTEGERS[source]
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if to[0] == "s" else (0, (1 << bits) - 1)
    edges = [
        0,
        1,
        127,
        128,
        255,
        256,
        32767,
        32768,
        65535,
        65536,
        (1 << 31) - 1,
        1 << 31,
        (1 << 32) - 1,
        1 << 32,
        (1 << 63) - 1,
    ]
    codes = [n % (1 << wide) for n in edges] + [-n % (1 << wide) for n in edges]
    register = {8: "%rs9", 16: "%rs9", 32: "%r11", 64: "d"}[bits]
    widened = "" if bits == 64 else f" cvt.{to[0]}64.{to} d, {register};"
    found = compute(f"cvt.sat.{to}.{source} {register}, a;{widened}", 8, a=np.array(codes, f"u{wide // 8}"))
    numbers = [n - (n >> wide - 1 << wide) if source[0] == "s" else n for n in codes]
    assert found.tolist() == [max(low, min(high, n)) % (1 << 64) for n in numbers]


def test_saturated_doubles_lie_between_0_and_1():
    x = np.array([-1.0, -0.0, 0.25, 1.5, np.inf, -np.inf, np.nan])
    wanted = np.array([0, 0, 0.25, 1, 1, 0, 0])
    assert compute("cvt.sat.f64.f64 d, a;", 8, a=x.view(np.uint64)).view(np.float64).tolist() == wanted.tolist()
    single = x.astype(np.float32).view(np.uint32)
    assert compute("cvt.sat.f64.f32 d, a;", 8, a=single).view(np.float64).tolist() == wanted.tolist()


@pytest.mark.parametrize(
    "line",
    [
        "cvt.rn.e4m3x2.s32 %rs9, a;", "cvt.rn.f32.e4m3x2 d, %rs9;", "cvt.s32.f32 d, a;", "cvt.rn.s16.s32 %rs9, a;",
        "cvt.rn.f32.q32 d, a;", "cvt.f32 d, a;",
    ],
)  # fmt: skip
def test_other_conversions_are_refused(line):
    with pytest.raises(NotUnderstood, match=r"cvt"):
        compute(line, 4, a=np.arange(4, dtype=np.uint32))


@pytest.mark.parametrize("bits", [2, 4, 8, 16])
@pytest.mark.parametrize("sign", "us")
def test_two_integers_are_clamped_and_packed(sign, bits):
    """Executed for 8 and 16 bits: an H100 stores these."""
    draw = np.random.default_rng(4)
    a, b, c = (draw.integers(0, 1 << 32, COUNT, np.uint32) >> draw.integers(0, 32, COUNT) for _ in range(3))
    a, b = (np.where(draw.random(COUNT) < 0.5, -one.astype(np.int64), one) for one in (a, b))
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if sign == "s" else (0, (1 << bits) - 1)
    given = {name: one.astype(np.uint32) for name, one in (("a", a), ("b", b), ("c", c))}
    line = f"cvt.pack.sat.{sign}{bits}.s32{'' if bits == 16 else '.b32'} d, a, b{'' if bits == 16 else ', c'};"
    x, y = (np.clip(given[one].view(np.int32), low, high).astype(np.int64) % (1 << bits) for one in "ab")
    wanted = y | x << bits | (given["c"].astype(np.int64) << 2 * bits)
    assert compute(line, **given).tolist() == (wanted % (1 << 32)).tolist()


SPACES = {  # of addresses of shared, local, constant and global memory, and of a parameter
    **{"shared": 0b00001, "local": 0b00010, "const": 0b00100, "global": 0b11000, "param::entry": 0b10000},
    "shared::cluster": 0b00001,
}
ADDRESSES = """.shared .b32 room[4]; .local .b32 own[4]; mov.u64 %rd1, room; cvta.shared.u64 %rd1, %rd1;
mov.u64 %rd2, own; cvta.local.u64 %rd2, %rd2; mov.u64 %rd3, fixed; cvta.const.u64 %rd3, %rd3; mov.u64 %rd4, %rd20;
mov.u64 %rd5, x0; cvta.param.u64 %rd5, %rd5; st.local.b32 [own], 1; mov.b32 %r1, 0;"""


@pytest.mark.parametrize("space", SPACES)
def test_an_address_lies_in_a_space(space):
    asks = "".join(
        f"isspacep.{space} %p1, %rd{n + 1}; selp.b32 %r2, {1 << n}, 0, %p1; or.b32 %r1, %r1, %r2;" for n in range(5)
    )
    constants = ".const .b32 fixed[4] = {1, 2, 3, 4};"
    (found,) = run_both(
        f"{ADDRESSES} {asks} st.global.b32 [%rd20], %r1;", np.zeros(1, np.uint32), declarations=constants
    )
    assert found.tolist() == [SPACES[space]]
