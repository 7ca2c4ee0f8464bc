"""Find GPU code in shipped files: shared libraries, archives, wheels, cubins, fat binaries, and folders of these.

Files are recognised by their first bytes, and read whole, one at a time. A wheel is unpacked member by member,
within limits. An unreadable file results in a note, and reading goes on with the next file.

Libraries embed cubins in fat binaries. A fat binary is a header and entries; an entry is a header and a payload.
Layout (fatbinary_section.h and fatbinary.h of the CUDA toolkit): the magic number 0xBA55ED50, version, header size,
payload size; an entry begins with its kind (1 for PTX, 2 for machine code), a version, the size of its header, and the
size of its payload. Then come the payload's compressed size at byte 16, flags at byte 40 and the size before
compression at byte 56. nvcc 13.0 also writes values that these headers do not document: kind 8, which is NVVM code for
the linker (LTO), and the flags of sm_90a and sm_100f.
"""

from __future__ import annotations

import ctypes
import re
import struct
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from tritonhook._util.files import read_given, read_start
from tritonhook._util.text import encodable
from tritonhook.cubin.elf import EM_CUDA, MAGIC

_HEADER = struct.Struct("<IHHQ")  # magic, version, header size, size of all entries
_ENTRY = struct.Struct("<HHIQ")  # kind, version, header size, payload size
_COMPRESSION = struct.Struct("<16xI20xQ8xQ")  # fields of an entry: compressed size, flags, uncompressed size
FATBIN_MAGIC = struct.pack("<I", 0xBA55ED50)
_PTX, _MACHINE_CODE, _FOR_LINKER = 1, 2, 8
_LZ4, _ZSTD = 0x2000, 0x8000  # flags
_FAMILY, _ONE_ARCH = 0x200000, 0x100000  # flags of sm_100f and sm_90a
_ROOM, _GROWTH = 1 << 28, 32  # limit of decompressed code in bytes: _ROOM, and _GROWTH more for each byte read


@dataclass(frozen=True, slots=True)
class Embedded:
    """GPU code in a file. cubins: its images, without repetitions. packed: number of compressed cubins that were not
    read; too_large: how many of these exceed the limit when unpacked. ptx: number of PTX modules; linked: number of
    modules for the linker, which hold no machine code yet. damaged: number of truncated fat binaries. suffixes: for
    each cubin, the suffix of its target, e.g. "a" for sm_90a. limit: of unpacked code, in bytes."""

    cubins: tuple[bytes, ...]
    packed: int = 0
    ptx: int = 0
    linked: int = 0
    damaged: int = 0
    suffixes: tuple[str, ...] = ()
    too_large: int = 0
    limit: int = field(default=0, compare=False)

    @property
    def not_read(self) -> tuple[str, ...]:
        """Notes on the compressed cubins that were not read: how many, and why."""
        whys = {
            f"all unpacked code together exceeds the limit of {self.limit:,} bytes": self.too_large,
            "damaged, or lz4 or zstandard is missing: `pip install lz4 zstandard`": self.packed - self.too_large,
        }
        return tuple(f"{number:,} compressed and not read ({why})" for why, number in whys.items() if number)


class Room:
    """A limit for decompressed bytes. It grows with the bytes that were read. taken_in: bytes read so far."""

    def __init__(self) -> None:
        self.taken_in = self._taken = 0

    @property
    def bytes(self) -> int:
        return _ROOM + _GROWTH * self.taken_in

    def take(self, size: int) -> bool:
        """Take `size` bytes from the limit; False if too few are left."""
        fits = self._taken + size <= self.bytes
        self._taken += size * fits
        return fits


def embedded_cubins(data: bytes, room: Room | None = None) -> Embedded:
    """Find the cubins in all fat binaries of `data`; list equal cubins once.

    A fat binary may begin at any byte; its payloads are not searched for further fat binaries. A compressed cubin is
    read if Python has the module `lz4` or `zstandard`, or the system has the library.
    room: limit for decompressed bytes; several files can share it.
    """
    room = room or Room()
    room.taken_in += len(data)
    cubins: dict[bytes, str] = {}
    packed = ptx = linked = damaged = too_large = 0
    position = data.find(FATBIN_MAGIC)
    while position >= 0:
        end = position + 1
        for entry in _entries(data, position):
            end = end if entry is None else entry.end
            if entry is None:
                damaged += 1
            elif entry.kind == _PTX:
                ptx += 1
            elif entry.kind == _FOR_LINKER:
                linked += 1
            elif entry.kind == _MACHINE_CODE:
                image = entry.payload if entry.payload.startswith(MAGIC) else None
                if image is None and entry.is_packed:
                    fits = room.take(entry.compression[2])
                    too_large += not fits
                    image = _unpacked(entry) if fits else None
                packed += image is None
                cubins |= {} if image is None else {image: entry.suffix}
        position = data.find(FATBIN_MAGIC, end)
    return Embedded(tuple(cubins), packed, ptx, linked, damaged, tuple(cubins.values()), too_large, room.bytes)


class _Entry(NamedTuple):
    kind: int
    header: bytes
    payload: bytes
    end: int

    @property
    def compression(self) -> tuple[int, int, int]:
        """(compressed size, flags, size before compression); zeros if the header is too short for these fields."""
        whole = len(self.header) >= _COMPRESSION.size
        return _COMPRESSION.unpack_from(self.header) if whole else (0, 0, 0)

    @property
    def is_packed(self) -> bool:
        _, flags, size = self.compression
        return bool(flags & (_LZ4 | _ZSTD)) and size > 0

    @property
    def suffix(self) -> str:
        flags = self.compression[1]
        return "f" if flags & _FAMILY else "a" if flags & _ONE_ARCH else ""


def _unpacked(entry: _Entry) -> bytes | None:
    """Decompress a cubin; None if it cannot be read."""
    packed_size, flags, size = entry.compression
    packed = entry.payload[:packed_size]
    for unpack in (_unpack_lz4, _system_lz4) if flags & _LZ4 else (_unpack_zstd, _system_zstd):
        try:
            image = unpack(packed, size)
        except Exception:  # missing module or library, or damaged data; each library raises other errors
            continue
        return image if len(image) == size and image.startswith(MAGIC) else None
    return None


def _unpack_lz4(packed: bytes, size: int) -> bytes:
    import lz4.block  # type: ignore[import-untyped,import-not-found,unused-ignore]

    return bytes(lz4.block.decompress(packed, uncompressed_size=size))


def _unpack_zstd(packed: bytes, size: int) -> bytes:
    import zstandard  # type: ignore[import-not-found,unused-ignore]

    # If the frame states its size, the decompressor ignores max_output_size.
    if zstandard.frame_content_size(packed) not in (-1, size):
        return b""
    return bytes(zstandard.ZstdDecompressor().decompress(packed, max_output_size=size))


def _system_lz4(packed: bytes, size: int) -> bytes:
    into = ctypes.create_string_buffer(size)
    done = _library("liblz4.so.1").LZ4_decompress_safe(packed, into, len(packed), size)
    return into.raw if done == size else b""


def _system_zstd(packed: bytes, size: int) -> bytes:
    decompress = _library("libzstd.so.1").ZSTD_decompress
    decompress.restype = ctypes.c_size_t
    into = ctypes.create_string_buffer(size)
    done = decompress(into, ctypes.c_size_t(size), packed, ctypes.c_size_t(len(packed)))
    return into.raw if done == size else b""


@lru_cache
def _library(name: str) -> ctypes.CDLL:
    return ctypes.CDLL(name)


def _entries(data: bytes, start: int) -> Iterator[_Entry | None]:
    """Yield each entry of a fat binary, and None for a truncated one. Yield nothing if no fat binary begins at
    `start`."""
    if len(data) < start + _HEADER.size:
        return
    _, version, header_size, size = _HEADER.unpack_from(data, start)
    end = start + header_size + size
    if version != 1 or header_size != _HEADER.size:
        return
    if end > len(data):
        yield None
        return
    position = start + header_size
    while position + _ENTRY.size <= end:
        kind, _, entry_header, payload_size = _ENTRY.unpack_from(data, position)
        header, body = position, position + entry_header
        position = body + payload_size
        if entry_header < _ENTRY.size or position > end:
            yield None
            return
        yield _Entry(kind, data[header:body], data[body:position], position)


# --- files ----------------------------------------------------------------------------------------


_ARCHIVE, _ZIP = b"!<arch>\n", b"PK\3\4"

_MOST_BYTES = 1 << 32  # per file: libraries of torch have 2 GiB
_MOST_MEMBER, _MOST_WHEEL = 1 << 32, 1 << 35  # bytes, unpacked
_MOST_RATIO, _SMALL = 200, 1 << 24  # highest allowed compression ratio above _SMALL bytes; libraries have 3 to 20
_PYTHON = re.compile(r"\.(?:cpython-\d+\w*|abi3|cp\d+)(?:-[\w-]+)?(?=\.so\b)")


@dataclass(frozen=True, slots=True)
class ShippedFile:
    """A file with GPU code or with notes. name: path in its wheel or folder; the Python version of an extension module
    is removed from it, so that releases can be compared by name. images: pairs of a cubin and the suffix of its target,
    e.g. "a" for sm_90a; "" if unknown. notes: parts that are damaged or have no machine code."""

    name: str
    images: tuple[tuple[bytes, str], ...] = ()
    notes: tuple[str, ...] = ()


def shipped_files(path: Path) -> Iterator[ShippedFile]:
    """Read a file, a wheel or a folder. Yield nothing for files without GPU code. Raises OSError if `path` itself
    cannot be read."""
    room = Room()
    if path.is_dir():
        for file in sorted(file for file in path.rglob("*") if file.is_file() and not file.is_symlink()):
            try:
                yield from _in_file(file, str(file.relative_to(path)), room)
            except OSError as error:
                yield ShippedFile(str(file), notes=(f"cannot be read: {error.strerror}",))
    else:
        yield from _in_file(path, path.name, room)


def is_shipped(path: Path) -> bool:
    """Check by its first bytes whether a file is a library, an archive, a wheel or a cubin; it may hold no GPU code."""
    try:
        start = read_start(path, len(_ARCHIVE))
    except OSError:
        return False
    return start.startswith(_ZIP) or _may_have_code(start)


def _in_file(path: Path, name: str, room: Room) -> Iterator[ShippedFile]:
    start = read_start(path, len(_ARCHIVE))
    if start.startswith(_ZIP):
        yield from _in_wheel(path, room)
    elif _may_have_code(start):
        yield from _in_bytes(read_given(path, _MOST_BYTES), name, room)


def _may_have_code(start: bytes) -> bool:
    return start.startswith((MAGIC, FATBIN_MAGIC, _ARCHIVE))


def _in_wheel(path: Path, room: Room) -> Iterator[ShippedFile]:
    """Read each member of a wheel that may have GPU code."""
    unpacked = 0
    try:
        with zipfile.ZipFile(path) as wheel:
            for member in sorted(wheel.infolist(), key=lambda member: member.filename):
                if why := _why_not_unpacked(member, unpacked):
                    yield ShippedFile(member.filename, notes=(f"not unpacked: {why}",))
                    continue
                try:
                    with wheel.open(member) as file:
                        data = file.read(8)
                        if not _may_have_code(data):
                            continue
                        data += file.read(member.file_size)
                except (OSError, zipfile.BadZipFile, zlib.error, RuntimeError, NotImplementedError, EOFError) as error:
                    yield ShippedFile(member.filename, notes=(f"cannot be unpacked: {error}",))
                    continue
                unpacked += len(data)
                yield from _in_bytes(data, member.filename, room)
    except (zipfile.BadZipFile, ValueError, NotImplementedError) as error:
        yield ShippedFile(path.name, notes=(f"not a readable wheel: {error}",))


def _why_not_unpacked(member: zipfile.ZipInfo, before: int) -> str | None:
    size, packed = member.file_size, max(member.compress_size, 1)
    if size > _MOST_MEMBER:
        return f"{size:,} bytes, more than the limit of {_MOST_MEMBER:,}"
    if before + size > _MOST_WHEEL:
        return f"unpacked, the wheel has more bytes than the limit of {_MOST_WHEEL:,}"
    if size > _SMALL and size > _MOST_RATIO * packed:
        return f"{packed:,} bytes would become {size:,}, as in a zip bomb"
    return None


def _in_bytes(data: bytes, name: str, room: Room) -> Iterator[ShippedFile]:
    name = encodable(_PYTHON.sub("", name))
    if data[:4] == MAGIC and data[18:20] == EM_CUDA.to_bytes(2, "little"):
        yield ShippedFile(name, ((data, ""),))
        return
    embedded = embedded_cubins(data, room)
    lost = {
        f"{embedded.damaged:,} damaged or truncated": embedded.damaged,
        f"{embedded.linked:,} for the linker only (LTO)": embedded.linked,
    }
    notes = [f"fat binaries: {what}" for what in (*(one for one, n in lost.items() if n), *embedded.not_read)]
    if embedded.ptx and not embedded.cubins:
        notes.append(f"no machine code, only PTX modules: {embedded.ptx:,}")
    if embedded.cubins or notes:
        yield ShippedFile(name, tuple(zip(embedded.cubins, embedded.suffixes, strict=True)), tuple(notes))
