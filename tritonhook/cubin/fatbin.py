"""Find the cubins embedded in other bytes: fat binaries, object files, shared libraries.

A fat binary is a header and entries; an entry is a header and a payload. Layout (fatbinary_section.h and fatbinary.h
of the CUDA toolkit): the magic number 0xBA55ED50, version, header size, payload size; an entry begins with its kind
(1 for PTX, 2 for machine code), a version, the size of its header, and the size of its payload. Behind that come the
payload's compressed size at byte 16, flags at byte 40 and the size before compression at byte 56.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from tritonhook.cubin.elf import MAGIC

_HEADER = struct.Struct("<IHHQ")  # magic, version, header size, size of all entries
_ENTRY = struct.Struct("<HHIQ")  # kind, version, header size, payload size
_COMPRESSION = struct.Struct("<16xI20xQ8xQ")  # of an entry: compressed size, flags, size before
FATBIN_MAGIC = struct.pack("<I", 0xBA55ED50)
_PTX, _MACHINE_CODE = 1, 2
_LZ4, _ZSTD = 0x2000, 0x8000  # flags
_MOST = 1 << 30  # bytes that an entry may grow to


@dataclass(frozen=True, slots=True)
class Embedded:
    """The cubins found. packed: how many more there are that are compressed and were not read. ptx: how many PTX
    modules there are."""

    cubins: tuple[bytes, ...]
    packed: int = 0
    ptx: int = 0


def embedded_cubins(data: bytes) -> Embedded:
    """Find every cubin in the fat binaries of `data`, wherever they begin; equal ones once.

    Compressed ones are read where Python has the module for it: `lz4`, `zstandard`.
    """
    cubins: dict[bytes, None] = {}
    packed = ptx = 0
    position = data.find(FATBIN_MAGIC)
    while position >= 0:
        for kind, entry, payload in _entries(data, position):
            if kind == _PTX:
                ptx += 1
            elif kind == _MACHINE_CODE:
                image = payload if payload.startswith(MAGIC) else _unpacked(entry, payload)
                packed += image is None
                cubins |= {} if image is None else {image: None}
        position = data.find(FATBIN_MAGIC, position + 1)
    return Embedded(tuple(cubins), packed, ptx)


def _unpacked(entry: bytes, payload: bytes) -> bytes | None:
    """A compressed cubin; None if it cannot be read."""
    if len(entry) < _COMPRESSION.size:
        return None
    packed_size, flags, size = _COMPRESSION.unpack_from(entry)
    if not (flags & (_LZ4 | _ZSTD) and 0 < size <= _MOST):
        return None
    packed = payload[:packed_size]
    try:
        image = _unpack_lz4(packed, size) if flags & _LZ4 else _unpack_zstd(packed, size)
    except Exception:  # no such module, or damaged: each module has errors of its own
        return None
    return image if len(image) == size and image.startswith(MAGIC) else None


def _unpack_lz4(packed: bytes, size: int) -> bytes:
    import lz4.block  # type: ignore[import-untyped,import-not-found,unused-ignore]

    return bytes(lz4.block.decompress(packed, uncompressed_size=size))


def _unpack_zstd(packed: bytes, size: int) -> bytes:
    import zstandard  # type: ignore[import-not-found,unused-ignore]

    return bytes(zstandard.ZstdDecompressor().decompress(packed, max_output_size=size))


def _entries(data: bytes, start: int) -> Iterator[tuple[int, bytes, bytes]]:
    """Kind, header and payload of each entry of a fat binary; none if the four bytes at `start` begin no fat binary."""
    if len(data) < start + _HEADER.size:
        return
    _, version, header_size, size = _HEADER.unpack_from(data, start)
    end = start + header_size + size
    if version != 1 or header_size != _HEADER.size or end > len(data):
        return
    position = start + header_size
    while position + _ENTRY.size <= end:
        kind, _, entry_header, payload_size = _ENTRY.unpack_from(data, position)
        header, body = position, position + entry_header
        position = body + payload_size
        if entry_header < _ENTRY.size or position > end:
            return
        yield kind, data[header:body], data[body:position]
