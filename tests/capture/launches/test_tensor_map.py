"""TMA descriptors, as the CuTe DSL's host code makes them."""

from __future__ import annotations

import pytest

from tritonhook.capture.launches.record import Tiling
from tritonhook.capture.launches.tensor_map import BYTES, decoded, encoded

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


@pytest.mark.parametrize("bit", [0, 7, 11, 12, 15, 19, 20, 21, 22, 31])
def test_a_bit_that_is_not_known_is_not_guessed(bit: int) -> None:
    """Bits 0 to 3 are constant, 11 and 12 would be interleaving, 15 the fill; 21 follows from the size."""
    words, _ = MADE["double"]
    assert decoded(descriptor((words[0] ^ 1 << bit, *words[1:]))) is None


def test_other_bytes_are_no_descriptor() -> None:
    words, _ = MADE["rank 1"]
    assert decoded(descriptor(words)[:-1]) is None
    assert decoded(bytes(BYTES)) is None
    assert decoded(descriptor((*words[:3], 0x1FF, 1, *words[5:]))) is None, "a size behind the last dimension"
