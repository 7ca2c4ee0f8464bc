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
from tritonhook.errors import NotUnderstood  # noqa: E402

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


@pytest.mark.parametrize(
    ("method", "text"),
    [
        ("integer", "-|R4|"), ("integer", "P3"), ("integer", "c[0x0][R4+0x10]"), ("integer", "c[0x5][0x0]"),
        ("integer", "c[0x3][0x6]"), ("integer", "c[0x0][0x40]"), ("counting", "|R4|"), ("wide", "|R4|"),
        ("address", "[R4].FOO"), ("address", "R4"), ("address", "[R4.X4]"), ("number", "R4"), ("number", "1.5"),
        ("predicate", "R4"), ("predicate", "PX"), ("target", "c[0x0][0x214]"), ("target", "-R4"),
        ("target_flag", "!P1"), ("target_flag", "R4"), ("target_flag", "!PT"), ("integer", ""), ("integer", "foo"),
    ],
)  # fmt: skip
def test_other_operands_are_refused_with_their_place(at, method, text):
    with pytest.raises(NotUnderstood) as caught:
        getattr(at.site(text), method)()
    assert caught.value.opcode == "OP.A.B" and caught.value.line == 0x70


def test_operands_are_taken_by_letters(at):
    site = at.site("R6,R8,P1,R4,R4,R4,R4,!P2")
    put, put_pair, put_flag, *sources = site.take("RWPisdwp.")
    assert [one(at.group).tolist() for one in sources[:2]] == [at.r(4)] * 2
    assert [one(at.group).tolist() for one in sources[2:4]] == [at.pair(4)] * 2
    assert sources[4](at.group).tolist() == (~at.decoder.flag(False, 2))[32:96].tolist()
    put(at.group, np.arange(64, dtype=np.uint32))
    assert at.r(6)[1::3] == list(range(1, 64, 3))
    put_pair(at.group, np.full(64, 5 << 32 | 9, np.uint64))
    assert at.pair(8)[1::3] == [5 << 32 | 9] * 21
    put_flag(at.group, np.arange(64) % 2 == 1)
    assert at.decoder.flag(False, 1)[32:96][1::3].tolist() == [n % 2 == 1 for n in range(1, 64, 3)]
    rest = at.site("R1,R2")
    rest.take("i")
    assert rest.given == ["R2"]
    with pytest.raises(NotUnderstood):
        at.site("R1,R2").take("i.")
    step = at.site("R6,R4,R5").compute(np.subtract, "Rii")
    wanted = [x - y & WORD for x, y in zip(at.r(4), at.r(5), strict=True)]
    step(at.group)
    assert at.r(6)[1::3] == wanted[1::3]


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


def test_what_is_written_to_nowhere_is_lost(at):
    for method, text in (
        ("target", "RZ"),
        ("target", "URZ"),
        ("target_pair", "RZ"),
        ("target_flag", "PT"),
        ("target_flag", "UPT"),
    ):
        getattr(at.site(text), method)()(at.group, np.ones(64, np.uint64))
    at.site("RZ").target_flag()(at.group, np.ones(64, bool))
    assert not at.decoder.zeros.any() and at.decoder.true.all() and not at.decoder.false.any()


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("R4", ("", False, "R4")), ("-R4", ("-", False, "R4")), ("~UR4", ("~", False, "UR4")),
        ("|R4|", ("", True, "R4")), ("-|c[0x0][0x4]|", ("-", True, "c[0x0][0x4]")), ("-0x4", ("", False, "-0x4")),
        ("-1.5", ("", False, "-1.5")),
        ("|R4|.H0_H0", ("", True, "R4.H0_H0")), ("-INF", ("", False, "-INF")),
    ],
)  # fmt: skip
def test_signs_stand_before_registers_and_constants_alone(text, found):
    assert sites.modified(text) == found


def test_places_that_are_jumped_to(at):
    site = at.site("")
    assert [at.decoder.index(site, text) for text in ("0x20", "`($helper)", "`(0x30)")] == [2, 4, 3]
    assert at.decoder.targets == {2, 3, 4} and at.decoder.index(site, "0x70") == 7
    for text in ("0x80", "0x28", "-0x10", "$other", "R4"):
        with pytest.raises(NotUnderstood, match="target"):
            at.decoder.index(site, text)


def test_bytes_of_a_bank(at):
    site = at.site("")
    assert at.decoder.bank(site, 0, 0x214, 2) == 0x1514 and at.decoder.bank(site, 3, 4) == 0x88070605
    assert at.decoder.bank(site, 3, 0, 8) == 0x8807060504030201 and at.decoder.bank(site, 0, 0x2FC) == 0xFFFEFDFC
    for number, place, size in (
        (0, 0x40, 4),
        (0, 0x14, 8),
        (0, 0x204, 8),
        (0, 0x2FD, 4),
        (3, 5, 4),
        (3, -4, 4),
        (5, 0, 4),
    ):
        with pytest.raises(NotUnderstood) as caught:
            at.decoder.bank(site, number, place, size)
        assert (f"{number:#x}" if number != 5 else "5") in str(caught.value)
