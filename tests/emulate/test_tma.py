"""Copies by descriptor: which element of the tensor lies where in shared memory, of each form of box."""

from __future__ import annotations

from itertools import product
from types import SimpleNamespace

import pytest

np = pytest.importorskip("numpy")

from tritonhook.emulate import tma  # noqa: E402
from tritonhook.emulate.errors import Fault  # noqa: E402
from tritonhook.emulate.machine import Geometry, Machine  # noqa: E402
from tritonhook.emulate.memory import Memory  # noqa: E402
from tritonhook.emulate.tma import TensorMap  # noqa: E402
from tritonhook.errors import NotUnderstood  # noqa: E402


def tiling(**given):
    usual = {
        "element": 9, "bits": 16, "shape": (64, 5, 3), "strides": (128, 640), "box": (32, 2, 2), "steps": (1, 1, 1),
        "interleave": 0, "swizzle": 0, "fill": 0,
    }  # fmt: skip
    return SimpleNamespace(**usual | given)


def machine_of(size=4096, garbage=0xEE):
    memory = Memory(8192, garbage=garbage)
    tensor = memory.allocate(np.arange(size // 2, dtype=np.uint16).tobytes())
    Machine(Geometry((2, 1, 1), (32, 1, 1), (0, 1)), memory)
    return memory, tensor


def test_what_the_host_says():
    found = TensorMap.of(tiling(), 4096)
    assert found == TensorMap(4096, 2, (64, 5, 3), (2, 128, 640), (32, 2, 2), kind="bf16") and found.bytes == 256
    for number, size in ((0, 16), (1, 32), (2, 64), (3, 128)):
        assert TensorMap.of(tiling(swizzle=number, fill=number % 2), 0).swizzle == size
        assert TensorMap.of(tiling(swizzle=number, fill=number % 2), 0).fills_nan == bool(number % 2)
    padded = TensorMap.of(tiling(element=14, bits=4, shape=(128, 5, 3), box=(64, 2, 2)), 0)
    assert (padded.element, padded.numbers, padded.padding, padded.shape, padded.box) == (
        8,
        16,
        8,
        (8, 5, 3),
        (4, 2, 2),
    )
    assert padded.strides == (8, 128, 640)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"steps": (1, 2, 1)}, "steps"), ({"interleave": 1}, "interleaved"), ({"bits": 4}, "4 bits"),
        ({"swizzle": 4}, "swizzle 4"),
        ({"element": 14, "bits": 4, "shape": (72, 5, 3), "box": (64, 2, 2)}, "4 bits"),
        ({"element": 14, "bits": 4, "shape": (64, 5, 3), "box": (24, 2, 2)}, "4 bits"),
    ],
)  # fmt: skip
def test_other_tensors_are_refused(given, why):
    with pytest.raises(NotUnderstood, match=why):
        TensorMap.of(tiling(**given), 0)


@pytest.mark.parametrize("swizzle", [16, 64])
@pytest.mark.parametrize("begin", [(0, 0, 0), (8, 3, 1), (-8, -1, -1), (40, 4, 2), (64, 0, 0)])
def test_a_box_is_loaded_and_stored_row_by_row(begin, swizzle):
    memory, buffer = machine_of()
    tensor = TensorMap(buffer.address + 64, 2, (60, 5, 3), (2, 128, 640), (32, 2, 2), swizzle)
    base = 1024
    assert tma.load_tile(memory, tensor, begin, 1, base | 3 << 24, 0) == 256
    shared = memory.shared.data.view(np.uint16)
    used = np.zeros(len(shared), bool)
    for number, (z, y, x) in enumerate(product(range(2), range(2), range(32))):
        place = base + 2 * number
        if swizzle == 64:  # bits 4 and 5 of an address are changed by bits 7 and 8
            place ^= (place >> 7 & 3) << 4
        at = tuple(one + first for one, first in zip((x, y, z), begin, strict=True))
        inside = all(0 <= one < extent for one, extent in zip(at, tensor.shape, strict=True))
        value = 32 + at[0] + 64 * at[1] + 320 * at[2] if inside else 0
        assert shared[(8192 + place) // 2] == value, (x, y, z)
        used[(8192 + place) // 2] = True
    assert (shared[~used] == 0xEEEE).all()
    before = memory.contents(buffer)
    memory.global_.data[buffer.begin : buffer.begin + 4096] = 0
    if min(begin) < 0:
        with pytest.raises(Fault, match="negative coordinate"):
            tma.store_tile(memory, tensor, begin, 1, base, 0)
        return
    tma.store_tile(memory, tensor, begin, 1, base, 0)
    stored = np.frombuffer(memory.contents(buffer), np.uint16)
    wanted = np.zeros(2048, np.uint16)
    for z, y, x in product(
        *(range(max(b, 0), min(b + n, e)) for b, n, e in zip(begin[::-1], (2, 2, 32), (3, 5, 64), strict=True))
    ):
        at = 32 + x + 64 * y + 320 * z
        wanted[at] = np.frombuffer(before, np.uint16)[at] if x < 60 else 0  # a box has zeros outside
    assert (stored == wanted).all()


def test_numbers_of_four_bits_are_padded():
    memory, buffer = machine_of()
    tensor = TensorMap(buffer.address, 8, (8, 4), (8, 64), (4, 2), 16, False, 16, 8)
    assert tma.load_tile(memory, tensor, (32, 1), 0, 0, 0) == 64
    data = memory.contents(buffer)
    for y, x in product(range(2), range(4)):
        place = 16 * (4 * y + x)
        assert bytes(memory.shared.data[place : place + 16]) == data[64 * (y + 1) + 8 * (x + 2) :][:8] + b"\xee" * 8
    with pytest.raises(NotUnderstood, match="number 8"):
        tma.load_tile(memory, tensor, (8, 0), 0, 0, 0)


def test_copies_that_cannot_be_done():
    memory, buffer = machine_of()
    tensor = TensorMap(buffer.address, 2, (64, 5), (2, 128), (32, 4))
    for address, words in ((8192 - 128, "256 bytes outside"), (64, "0x40: not aligned")):
        with pytest.raises(Fault, match=words) as caught:
            tma.load_tile(memory, tensor, (0, 0), 0, address, 5)
        assert caught.value.thread == 5
    assert tma.load_tile(memory, tensor, (0, 0), 0, 8192 - 256, 5) == 256
    one = TensorMap(buffer.address, 2, (64, 5), (2, 128), (32, 4), 128)
    with pytest.raises(NotUnderstood, match="64 bytes with a swizzle of 128"):
        tma.load_tile(memory, one, (0, 0), 0, 0, 0)


@pytest.mark.parametrize(("unit", "nan"), [(2, 0x7FF7), (4, 0x7FF77FF7), (1, None)])
def test_nan_fills_what_a_tensor_does_not_have(unit, nan):
    """The bits of an H100, where it has run."""
    memory, buffer = machine_of()
    one = TensorMap(buffer.address, unit, (16, 5), (unit, 128), (32, 4), fills_nan=True)
    if nan is None:
        with pytest.raises(NotUnderstood, match="in elements of 1 bytes"):
            tma.load_tile(memory, one, (0, 0), 0, 0, 0)
        return
    tma.load_tile(memory, one, (0, 2), 0, 0, 0)
    tile = memory.shared.data[: 128 * unit].view(f"u{unit}").reshape(4, 32)
    assert (tile[:3, 16:] == nan).all() and (tile[3] == nan).all() and (tile[:3, :16] != nan).all()


def test_descriptors_name_their_maps():
    memory = Memory(1024)
    maps = [TensorMap(n, 2, (4,), (2,), (4,)) for n in range(3)]
    made = [tma.register(memory, one) for one in maps]
    assert {len(one) for one in made} == {128}
    buffers = [memory.allocate(one) for one in made] + [memory.allocate(128)]
    Machine(Geometry((1, 1, 1), (32, 1, 1), (0,)), memory)
    assert [tma.map_at(memory, one.address) for one in buffers[:3]] == maps
    for address in (buffers[3].address, 0, buffers[3].address + (1 << 40)):
        with pytest.raises(NotUnderstood, match="the kernel makes"):
            tma.map_at(memory, address)
