"""Files of what is shipped: libraries, archives, wheels, folders; and what in them cannot be read."""

from __future__ import annotations

import os
import struct
import zipfile
from pathlib import Path

import pytest

from tests.cubin.test_fatbin import FIRST, SECOND, entry, fatbin
from tritonhook.cubin import shipped
from tritonhook.cubin.shipped import Embedded, ShippedFile, embedded_cubins, is_shipped, shipped_files

HOST = b"\x7fELF\2\1\1" + bytes(11) + b"\x3e\0" + bytes(44)  # of x86-64


def library(*entries: bytes) -> bytes:
    return HOST + fatbin(*entries)


def read(path: Path) -> dict[str, ShippedFile]:
    return {file.name: file for file in shipped_files(path)}


def test_each_kind_of_file_and_a_folder(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "libk.so").write_bytes(library(entry(FIRST)))
    (tmp_path / "in" / "libk.a").write_bytes(b"!<arch>\n" + library(entry(SECOND)))
    (tmp_path / "k.cubin").write_bytes(FIRST)
    (tmp_path / "k.fatbin").write_bytes(fatbin(entry(SECOND, flags=0x100011)))
    (tmp_path / "host.so").write_bytes(HOST)
    (tmp_path / "README").write_text("no code")
    (tmp_path / "libk.so.1").symlink_to("libk.so")
    found = read(tmp_path)
    assert {name: [image for image, _ in file.images] for name, file in found.items()} == {
        "libk.so": [FIRST],
        "in/libk.a": [SECOND],
        "k.cubin": [FIRST],
        "k.fatbin": [SECOND],
    }
    assert [suffix for _, suffix in found["k.fatbin"].images] == ["a"]
    assert [is_shipped(tmp_path / name) for name in ("libk.so", "in/libk.a", "k.cubin", "README", "none")] == [
        True,
        True,
        True,
        False,
        False,
    ]


def test_members_of_a_wheel_keep_their_names_for_every_python(tmp_path: Path) -> None:
    wheel = tmp_path / "p-1.0-cp311-cp311-linux_x86_64.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("p/_C.cpython-311-x86_64-linux-gnu.so", library(entry(FIRST)))
        file.writestr("p/__init__.py", "")
    assert list(read(wheel)) == ["p/_C.so"]


def test_what_cannot_be_read_is_named_and_the_rest_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shipped, "_SMALL", 1 << 16)
    wheel = tmp_path / "p.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("bomb.so", HOST + bytes(1 << 26))
        file.writestr("broken.so", library(entry(SECOND)))
        file.writestr("good.so", library(entry(FIRST)))
        file.writestr("large.so", library(entry(FIRST)) + os.urandom(1 << 17))
        file.writestr("zeros.so", library(entry(FIRST)) + bytes(1 << 15))
    data = bytearray(wheel.read_bytes())
    at = data.index(b"broken.so") + len("broken.so")
    data[at : at + 40] = os.urandom(40)
    wheel.write_bytes(data)
    found = read(wheel)
    assert "would become 67,108,928, as in a zip bomb" in found["bomb.so"].notes[0]
    assert "cannot be unpacked" in found["broken.so"].notes[0]
    for name in ("good.so", "large.so", "zeros.so"):
        assert [image for image, _ in found[name].images] == [FIRST]
    monkeypatch.setattr(shipped, "_MOST_WHEEL", len(library(entry(FIRST))) + (1 << 17))
    found = read(wheel)  # good.so and large.so together are more
    assert found["good.so"].images and "unpacked, the wheel has more" in found["large.so"].notes[0]
    wheel.write_bytes(b"PK\3\4" + bytes(100))
    assert "not a readable wheel" in read(wheel)["p.whl"].notes[0]


def test_what_is_no_machine_code_is_named(tmp_path: Path) -> None:
    place = tmp_path / "lib.so"
    place.write_bytes(library(entry(b"NVVM", kind=8)))
    assert read(place)["lib.so"].notes == ("fat binaries: 1 for the linker only (LTO)",)
    place.write_bytes(library(entry(b".version 8.0", kind=1)))
    assert read(place)["lib.so"].notes == ("no machine code, only PTX modules: 1",)
    place.write_bytes(library(entry(SECOND), entry(b"nonsense", flags=0x8011, size=9)) + fatbin(entry(FIRST))[:-9])
    file = read(place)["lib.so"]
    assert [image for image, _ in file.images] == [SECOND]
    assert [note.partition(" (")[0] for note in file.notes] == [
        "fat binaries: 1 damaged or truncated",
        "fat binaries: 1 compressed and not read",
    ]


def test_each_fat_binary_that_is_cut_off_counts() -> None:
    short = struct.pack("<IHHQ", 0xBA55ED50, 1, 16, 40)
    entries = [struct.pack("<HHIQ", 2, 0, size, payload) + bytes(24) for size, payload in ((15, 0), (16, 25), (41, 0))]
    data = b"".join(short + one for one in entries) + fatbin(entry(FIRST))
    found = embedded_cubins(data)
    assert (found.cubins, found.damaged) == ((FIRST,), 3)
    for version, size in ((2, 16), (1, 24)):  # no header of a fat binary
        assert embedded_cubins(struct.pack("<IHHQ", 0xBA55ED50, version, size, 1 << 40) + bytes(64)).damaged == 0


def test_a_header_without_sizes_is_enough() -> None:
    bare = struct.pack("<HHIQ", 2, 0, 16, len(FIRST)) + FIRST
    linked = [entry(b"x", kind=8)] * 3 + [entry(b"y", kind=1)] * 2
    assert embedded_cubins(fatbin(bare, *linked)) == Embedded((FIRST,), ptx=2, linked=3, suffixes=("",))


def test_only_members_that_may_have_code_are_unpacked_to_their_end(tmp_path: Path) -> None:
    wheel = tmp_path / "p.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("a.txt", b"text" + library(entry(FIRST)) + b"THE END", zipfile.ZIP_STORED)
        file.writestr("b.fatbin", fatbin(entry(FIRST), entry(SECOND)))
        file.writestr("c.cubin", SECOND)
    wheel.write_bytes(wheel.read_bytes().replace(b"THE END", b"the end"))  # its checksum is wrong: nobody sees that
    assert {name: [image for image, _ in file.images] for name, file in read(wheel).items()} == {
        "b.fatbin": [FIRST, SECOND],
        "c.cubin": [SECOND],
    }
