"""Operands of PTX: what each form is worth for each thread, and which forms are refused."""

from __future__ import annotations

from struct import pack, unpack

import pytest

np = pytest.importorskip("numpy")

from emulated import launch_of, module_of  # noqa: E402

from tritonhook.emulate.machine import Geometry, Group, Machine  # noqa: E402
from tritonhook.emulate.memory import GLOBAL_BASE, Memory  # noqa: E402
from tritonhook.emulate.ptx.decode import Decoder  # noqa: E402
from tritonhook.emulate.ptx.kernel import read_kernel  # noqa: E402
from tritonhook.emulate.ptx.site import FILES, KINDS, Site  # noqa: E402
from tritonhook.errors import NotUnderstood  # noqa: E402
from tritonhook.ptx.program import Item  # noqa: E402

THREADS = 32
DECLARED = ".shared .align 16 .b8 first[16]; .shared .b32 second[4]; .global .b32 table[2] = {7, 8};"


class Fixture:
    """A decoder of a kernel in a cluster of two CTAs; its registers hold numbers of their own for each thread."""

    def __init__(self, target="sm_90a"):
        body = ".local .align 8 .b8 hidden[24]; .local .b32 mine[2];"
        kernel = read_kernel(module_of(body, 2, target, DECLARED))
        launch = launch_of(np.zeros(4, np.uint32), np.zeros(4, np.uint32), grid=2, cluster=(2, 1, 1))
        memory = Memory(kernel.shared.size, kernel.local.size)
        self.parameters, self.table = memory.allocate(16), memory.allocate(8)
        self.machine = Machine(Geometry(launch.grid, launch.block, (0, 1), launch.cluster), memory)
        self.decoder = Decoder(kernel, self.machine, self.parameters, {"table": self.table}, 4096, 0)
        draw = np.random.default_rng(3)
        self.files = {}
        for prefix, kind in FILES.items():
            self.files[prefix] = draw.integers(
                0, 2 if prefix == "p" else 255, (8, 2 * THREADS * np.dtype(kind).itemsize)
            )
            rows = self.files[prefix].astype(np.uint8)
            self.files[prefix] = rows.astype(bool) if prefix == "p" else rows.view(kind)
        self.decoder.files = self.files
        self.group = Group(self.machine, slice(32, 64), np.arange(32) % 3 == 1, 0)

    def site(self, *operands, opcode="add.rn.s32"):
        return Site(self.decoder, Item(opcode, operands), 12)


@pytest.fixture
def at():
    return Fixture()


@pytest.mark.parametrize(
    ("text", "kind", "row"),
    [
        ("%r1", "u32", lambda files: files["r"][1]),
        ("%r1", "s32", lambda files: files["r"][1].view(np.int32)),
        ("%r1", "f32", lambda files: files["r"][1]),
        ("%rs2", "s16", lambda files: files["rs"][2].view(np.int16)),
        ("%rd3", "s64", lambda files: files["rd"][3].view(np.int64)),
        ("%rb3", "s8", lambda files: files["rb"][3].view(np.int8)),
        ("%r1", "u16", lambda files: (files["r"][1] & 0xFFFF).astype(np.uint16)),
        ("%r1", "s8", lambda files: (files["r"][1] & 0xFF).astype(np.uint8).view(np.int8)),
        ("%rd1", "b32", lambda files: (files["rd"][1] & 0xFFFF_FFFF).astype(np.uint32)),
        ("%rs1", "b8", lambda files: (files["rs"][1] & 0xFF).astype(np.uint8)),
    ],
)
def test_registers_are_views_and_wider_ones_their_low_part(at, text, kind, row):
    found = at.site(text).row(0, kind)
    assert found.dtype == KINDS[kind] and (found == row(at.files)).all()
    assert np.shares_memory(found, at.files[text[1:-1]])
    assert np.shares_memory(at.site().row(text, kind), found)


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("5", "u32", 5), ("-5", "s32", -5), ("-5", "u32", 0xFFFF_FFFB), ("0xFFFFFFFF", "s32", -1), ("010", "u32", 8),
        ("-1", "s8", -1), ("255", "s8", -1), ("-1", "u16", 0xFFFF), ("-1", "u64", (1 << 64) - 1),
        ("0x1FFFF", "u16", 0xFFFF),
        ("0f3F800000", "f32", 0x3F80_0000), ("0F3F800000", "b32", 0x3F80_0000),
        ("0d4009000000000000", "f64", 0x4009 << 48),
        ("0D4009000000000000", "b64", 0x4009 << 48), ("0f40480000", "f64", 0x4009 << 48),
        ("0F40480000", "f64", 0x4009 << 48),
        ("1.5", "f32", 0x3FC0_0000), ("-1.5e1", "f32", 0xC170_0000),
        (".5", "f32", 0x3F00_0000), ("2", "f32", 0x4000_0000),
        ("2.", "f64", 1 << 62), ("1E2", "f64", unpack("<Q", pack("<d", 100.0))[0]), ("-3", "f64", 0xC008 << 48),
        ("WARP_SZ", "u32", 32), ("WARP_SZ", "u64", 32), ("0d4009000000000000", "b32", 0),
    ],
)  # fmt: skip
def test_numbers_in_the_text(at, text, kind, value):
    row = at.site(text).row(0, kind)
    assert row.dtype == KINDS[kind] and row.tolist() == [value] * 2 * THREADS
    assert at.site(text).row(0, kind) is row


def test_special_registers(at):
    assert at.site("%ctaid.x").row(0, "u32").tolist() == [0] * 32 + [1] * 32
    assert at.site("%tid.x").row(0, "u64").tolist() == list(range(32)) * 2
    assert at.site("%tid.x").row(0, "s16").dtype == np.int16
    for name, size in (("dynamic", 4096), ("total", 4224), ("aggr", 5152)):  # an H200 rounds only the total
        assert at.site(f"%{name}_smem_size").row(0, "u32").tolist() == [size] * 64


def test_addresses_of_variables(at):
    rank = [0] * 32 + [1 << 24] * 32
    shared = [1024 + r for r in rank], [1040 + r for r in rank]
    assert at.site("first").row(0, "u32").tolist() == shared[0]
    assert at.site("second").row(0, "u64").tolist() == shared[1]
    assert at.site("mine").row(0, "u64").tolist() == [24] * 64
    assert at.site("table").row(0, "u64").tolist() == [at.table.address] * 64
    assert at.site("x1").row(0, "u64").tolist() == [GLOBAL_BASE + at.parameters.begin + 8] * 64
    assert Fixture("sm_80").site("second").row(0, "u32").tolist() == [16] * 64


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("[%rd1]", lambda at: at.files["rd"][1]),
        ("[%rd1+16]", lambda at: at.files["rd"][1] + np.uint64(16)),
        ("[ %rd1 + -0x10 ]", lambda at: at.files["rd"][1] - np.uint64(16)),
        ("[%rd1-8]", lambda at: at.files["rd"][1] - np.uint64(8)),
        ("[%r2-8]", lambda at: at.files["r"][2] - np.uint32(8)),
        ("[second+4]", lambda at: np.array([1044] * 32 + [1044 + (1 << 24)] * 32)),
        ("[mine]", lambda at: np.full(64, 24)),
        ("[table+4]", lambda at: np.full(64, at.table.address + 4)),
        ("[x1]", lambda at: np.full(64, GLOBAL_BASE + at.parameters.begin + 8)),
        ("[0x40]", lambda at: np.full(64, 64)),
        ("[16+-4]", lambda at: np.full(64, 12)),
    ],
)
def test_addresses(at, text, wanted):
    for read in (at.site(text).address(0), at.site().address(text)):
        assert read(at.group).tolist() == wanted(at)[32:64].tolist()


@pytest.mark.parametrize(
    ("text", "row"),
    [("%p1", lambda p: p[1]), ("!%p1", lambda p: ~p[1]), ("! %p2", lambda p: ~p[2]), ("1", lambda p: p[0] | True)],
)
def test_predicates(at, text, row):
    for read in (at.site(text).predicate(0), at.site().predicate(text)):
        assert read(at.group).tolist() == row(at.files["p"])[32:64].tolist()
    if not text.startswith("!"):
        assert (at.site(text).row(0, "pred") == row(at.files["p"])).all()
    assert not at.site("0").predicate(0)(at.group).any()


@pytest.mark.parametrize(
    ("text", "kind", "dtype"),
    [
        ("%r1", "u32", np.uint32), ("%r1", "s32", np.int32), ("%r1", "f32", np.uint32), ("%r1", "u8", np.uint32),
        ("%r1", "s8", np.int32), ("%rd1", "s32", np.int64), ("%rd1", "u16", np.uint64), ("%rs1", "s8", np.int16),
        ("%p1", "pred", np.bool_), ("%rb1", "s8", np.int8),
    ],
)  # fmt: skip
def test_a_target_that_is_wider_is_filled_as_its_type_says(at, text, kind, dtype):
    for row in (at.site(text).target(0, kind), at.site().target(text, kind)):
        assert row.dtype == dtype and np.shares_memory(row, at.files[text[1:-1]])


def test_vectors_and_pairs(at):
    site = at.site("{%r1, %r2}", "%p1|%p2", "%r1 | %p3", "%r4", "17", "0x10")
    for rows in (
        site.rows(0, "b32"),
        site.targets(0, "b32"),
        site.rows("{%r1,%r2}", "b32"),
        site.targets("{%r1,%r2}", "b32"),
    ):
        assert [(row == at.files["r"][n]).all() for n, row in enumerate(rows, 1)] == [True, True]
    assert [len(found) for found in (site.rows(3, "b32"), site.targets(3, "b32"))] == [1, 1]
    assert [site.two(n) for n in (1, 2, 3)] == [("%p1", "%p2"), ("%r1", "%p3"), ("%r4", "_")]
    assert (site.integer(4), site.integer(5)) == (17, 16)


@pytest.mark.parametrize(
    "act",
    [
        lambda site: site.row("%rs1", "u32"), lambda site: site.row("%p1", "u32"),
        lambda site: site.row("nowhere", "u32"),
        lambda site: site.row("!%p1", "pred"),
        lambda site: site.row("%r1", "pred"),
        lambda site: site.row("1.5", "u32"),
        lambda site: site.target("%rs1", "u32"),
        lambda site: site.target("5", "u32"),
        lambda site: site.target("%p1", "u32"), lambda site: site.target("%r1", "pred"), lambda site: site.integer(0),
        lambda site: site.address("%rd1"),
        lambda site: site.address("[%rs1]"),
        lambda site: site.address("[nowhere]"),
        lambda site: site.address("[%rd1+%r1]"),
        lambda site: site.count(2, 3),
        lambda site: site.row("0fXYZ", "f32"),
        lambda site: site.predicate("!%r1"),
        lambda site: site.known("rn"), lambda site: site.typed("u32"), lambda site: site.typed("s32"),
    ],
)  # fmt: skip
def test_other_operands_are_refused_with_their_line(at, act):
    with pytest.raises(NotUnderstood) as caught:
        act(at.site("%r1"))
    assert caught.value.opcode == "add.rn.s32" and caught.value.line == 12


def test_the_first_operand_is_computed_from_the_others(at):
    a, b, before = (at.files["r"][n].copy() for n in (1, 2, 3))
    at.site("%r3", "%r1", "%r2").compute(np.subtract, "u32", "u32", "u32")(at.group)
    mine = np.isin(np.arange(64), 32 + np.flatnonzero(at.group.mask))
    assert (at.files["r"][3] == np.where(mine, a - b, before)).all()
