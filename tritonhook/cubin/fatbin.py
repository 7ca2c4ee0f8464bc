"""The cubins that lie embedded in other bytes: fat binaries, object files, shared libraries. Reads only.

A fat binary is a header and entries, each a header and a payload. The layout is that of fatbinary_section.h
and fatbinary.h in the CUDA toolkit: the magic number 0xBA55ED50, then version, header size and payload size;
an entry begins with its kind (2 for machine code), a version, the size of its header, and that of its payload.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from tritonhook.errors import CubinError

_HEADER = struct.Struct("<IHHQ")  # magic, version, header size, size of all entries
_ENTRY = struct.Struct("<HHIQ")  # kind, version, header size, payload size
_MAGIC = struct.pack("<I", 0xBA55ED50)
_MACHINE_CODE = 2
_ELF = b"\x7fELF"


@dataclass(frozen=True, slots=True)
class Embedded:
    """What machine code some bytes hold. packed: how many more cubins there are, compressed, thus unread."""

    cubins: tuple[bytes, ...]
    packed: int = 0


def embedded_cubins(data: bytes) -> Embedded:
    """Every cubin in the fat binaries that `data` holds, wherever they begin, each once."""
    found: dict[bytes, None] = {}
    packed = 0
    position = data.find(_MAGIC)
    while position >= 0:
        for payload in _machine_code(data, position):
            if payload.startswith(_ELF):
                found[payload] = None
            else:
                packed += 1
        position = data.find(_MAGIC, position + 1)
    return Embedded(tuple(found), packed)


def only_cubin(data: bytes) -> bytes:
    """The single cubin of a fat binary. Raises CubinError if there is none, or more than one."""
    embedded = embedded_cubins(data)
    if len(embedded.cubins) != 1 or embedded.packed:
        raise CubinError(
            f"fat binary of {len(data):,} bytes: {len(embedded.cubins)} cubins and {embedded.packed} compressed ones; "
            "exactly one, not compressed, can be read"
        )
    return embedded.cubins[0]


def _machine_code(data: bytes, start: int) -> Iterator[bytes]:
    """The payloads of one fat binary's machine code; none if these four bytes were not one's magic number."""
    if len(data) < start + _HEADER.size:
        return
    _, version, header_size, size = _HEADER.unpack_from(data, start)
    end = start + header_size + size
    if version != 1 or header_size != _HEADER.size or end > len(data):
        return
    position = start + header_size
    while position + _ENTRY.size <= end:
        kind, _, entry_header, payload_size = _ENTRY.unpack_from(data, position)
        body = position + entry_header
        position = body + payload_size
        if entry_header < _ENTRY.size or position > end:
            return
        if kind == _MACHINE_CODE:
            yield data[body:position]
