"""Images made by hand: sections and symbols as a test wants them."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple


class Part(NamedTuple):
    """A section. kind, flags, align: of its header. size: where it has no bytes in the file (kind 8)."""

    name: str
    content: bytes = b""
    kind: int = 1
    flags: int = 0
    align: int = 4
    size: int = 0


class Named(NamedTuple):
    """A symbol. home: the name of its section; "": undefined."""

    name: str
    home: str = ""
    kind: int = 1
    binding: int = 1
    other: int = 0
    value: int = 0
    size: int = 0


def made_elf(parts: Sequence[Part], symbols: Sequence[Named] = (), flags: int = 90, abi: int = 7) -> bytes:
    """The bytes of an image. Symbol 0 is the null symbol; section 0 the null section."""
    names, strings = [one.name for one in parts], b"\0"
    table = bytearray(24)
    for symbol in symbols:
        home = names.index(symbol.home) + 1 if symbol.home in names else 0
        info = symbol.binding << 4 | symbol.kind
        table += struct.pack("<IBBHQQ", len(strings), info, symbol.other, home, symbol.value, symbol.size)
        strings += symbol.name.encode() + b"\0"
    every = [*parts, Part(".symtab", bytes(table), 2, 0, 8), Part(".strtab", strings, 3)]
    titles = b"\0" + b"".join(one.name.encode() + b"\0" for one in [*every, Part(".shstrtab")])
    every.append(Part(".shstrtab", titles, 3))
    body, headers, at_name = bytearray(64), bytearray(64), 1
    for one in every:
        body += bytes(-len(body) % 16)
        size, link = one.size if one.kind == 8 else len(one.content), len(every) - 1 if one.kind == 2 else 0
        headers += struct.pack("<IIQQQQIIQQ", at_name, one.kind, one.flags, 0, len(body), size, link, 0, one.align, 0)
        body += b"" if one.kind == 8 else one.content
        at_name += len(one.name) + 1
    body[:9] = b"\x7fELF\2\1\1\x33" + bytes([abi])
    struct.pack_into("<HHI", body, 16, 2, 190, 1)
    struct.pack_into("<QQIHHHHHH", body, 32, 0, len(body), flags, 64, 0, 0, 64, len(every) + 1, len(every))
    return bytes(body + headers)


def attribute(kind: int, value: bytes = b"", form: int = 4) -> bytes:
    """A record of .nv.info. Of the short forms the value has two bytes."""
    return struct.pack("<BB", form, kind) + (struct.pack("<H", len(value)) if form == 4 else b"") + value


def numbers(*values: int) -> bytes:
    """Words of 32 bits."""
    return struct.pack(f"<{len(values)}I", *values)


def relocation(offset: int, kind: int, symbol: int, addend: int | None = None) -> bytes:
    """An entry of .rela, or of .rel where there is no addend."""
    entry = struct.pack("<QQ", offset, symbol << 32 | kind)
    return entry if addend is None else entry + struct.pack("<q", addend)
