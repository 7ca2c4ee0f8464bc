"""Finding cubins in fat binaries, and in files that hold fat binaries."""

import ctypes
import struct
import sys
import tracemalloc

import pytest
from repository import GOLDEN

from tritonhook.cubin import shipped as fatbin_module
from tritonhook.cubin.shipped import Embedded, embedded_cubins

FIRST, SECOND = (path.read_bytes() for path in sorted(GOLDEN.glob("*.cubin"))[:2])


def entry(payload: bytes, kind: int = 2, header_size: int = 72, flags: int = 0, size: int = 0) -> bytes:
    """flags, size: of a compressed payload, as nvcc writes them."""
    padded = payload + b"\0" * (-len(payload) % 8)
    head = struct.pack("<HHIQI20xQ8xQ", kind, 0x101, header_size, len(padded), len(payload) if size else 0, flags, size)
    return head[:header_size] + b"\0" * (header_size - len(head)) + padded


def compressed(image: bytes, how: str) -> bytes:
    """An entry with a compressed cubin."""
    if how == "lz4":
        packed = pytest.importorskip("lz4.block").compress(image, store_size=False)
        return entry(packed, flags=0x2011, size=len(image))
    return entry(pytest.importorskip("zstandard").compress(image), flags=0x8011, size=len(image))


def fatbin(*entries: bytes) -> bytes:
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, sum(map(len, entries))) + b"".join(entries)


def test_one_cubin() -> None:
    assert embedded_cubins(fatbin(entry(FIRST))) == Embedded((FIRST,), suffixes=("",))


def test_several_within_other_bytes_each_once() -> None:
    # as an object file has them; PTX (kind 1) is no machine code
    data = b"\x7fELFhost" + fatbin(entry(FIRST), entry(b".version 9.0", kind=1)) + b"pad" + fatbin(entry(SECOND))
    found = embedded_cubins(data + fatbin(entry(FIRST)))
    assert (found.cubins, found.packed) == ((FIRST, SECOND), 0)


@pytest.mark.parametrize("how", ["lz4", "zstd"])
def test_compressed_ones_are_read(how: str) -> None:
    data = fatbin(compressed(FIRST, how), entry(b"packed PTX", kind=1), entry(SECOND))
    both = Embedded((FIRST, SECOND), 0, 1, suffixes=("", ""))
    assert embedded_cubins(data) == both
    other = {"lz4": "lz4.block", "zstd": "zstandard"}[how]
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, other, None)
        try:
            ctypes.CDLL(f"lib{how}.so.1")
        except OSError:
            pass
        else:
            assert embedded_cubins(data) == both  # by the system's library
        patch.setattr(fatbin_module, "_library", lambda name: ctypes.CDLL(f"no-such-{name}"))
        assert embedded_cubins(data) == Embedded((SECOND,), 1, 1, suffixes=("",))


@pytest.mark.parametrize("how", ["lz4", "zstd"])
@pytest.mark.parametrize("size", [1, len(FIRST) - 1, len(FIRST) + 1, 1 << 31, 1 << 62])
def test_a_compressed_one_of_another_size_is_not_read(how: str, size: int) -> None:
    good = compressed(FIRST, how)
    false = good[:56] + struct.pack("<Q", size) + good[64:]
    found = embedded_cubins(fatbin(false, entry(SECOND)))
    assert found == Embedded((SECOND,), 1, suffixes=("",), too_large=size >= 1 << 31)


def test_compressed_ones_that_are_damaged_are_counted() -> None:
    found = embedded_cubins(fatbin(entry(b"\x28\xb5\x2f\xfd" + b"compressed" * 3), entry(FIRST)))
    assert (found.cubins, found.packed) == ((FIRST,), 1)


@pytest.mark.parametrize("data", [b"", b"\x50\xed\x55\xba", b"\x50\xed\x55\xba" * 40, fatbin(), b"\x7fELF"])
def test_what_holds_none(data: bytes) -> None:
    assert embedded_cubins(data).cubins == ()


@pytest.mark.parametrize("cut", [1, 17, 40, 100, 1000])
def test_a_cut_fat_binary_gives_nothing(cut: int) -> None:
    found = embedded_cubins(fatbin(entry(FIRST))[:-cut])
    assert (found.cubins, found.damaged) == ((), 1)


def test_code_for_the_linker_and_suffixes_of_targets() -> None:
    """Flags as nvcc 13.0 writes them."""
    entries = entry(b"NVVM", kind=8), entry(FIRST, flags=0x100011), entry(SECOND, flags=0x1200011)
    assert embedded_cubins(fatbin(*entries)) == Embedded((FIRST, SECOND), linked=1, suffixes=("a", "f"))


def test_sizes_that_lead_nowhere_end_the_search() -> None:
    looping = struct.pack("<IHHQ", 0xBA55ED50, 1, 16, 64) + struct.pack("<HHIQ", 2, 0x101, 0, 0) + b"\0" * 48
    assert embedded_cubins(looping).cubins == ()
    far = struct.pack("<IHHQ", 0xBA55ED50, 1, 16, 64) + struct.pack("<HHIQ", 2, 0x101, 16, 2**63) + b"\0" * 48
    assert embedded_cubins(far).cubins == ()


def test_compressed_ones_share_one_limit_that_the_message_names() -> None:
    """80 cubins of 16 MiB, of some hundred bytes each: what fits is read, and no more."""
    image = b"\x7fELF".ljust(16 << 20, b"\0")
    packed = pytest.importorskip("zstandard").compress(image)
    found = embedded_cubins(fatbin(*[entry(packed, flags=0x8011, size=len(image))] * 80))
    assert found.cubins == (image,) and 60 < found.too_large == found.packed < 70
    (why,) = found.not_read
    assert f"limit of {found.limit:,} bytes" in why and 1 << 28 <= found.limit < 1 << 29


@pytest.mark.parametrize("in_header", [False, True])
def test_a_frame_that_says_another_size_than_its_entry_is_not_unpacked(in_header: bool) -> None:
    zstandard = pytest.importorskip("zstandard")
    image = b"\x7fELF".ljust(1 << 20, b"\0")
    packed = zstandard.ZstdCompressor(write_content_size=in_header).compress(image)
    false = fatbin(entry(packed, flags=0x8011, size=4096))
    tracemalloc.start()
    assert embedded_cubins(false).packed == 1
    assert tracemalloc.get_traced_memory()[1] < len(image) // 2
    tracemalloc.stop()
    assert embedded_cubins(fatbin(entry(packed, flags=0x8011, size=len(image)))).cubins == (image,)


def test_what_an_entry_holds_is_not_walked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Headers within the entries of others: 8,192 of them are one walk, not 8,192."""
    count, walked = 8192, 0
    nested = b"".join(
        struct.pack("<HHIQ", 3, 1, 16, 16) + struct.pack("<IHHQ", 0xBA55ED50, 1, 16, 32 * (count - n - 1))
        for n in range(count)
    )
    whole = fatbin_module._entries

    def counted(data: bytes, start: int):
        nonlocal walked
        for one in whole(data, start):
            walked += 1
            yield one

    monkeypatch.setattr(fatbin_module, "_entries", counted)
    embedded_cubins(fatbin(nested))
    assert walked == count
    embedded_cubins(fatbin(nested + b"\0" * 20))  # and with a damaged end
    assert walked < 3 * count
