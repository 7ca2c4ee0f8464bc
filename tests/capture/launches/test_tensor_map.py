"""TMA descriptors, as the CuTe DSL's host code makes them, and as the driver does."""

from __future__ import annotations

import ctypes
import struct
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from tritonhook.capture.launches.record import Tiling
from tritonhook.capture.launches.tensor_map import BYTES, bytes_of, decoded, encoded
from tritonhook.errors import DeviceError

ADDRESS = 0x7F12_3456_7800
# Words 1 to 7 of descriptors that CuTe DSL 4.8.1 made, and what was asked of it.
MADE = {
    "rank 1": (
        (0x40502, 0, 0, 0x1FF, 0, 0x3F00000000000000, 0),
        Tiling(9, (512,), (), (64,), (1,), 0, 0, 2, by_host=True),
    ),
    "swizzle 128": (
        (0x2000246512, 0, 0, 0xFF000000FF, 0, 0x3F00000000000000, 0x3F),
        Tiling(9, (256, 256), (512,), (64, 64), (1, 1), 0, 3, 2, by_host=True),
    ),
    "bytes": (
        (0x1000040012, 0, 0, 0xFF000000FF, 0, 0xF00000000000000, 7),
        Tiling(0, (256, 256), (256,), (16, 8), (1, 1), 0, 0, 2, by_host=True),
    ),
    "double": (
        (0x8000240492, 0, 0, 0xFF000000FF, 0, 0xF00000000000000, 7),
        Tiling(8, (256, 256), (2048,), (16, 8), (1, 1), 0, 0, 2, by_host=True),
    ),
    "tf32": (
        (0x4000250392, 0, 0, 0xFF000000FF, 0, 0xF00000000000000, 7),
        Tiling(11, (256, 256), (1024,), (16, 8), (1, 1), 0, 0, 2, by_host=True),
    ),
    "rank 5": (
        (0x800240542, 0x3C0000000400, 0x1400, 0x7F0000003F, 0x100000004, 0x1F00000000000002, 0x10F),
        Tiling(9, (64, 128, 5, 2, 3), (128, 16384, 245760, 81920), (32, 16, 2, 1, 1), (1,) * 5, 0, 0, 2, by_host=True),
    ),
    "packed rows": (  # O of FlashAttention 4
        (0x4000246532, 0x4000000010, 0, 0x3FFFFFFF0000007F, 0x7FFFFFFE00000003, 0x3F00000000000000, 0x7F),
        Tiling(
            *(9, (128, 1 << 30, 4, (1 << 31) - 1), (1024, 256, 1024), (64, 128, 1, 1), (1,) * 4, 0, 3, 2), by_host=True
        ),
    ),
}
# Words 1 to 9 of descriptors that driver 580 made on an H100.
BY_THE_DRIVER = {
    "swizzle 128": (
        (0x2000046310, 0, 0, 0x12B000000FF, 0, 0x3F00000000000000, 0x3F, 0x2000, 0x400),
        Tiling(6, (256, 300), (512,), (64, 64), (1, 1), 0, 3, 2),
    ),
    "steps, NaN outside": (
        (0x2000008310, 0, 0, 0x12B000000FF, 0, 0x3F00000800000000, 0x3F, 0x1000, 0x10),
        Tiling(6, (256, 300), (512,), (64, 64), (1, 2), fill=1),
    ),
}


def descriptor(words: tuple[int, ...], behind: bytes = b"\xaa") -> bytes:
    data = b"".join(word.to_bytes(8, "little") for word in (ADDRESS, *words))
    return data + behind * (BYTES - len(data))


@pytest.mark.parametrize("name", MADE)
def test_a_descriptor_says_what_was_asked(name: str) -> None:
    words, tiling = MADE[name]
    assert decoded(descriptor(words)) == (ADDRESS, tiling), "also where something is left in its second half"
    assert encoded(tiling, ADDRESS) == descriptor(words)[:64]


def test_strides_of_more_than_36_bits_are_whole() -> None:
    tiling = Tiling(9, (64, 2, 2), (1 << 37, 3 << 38), (64, 1, 1), (1, 1, 1), 0, 3, 2, by_host=True)
    assert decoded(encoded(tiling, ADDRESS).ljust(BYTES, b"\0")) == (ADDRESS, tiling)


@pytest.mark.parametrize("bit", [0, 7, 11, 12, 19, 20, 21, 22, 31])
def test_a_bit_that_is_not_known_is_not_guessed(bit: int) -> None:
    """Bits 0 to 3 are constant, 11 and 12 would be interleaving; 21 follows from the size."""
    words, _ = MADE["double"]
    assert decoded(descriptor((words[0] ^ 1 << bit, *words[1:]))) is None


def test_other_bytes_are_no_descriptor() -> None:
    words, _ = MADE["rank 1"]
    assert decoded(descriptor(words)[:-1]) is None
    assert decoded(bytes(BYTES)) is None
    assert decoded(descriptor((*words[:3], 0x1FF, 1, *words[5:]))) is None, "a size behind the last dimension"


@pytest.mark.parametrize("name", BY_THE_DRIVER)
def test_a_descriptor_of_the_driver_counts_if_the_driver_makes_it_again(name: str) -> None:
    words, tiling = BY_THE_DRIVER[name]
    data = descriptor(words, b"\0")
    asked: list[tuple[Tiling, int]] = []

    def encode(*given: Any) -> bytes:
        asked.append(given)
        return data

    assert decoded(data, encode) == (ADDRESS, tiling) and asked == [(tiling, ADDRESS)]
    small = bytes([*data[:10], data[10] ^ 1 << 5, *data[11:]])
    assert decoded(small, encode) == (ADDRESS, tiling), "a bit that some drivers set, and programs clear"
    assert decoded(data, lambda *_: data[:-1] + b"\1") is None

    def none(*_: Any) -> bytes:
        raise DeviceError("no driver")

    assert decoded(data, none) is None


# --- packed rows ---------------------------------------------------------------------------------

ROWS, MOST = 1 << 30, (1 << 31) - 1
SHIFTED = Tiling(9, (128, ROWS, 4, MOST), (1024, 256, 1024), (64, 128, 1, 1), (1,) * 4)
GOES_BACK = Tiling(9, (128, ROWS, 0x7FFF_0000, 0x7FFF_0000), (256, 256, (1 << 35) - 256), (64, 32, 1, 1), (1,) * 4)

OF_A_BOX = Tiling(9, (64, 32, 4, 201), (512, 128, 512), (64, 32, 1, 1), (1,) * 4)  # as of sm120_attn's `ragged_rows`


def test_memory_of_packed_rows_is_that_of_one_row() -> None:
    """The kernel's numbers say which rows there are, as for a pointer."""
    assert (SHIFTED.begin, SHIFTED.bytes) == (1024 * ROWS, 3 * 256 + 256)
    assert (GOES_BACK.begin, GOES_BACK.bytes) == (0, 256)
    assert (OF_A_BOX.begin, OF_A_BOX.bytes) == (512 * 32, 3 * 128 + 128)
    assert SHIFTED.reach > ROWS * 1024 and GOES_BACK.reach > ROWS * 256


@pytest.mark.parametrize(
    "other",
    [
        replace(SHIFTED, shape=(128, ROWS - 1, 4, MOST)),
        replace(SHIFTED, shape=(128, ROWS, 4, ROWS)),
        replace(SHIFTED, strides=(1024, 256, 1040)),
        replace(GOES_BACK, strides=(256, 272, (1 << 35) - 256)),
        replace(OF_A_BOX, box=(64, 16, 1, 1)),
        replace(OF_A_BOX, box=(64, 32, 1, 4)),
        replace(OF_A_BOX, strides=(512, 128, 1024)),
    ],
)
def test_other_descriptors_have_no_packed_rows(other: Tiling) -> None:
    assert other.begin == 0 and other.bytes == other.reach


# --- bytes ---------------------------------------------------------------------------------------


def test_the_bytes_of_a_descriptor_are_found() -> None:
    """In objects of Triton's driver, which end with them, and where a method says."""
    room = (ctypes.c_ubyte * BYTES)(*range(BYTES))
    for name in ("tma_desc_cpu_ptr", "getPtr"):
        assert bytes_of(SimpleNamespace(**{name: lambda: ctypes.addressof(room)})) == bytes(range(BYTES))
    names = [f"s{number:02}" for number in range(32)]
    made = type("PyCUtensorMap", (), {"__slots__": names})()
    for name in names:
        setattr(made, name, name)
    assert bytes_of(made) == struct.pack("<16Q", *map(id, names[16:]))
    assert bytes_of(object()) is None
