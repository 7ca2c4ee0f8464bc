"""Find the cubins embedded in other bytes: fat binaries, object files, shared libraries.

A fat binary is a header and entries; an entry is a header and a payload. Layout (fatbinary_section.h and fatbinary.h
of the CUDA toolkit): the magic number 0xBA55ED50, version, header size, payload size; an entry begins with its kind
(2 for machine code), a version, the size of its header, and the size of its payload.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from tritonhook.cubin.elf import MAGIC
from tritonhook.errors import CubinError

_HEADER = struct.Struct("<IHHQ")  # magic, version, header size, size of all entries
_ENTRY = struct.Struct("<HHIQ")  # kind, version, header size, payload size
_FATBIN_MAGIC = struct.pack("<I", 0xBA55ED50)
_MACHINE_CODE = 2


@dataclass(frozen=True, slots=True)
class Embedded:
    """The cubins found. packed: how many more there are that are compressed and were not read."""

    cubins: tuple[bytes, ...]
    packed: int = 0


def embedded_cubins(data: bytes) -> Embedded:
    """Find every cubin in the fat binaries of `data`, wherever they begin; equal ones once."""
    found: dict[bytes, None] = {}
    packed = 0
    position = data.find(_FATBIN_MAGIC)
    while position >= 0:
        for payload in _machine_code(data, position):
            if payload.startswith(MAGIC):
                found[payload] = None
            else:
                packed += 1
        position = data.find(_FATBIN_MAGIC, position + 1)
    return Embedded(tuple(found), packed)


def only_cubin(data: bytes) -> bytes:
    """Return the single cubin of a fat binary. Raises CubinError if there is none, or more than one."""
    embedded = embedded_cubins(data)
    if len(embedded.cubins) != 1 or embedded.packed:
        raise CubinError(
            f"fat binary of {len(data):,} bytes: {len(embedded.cubins)} cubins and {embedded.packed} compressed ones; "
            "exactly one, not compressed, can be read"
        )
    return embedded.cubins[0]


def _machine_code(data: bytes, start: int) -> Iterator[bytes]:
    """The payloads of one fat binary's machine code; none if the four bytes at `start` begin no fat binary."""
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
