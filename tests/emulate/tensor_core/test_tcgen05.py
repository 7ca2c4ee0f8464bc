"""Products in tensor memory: which rows of which CTA lie where, of each kind; and what is refused."""

from __future__ import annotations

from itertools import product

import pytest

np = pytest.importorskip("numpy")

from exact_numbers import codes_near_edges  # noqa: E402

from tritonhook.emulate.errors import Fault  # noqa: E402
from tritonhook.emulate.machine import Geometry, Group, Machine  # noqa: E402
from tritonhook.emulate.memory import Memory  # noqa: E402
from tritonhook.emulate.numbers import decode  # noqa: E402
from tritonhook.emulate.tensor_core import shared_tiles, sums, tcgen05  # noqa: E402
from tritonhook.emulate.tensor_core.tcgen05 import FORMATS, Kind, Shape  # noqa: E402
from tritonhook.errors import NotUnderstood  # noqa: E402

SHARED = 32768


@pytest.fixture(autouse=True)
def quiet():
    with np.errstate(all="ignore"):
        yield


def descriptor(start, leading=128, stride=256, swizzle=0, constant=1):
    return start >> 4 | leading >> 4 << 16 | stride >> 4 << 32 | constant << 46 | swizzle << 61


def instruction(m, n, a=0, b=0, d=1, transposed=(0, 0), scale=0, firsts=(0, 0)):
    found = a << 7 | b << 10 | transposed[0] << 15 | transposed[1] << 16 | n >> 3 << 17 | m >> 4 << 24
    return found | d << 4 | scale << 23 | firsts[0] << 29 | firsts[1] << 4


@pytest.mark.parametrize("row", [16, 32, 64, 128])
@pytest.mark.parametrize(("size", "k"), [(1, 32), (2, 16), (4, 8)])
@pytest.mark.parametrize("is_k_major", [False, True])
def test_numbers_of_a_tile_lie_in_blocks_of_eight_rows(row, size, k, is_k_major):
    one, length = shared_tiles.Descriptor(1024, 512, 2048, row), 64
    found = shared_tiles.addresses(one, length, k, size, is_k_major)
    assert found.shape == (length, k)
    for r, c in product(range(length), range(k)):
        if is_k_major:
            block, inside = c * size // 16, c * size % 16
            at = r // 8 * 2048 + (r % 8 * 16 + block * 512 + inside if row == 16 else r % 8 * row + c * size)
        else:
            wide = row // size
            far, near = (2048, 512) if row == 16 else (512, 2048)
            at = r // wide * far + r % wide * size + c // 8 * near + c % 8 * row
        at += 1024
        assert found[r, c] == at ^ (at >> 7 & row // 16 - 1) << 4, (r, c)


@pytest.mark.parametrize(("number", "row"), [(0, 16), (1, 128), (2, 64), (3, 32)])
def test_descriptors_of_wgmma(number, row):
    bits = descriptor(0x1230, 0x450, 0x670, constant=0) | number << 62
    assert shared_tiles.Descriptor.of(bits) == shared_tiles.Descriptor(0x1230, 0x450, 0x670, row)
    with pytest.raises(NotUnderstood, match="base offset"):
        shared_tiles.Descriptor.of(bits | 1 << 51)


@pytest.mark.parametrize(
    ("bits", "kind", "shape"),
    [
        (
            instruction(128, 64), Kind(FORMATS["f16"]),
            Shape(128, 64, ("f16", "f16"), (False, False), (0, 1), "e4m3", "f32"),
        ),
        (
            instruction(64, 8, 1, 1, transposed=(1, 0)), Kind(FORMATS["f16"]),
            Shape(64, 8, ("bf16", "bf16"), (True, False), (0, 1), "e4m3", "f32"),
        ),
        (
            instruction(256, 256, 0, 1, 0, (0, 1)), Kind(FORMATS["f8f6f4"], ctas=2),
            Shape(256, 256, ("e4m3", "e5m2"), (False, True), (0, 0), "e4m3", "f16"),
        ),
        (
            instruction(128, 16, 5, 1, 0, scale=1, firsts=(3, 2)), Kind(FORMATS["mxf8f6f4"], 1),
            Shape(128, 16, ("e2m1", "e5m2"), (False, False), (3, 2), "ue8m0", "f32"),
        ),
        (
            instruction(256, 32, 1, 1, 0, firsts=(0, 0)), Kind(FORMATS["mxf4nvf4"], 4, 2),
            Shape(256, 32, ("e2m1", "e2m1"), (False, False), (0, 0), "e4m3", "f32"),
        ),
    ],
)  # fmt: skip
def test_an_instruction_descriptor_has_its_fields(bits, kind, shape):
    assert Shape.of(bits, kind) == shape


@pytest.mark.parametrize(
    ("bits", "kind"),
    [
        (instruction(128, 64) | 1, Kind(FORMATS["f16"])),
        (instruction(128, 64) | 1 << 31, Kind(FORMATS["f16"])),
        (instruction(128, 64) | 1 << 23, Kind(FORMATS["f16"])),
        (instruction(96, 64), Kind(FORMATS["f16"])),
        (instruction(256, 64), Kind(FORMATS["f16"])),
        (instruction(64, 64), Kind(FORMATS["f16"], ctas=2)),
        (instruction(128, 0), Kind(FORMATS["f16"])),
        (instruction(128, 8), Kind(FORMATS["f16"], ctas=2)),
        (instruction(128, 64, 2), Kind(FORMATS["f16"])),
        (instruction(128, 64, 0, 2), Kind(FORMATS["f16"])),
        (instruction(128, 64, d=2), Kind(FORMATS["f16"])),
        (instruction(128, 64, 1, 1, 0), Kind(FORMATS["f16"])),
        (instruction(128, 64, 2, 2, 0), Kind(FORMATS["tf32"])),
        (instruction(64, 64, 0, 0, 0, scale=1), Kind(FORMATS["mxf8f6f4"], 1)),
        (instruction(128, 64, 1, 1, 0, scale=1, firsts=(1, 0)), Kind(FORMATS["mxf4"], 2)),
        (instruction(128, 64, 1, 1, 0, scale=1, firsts=(0, 3)), Kind(FORMATS["mxf4"], 2)),
        (instruction(128, 64, 1, 1, 0, scale=0), Kind(FORMATS["mxf4"], 2)),
    ],
)
def test_other_instruction_descriptors_are_refused(bits, kind):
    with pytest.raises(NotUnderstood, match=f"{bits:#x}"):
        Shape.of(bits, kind)


class Room:
    """A cluster of two CTAs with numbers in shared memory, and columns of tensor memory."""

    def __init__(self, kinds, seed=0):
        self.machine = Machine(Geometry((2, 1, 1), (128, 1, 1), (0, 1), (2, 1, 1)), Memory(SHARED))
        self.memory, draw = self.machine.tensor_memory, np.random.default_rng(seed)
        self.memory.allocate((0, 1), 256)
        for cta in range(2):
            for place, kind in zip((0, SHARED // 2), kinds, strict=True):
                size = {"f16": 2, "bf16": 2, "tf32": 4}.get(kind, 1)
                codes = codes_near_edges({"tf32": "f32"}.get(kind, kind), draw, SHARED // 2 // size)
                codes = np.where(np.isfinite(decode(codes, kind)), codes, 0)
                at = cta * SHARED + place
                self.machine.memory.shared.data[at : at + SHARED // 2] = codes.astype(f"u{size}").view(np.uint8)
        self.memory.cells[:] = draw.normal(size=self.memory.cells.shape).astype(np.float32).view(np.uint32)

    def tile(self, cta, start, length, size, is_k_major=True):
        one = shared_tiles.Descriptor(start, 128, 256, 16)
        index = shared_tiles.addresses(one, length, 32 // size, size, is_k_major) + cta * SHARED
        return self.machine.memory.shared.data.view(f"u{size}")[index // size].astype(np.uint32)

    def multiply(self, kind, d, a, b, bits, adds, factors=(), thread=0):
        group = Group(self.machine, slice(128, 256) if thread >= 128 else slice(0, 128), None, 0)
        lanes = np.arange(128) == thread % 128
        words = [np.full(128, one, np.uint64) for one in (d, a, b, bits, *factors)]
        tcgen05.multiply_in_tensor_memory(self.machine, group, lanes, words, np.full(128, adds), kind)


@pytest.mark.parametrize(
    ("name", "formats", "size"),
    [("f16", (0, 0), 2), ("f16", (1, 1), 2), ("tf32", (2, 2), 4), ("f8f6f4", (0, 1), 1)],
)
@pytest.mark.parametrize("adds", [False, True])
@pytest.mark.parametrize(("m", "ctas", "lane"), [(64, 1, 0), (64, 1, 16), (128, 1, 0), (128, 2, 0), (256, 2, 0)])
def test_rows_of_a_product_lie_in_their_lanes(name, formats, size, adds, m, ctas, lane):
    kinds = [FORMATS[name][one] for one in formats]
    room, n, begin = Room(kinds), 32, 64
    before, rows = room.memory.cells.copy(), m // ctas
    bits = instruction(m, n, *formats)
    start_b = SHARED // 2
    room.multiply(
        Kind(FORMATS[name], ctas=ctas), lane << 16 | begin, descriptor(256), descriptor(start_b), bits, adds, thread=130
    )
    together = (1,) if ctas == 1 else (0, 1)
    b = np.concatenate([room.tile(cta, start_b, n // ctas, size) for cta in together]).T
    wanted = before.copy()
    for cta in together:
        folds = ctas == 2 and rows == 64

        def place(row, column, folds=folds):
            if folds:
                return row + column // (n // 2) * 64, begin + column % (n // 2)
            return (lane + row // 16 * 32 + row % 16 if rows == 64 else row), begin + column

        places = [[place(row, column) for column in range(n)] for row in range(rows)]
        held = np.array([[before[(cta, *at)] if adds else 0 for at in row] for row in places], np.uint32)
        adding = sums.Sums(25, 32 // size)
        found = sums.multiply(room.tile(cta, 256, rows, size), b, held, (*kinds, "f32"), adding)
        for row, column in product(range(rows), range(n)):
            wanted[(cta, *places[row][column])] = found[row, column]
    assert (room.memory.cells == wanted).all()


def test_sums_of_f16_lie_in_lower_halves_and_matrices_may_be_transposed():
    room = Room(("f16", "f16"))
    before = room.memory.cells.copy()
    bits = instruction(128, 16, d=0, transposed=(1, 1))
    room.multiply(Kind(FORMATS["f16"]), 0, descriptor(0), descriptor(SHARED // 2), bits, True)
    a, b = (room.tile(0, start, length, 2, False) for start, length in ((0, 128), (SHARED // 2, 16)))
    found = sums.multiply(a, b.T, before[0, :, :16] & 0xFFFF, ("f16", "f16", "f16"), sums.Sums(25, 16, "f16"))
    assert (room.memory.cells[0, :, :16] == found).all() and (room.memory.cells[0, :, 16:] == before[0, :, 16:]).all()


@pytest.mark.parametrize(("m", "lane"), [(128, 0), (64, 16)])
def test_a_may_lie_in_tensor_memory(m, lane):
    room = Room(("bf16", "bf16"))
    rows = np.arange(128) if m == 128 else np.array([lane + r // 16 * 32 + r % 16 for r in range(64)])
    codes = np.random.default_rng(1).integers(0x3F00, 0x4100, (128, 16), np.uint16)
    room.memory.cells[0, :, 200:208] = codes.view(np.uint32)
    kind, bits = Kind(FORMATS["f16"], near=True), instruction(m, 8, 1, 1)
    room.multiply(kind, lane << 16 | 8, lane << 16 | 200, descriptor(0), bits, False)
    b, added = room.tile(0, 0, 8, 2).T, np.zeros((m, 8), np.uint32)
    found = sums.multiply(codes[rows].astype(np.uint32), b, added, ("bf16", "bf16", "f32"), sums.Sums(25, 16))
    assert (room.memory.cells[0, rows, 8:16] == found).all()
    for bad in (
        lambda: room.multiply(kind, lane << 16 | 8, (lane ^ 16) << 16 | 200, descriptor(0), bits, False),
        lambda: room.multiply(kind, lane << 16 | 8, lane << 16 | 200, descriptor(0), bits | 1 << 15, False),
    ):
        with pytest.raises(NotUnderstood):
            bad()


@pytest.mark.parametrize("name", ["mxf8f6f4", "mxf4", "mxf4nvf4"])
def test_factors_of_blocks(name):
    count, kinds = {"mxf8f6f4": (1, (0, 5)), "mxf4": (2, (1, 1)), "mxf4nvf4": (4, (1, 1))}[name]
    names = [FORMATS[name][one] for one in kinds]
    room, n, scale = Room(("e4m3", "e4m3")), 40, 0 if count == 4 else 1
    draw = np.random.default_rng(2)
    for column, rows in ((100, 128), (120, n)):
        cells = draw.integers(0x30, 0x48, (32, -(-rows // 32), 4), np.uint8) + (80 if scale else 0)
        room.memory.cells[0, :, column : column + cells.shape[1]] = np.tile(cells.view(np.uint32)[..., 0], (4, 1))
    firsts = {1: (3, 2), 2: (2, 2), 4: (0, 0)}[count]
    bits = instruction(128, n, *kinds, 0, scale=scale, firsts=firsts)
    before = room.memory.cells[0].copy()
    room.multiply(Kind(FORMATS[name], count), 0, descriptor(0), descriptor(SHARED // 2), bits, True, (100, 120))

    def numbers(start, rows, kind):
        octets = room.tile(0, start, rows, 1)
        if kind != "e2m1":
            return octets
        if name == "mxf8f6f4":
            octets = octets.reshape(rows, 2, 16)[..., :8].reshape(rows, -1)
        return np.stack([octets & 15, octets >> 4], -1).reshape(rows, -1)

    def factors(column, rows, first):
        codes = [
            [int(before[r % 32, column + r // 32]) >> 8 * (first + one) & 255 for one in range(count)]
            for r in range(rows)
        ]
        return decode(np.array(codes, np.uint32), "ue8m0" if scale else "e4m3")

    scales = sums.Scales(
        factors(100, 128, firsts[0]), factors(120, n, firsts[1]).T, 1 if count == 1 else 16, -127 if scale else -6
    )
    a, b = numbers(0, 128, names[0]), numbers(SHARED // 2, n, names[1])
    adding = sums.Sums(25, 32) if count == 1 else sums.Sums(35, 64)
    found = sums.multiply_scaled(a, b.T, before[:, :n], (names[0], names[1]), scales, adding)
    assert (room.memory.cells[0, :, :n] == found).all()
    room.memory.cells[0, 40, 100] ^= 0xFFFF_FFFF
    with pytest.raises(NotUnderstood, match="factors"):
        room.multiply(Kind(FORMATS[name], count), 0, descriptor(0), descriptor(SHARED // 2), bits, True, (100, 120))


@pytest.mark.parametrize(
    ("shape", "rows", "size", "times"), [("32x128b", 32, 16, 4), ("128x128b", 128, 16, 1), ("128x256b", 128, 32, 1)]
)
@pytest.mark.parametrize("ctas", [1, 2])
def test_copies_to_tensor_memory(shape, rows, size, times, ctas):
    room = Room(("e4m3", "e4m3"))
    before, group = room.memory.cells.copy(), Group(room.machine, slice(128, 256), None, 0)
    words = [np.full(128, one, np.uint64) for one in (8, descriptor(512))]
    tcgen05.copy_to_tensor_memory(room.machine, group, np.arange(128) == 3, *words, shape, ctas)
    for cta in range(2):
        wanted = before[cta].copy()
        if cta or ctas == 2:
            index = shared_tiles.addresses(shared_tiles.Descriptor(512, 128, 256, 16), rows, size // 4, 4, True)
            words_ = room.machine.memory.shared.data.view(np.uint32)[(index + cta * SHARED) // 4]
            wanted[:, 8 : 8 + size // 4] = np.tile(words_, (times, 1))
        assert (room.memory.cells[cta] == wanted).all()
    with pytest.raises(NotUnderstood, match="lane 1"):
        tcgen05.copy_to_tensor_memory(
            room.machine, group, np.arange(128) == 3, np.full(128, 1 << 16 | 8, np.uint64), words[1], shape, ctas
        )


@pytest.mark.parametrize(
    "bits",
    [descriptor(0, constant=0), descriptor(0, swizzle=1), descriptor(0) | 1 << 52, descriptor(0, swizzle=2) | 1 << 49],
)
def test_other_descriptors_are_refused(bits):
    room = Room(("f16", "f16"))
    with pytest.raises(NotUnderstood, match=f"{bits:#x}"):
        tcgen05.in_shared(room.machine, 0, 0, bits, 64, 2)


def test_descriptors_outside_of_shared_memory_are_a_fault_of_their_thread():
    room = Room(("f16", "f16"))
    last = SHARED - (7 * 256 + 128 + 128)
    assert tcgen05.in_shared(room.machine, 0, 0, descriptor(last) | 1 << 49, 64, 2).shape == (64, 16)
    with pytest.raises(Fault, match="outside of shared memory") as caught:
        tcgen05.in_shared(room.machine, 130, 1, descriptor(last + 16), 64, 2)
    assert caught.value.thread == 130
