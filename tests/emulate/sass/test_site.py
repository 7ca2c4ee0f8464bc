"""Operands of machine code: what each form reads and writes, for each thread, and which forms are refused."""

from __future__ import annotations

import pytest

np = pytest.importorskip("numpy")

from tritonhook.cubin.sass import Instruction, Sass  # noqa: E402
from tritonhook.emulate.machine import Geometry, Group, Machine  # noqa: E402
from tritonhook.emulate.memory import Memory  # noqa: E402
from tritonhook.emulate.sass import site as sites  # noqa: E402
from tritonhook.emulate.sass.decode import Decoder  # noqa: E402
from tritonhook.emulate.sass.kernel import SassKernel  # noqa: E402

THREADS = 96
BANK = bytes(range(256)) * 3
IMMEDIATE = 0x4048F5C3
WORD, LONG = 0xFFFF_FFFF, (1 << 64) - 1


class Fixture:
    """A decoder whose registers hold numbers of their own for each thread; the second and third warp are the group."""

    def __init__(self):
        self.machine = Machine(Geometry((1, 1, 1), (THREADS, 1, 1), (0,)), Memory())
        code = tuple(Instruction(16 * n, "", "NOP", "", 0) for n in range(8))
        self.kernel = SassKernel(Sass("k", code), 90, (), 0, 0, {3: b"\1\2\3\4\5\6\7\x88"}, {"$helper": 0x40})
        self.decoder = Decoder(self.kernel, self.machine, BANK)
        draw = np.random.default_rng(7)
        for uniform in (False, True):
            for number in range(12):
                self.decoder.row(uniform, number)[:] = draw.integers(0, 1 << 32, THREADS, np.uint32)
                self.decoder.flag(uniform, number)[:] = draw.integers(0, 2, THREADS) == 1
        self.group = Group(self.machine, slice(32, 96), np.arange(64) % 3 == 1, 0)

    def site(self, operands, opcode="OP.A.B"):
        return sites.Site(self.decoder, Instruction(0x70, "", opcode, operands, 0), IMMEDIATE)

    def r(self, number, uniform=False):
        return [int(n) for n in self.decoder.row(uniform, number)[32:96]]

    def pair(self, number, uniform=False):
        return [
            low | high << 32 for low, high in zip(self.r(number, uniform), self.r(number + 1, uniform), strict=True)
        ]


@pytest.fixture
def at():
    return Fixture()


def read(at, method, operand, *given):
    site = at.site(operand)
    found = getattr(site, method)(*given)(at.group)
    site.done()
    assert found.shape == (64,)
    return found


def absolute(n):
    return abs(n - ((n >> 31) << 32))


CONSTANT = int.from_bytes(BANK[0x214:0x218], "little")
NEXT = int.from_bytes(BANK[0x218:0x21C], "little")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("R4", lambda at: at.r(4)),
        ("R4.reuse", lambda at: at.r(4)),
        ("UR4", lambda at: at.r(4, True)),
        ("-R4", lambda at: [-n & WORD for n in at.r(4)]),
        ("~R4", lambda at: [~n & WORD for n in at.r(4)]),
        ("-UR5", lambda at: [-n & WORD for n in at.r(5, True)]),
        ("~UR5", lambda at: [~n & WORD for n in at.r(5, True)]),
        ("|R4|", lambda at: [absolute(n) for n in at.r(4)]),
        ("RZ", lambda at: [0] * 64),
        ("URZ", lambda at: [0] * 64),
        ("0x12", lambda at: [0x12] * 64),
        ("-0x12", lambda at: [-0x12 & WORD] * 64),
        ("1.5", lambda at: [IMMEDIATE] * 64),
        ("-2.5e-07", lambda at: [IMMEDIATE] * 64),
        ("+INF", lambda at: [IMMEDIATE] * 64),
        ("c[0x0][0x214]", lambda at: [CONSTANT] * 64),
        ("-c[0x0][0x214]", lambda at: [-CONSTANT & WORD] * 64),
        ("c[0x3][0x4]", lambda at: [0x88070605] * 64),
    ],
)
def test_integers(at, text, expected):
    found = read(at, "integer", text)
    assert found.dtype == np.uint32 and found.tolist() == expected(at)
    if "|" not in text:
        found = read(at, "counting", text)
        negated = text.startswith("-") and text[1] in "RcU"
        plain = read(at, "integer", text.lstrip("-")).tolist() if negated else expected(at)
        assert found.dtype == np.int64
        assert found.tolist() == ([(~n & WORD) + 1 for n in plain] if negated else plain)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("R4", lambda at: at.pair(4)),
        ("R4.64", lambda at: at.pair(4)),
        ("UR6", lambda at: at.pair(6, True)),
        ("-R4", lambda at: [-n & LONG for n in at.pair(4)]),
        ("~R4.64", lambda at: [~n & LONG for n in at.pair(4)]),
        ("RZ", lambda at: [0] * 64),
        ("-0x9", lambda at: [-9 & LONG] * 64),
        ("0x123456789", lambda at: [0x123456789] * 64),
        ("c[0x0][0x214]", lambda at: [CONSTANT | NEXT << 32] * 64),
    ],
)
def test_pairs(at, text, expected):
    found = read(at, "wide", text)
    assert found.dtype == np.uint64 and found.tolist() == expected(at)


@pytest.mark.parametrize(
    ("text", "change"),
    [
        ("R4", lambda n, sign: n),
        ("-R4", lambda n, sign: n ^ sign),
        ("|R4|", lambda n, sign: n & ~sign),
        ("-|R4|", lambda n, sign: n | sign),
        ("~R4", lambda n, sign: ~n & (2 * sign - 1)),
    ],
)
def test_floats(at, text, change):
    assert read(at, "single", text).tolist() == [change(n, 1 << 31) for n in at.r(4)]
    assert read(at, "double", text).tolist() == [change(n, 1 << 63) for n in at.pair(4)]


def test_numbers_of_doubles_are_their_upper_words(at):
    assert read(at, "double", "3.125").tolist() == [IMMEDIATE << 32] * 64
    assert read(at, "double", "R4.64").tolist() == at.pair(4)
    assert read(at, "single", "-2").tolist() == [IMMEDIATE] * 64  # its sign is in the immediate


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("P3", lambda flag: flag(False, 3)),
        ("!P3", lambda flag: ~flag(False, 3)),
        ("UP2", lambda flag: flag(True, 2)),
        ("!UP2", lambda flag: ~flag(True, 2)),
        ("PT", lambda flag: np.ones(96, bool)),
        ("!PT", lambda flag: np.zeros(96, bool)),
        ("UPT", lambda flag: np.ones(96, bool)),
        ("!UPT", lambda flag: np.zeros(96, bool)),
    ],
)
def test_predicates(at, text, expected):
    assert read(at, "predicate", text).tolist() == expected(at.decoder.flag)[32:96].tolist()


def test_signs_of_registers_are_predicates(at):
    signs = [n >> 31 == 1 for n in at.r(6)]
    assert read(at, "predicate", "R6.SIGN").tolist() == signs
    assert read(at, "predicate", "!R6.SIGN").tolist() == [not one for one in signs]


@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("uniform", ["", "+UR8"])
@pytest.mark.parametrize("offset", ["", "+0x10", "+-0x8"])
@pytest.mark.parametrize("base", ["", "R4", "R4.64", "R4.U32", "R4.X4", "R4.X16", "RZ"])
def test_addresses(at, base, offset, uniform, bits):
    if (
        (not base and not offset)
        or (".X" in base and bits == 64)
        or (".64" in base and bits == 32)
        or base + uniform == ""
    ):
        return
    text = f"[{base}{uniform}{offset}]"
    most = (1 << bits) - 1
    added = {"": 0, "+0x10": 16, "+-0x8": -8}[offset]
    first = {"": [0] * 64, "RZ": [0] * 64}.get(base)
    if first is None:
        factor = int(base.partition(".X")[2] or 1)
        wide = bits == 64 and not base.endswith("U32")
        first = at.pair(4) if wide else [n * factor for n in at.r(4)]
    second = [0] * 64 if not uniform else at.pair(8, True) if bits == 64 else at.r(8, True)
    for prefix in ("", "desc[UR2]") if bits == 64 else ("",):
        found = read(at, "address", prefix + text, bits)
        assert found.dtype == f"u{bits // 8}"
        assert found.tolist() == [x + y + added & most for x, y in zip(first, second, strict=True)]


def test_an_address_that_is_a_number(at):
    assert read(at, "address", "[-0x8]", 32).tolist() == [-8 & WORD] * 64
    assert read(at, "address", "[URZ]").tolist() == [0] * 64


@pytest.mark.parametrize("register", ["R6", "UR6"])
def test_a_register_is_written_where_lanes_are_active_a_uniform_one_for_the_whole_warp(at, register):
    uniform = register.startswith("U")
    row = at.decoder.row(uniform, 6)
    before, value = row.copy(), np.arange(64, dtype=np.uint32)
    group = Group(at.machine, slice(32, 96), np.arange(64) == 40, 0)
    at.site(register).target()(group, value)
    mine = np.arange(96) >= 64 if uniform else np.arange(96) == 72
    assert (row[mine] == value[mine[32:]]).all() and (row[~mine] == before[~mine]).all()
    at.site(register).target()(Group(at.machine, slice(32, 96), None, 0), value)
    assert (row[32:] == value).all() and (row[:32] == before[:32]).all()
    flag = at.decoder.flag(uniform, 6)
    flag[:] = False
    at.site(register.replace("R", "P")).target_flag()(group, np.ones(64, bool))
    assert (flag == mine).all()
