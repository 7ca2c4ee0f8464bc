"""Read the ELF structure of a cubin with struct alone: header, sections, symbols, relocations, .nv.info attributes.

Every offset, size and index in the file is checked before it is used, so that a damaged file raises CubinError and no
other error. image.py and summary.py interpret the sections and attributes of a kernel.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from tritonhook.errors import CubinError

MAGIC = b"\x7fELF"
HEADER_BYTES = 64
SHT_NOBITS = 8
_SHT_CUDA_SHARED = 0x7000000A  # .nv_debug.shared of CUDA 11.8: it has a size, but no bytes in the file
NO_BYTES = frozenset((SHT_NOBITS, _SHT_CUDA_SHARED))
SHT_CUDA_INFO = 0x70000000
SHN_UNDEF = 0
STT_SECTION = 3
_SHT_SYMTAB = 2
EM_CUDA = 190
_CLASS_64 = 2

KERNEL = "{kernel}"  # placeholder for a kernel's own name
# Prefixes of symbols that only the linker uses: markers in shared memory, the unified function and data tables.
LINKERS_OWN = (".nv.", "__UFT", "__UDT")

_SECTION = struct.Struct("<IIQ8xQQI4xQ8x")  # name, type, flags, offset, size, link, alignment
_SYMBOL = struct.Struct("<IBBHQQ")  # name, info, other, section, value, size
_RELOCATION = struct.Struct("<QQ")  # offset, symbol and type; .rela adds an addend
_ADDEND = struct.Struct("<q")
_ATTRIBUTE = struct.Struct("<BBH")  # format, attribute, value or number of bytes that follow
_TWO_WORDS = struct.Struct("<II")


class Header(NamedTuple):
    """One entry of the section table. size: bytes in the file; bytes in memory if the section has none in the file
    (NO_BYTES). align: in bytes."""

    name: str
    kind: int
    flags: int
    offset: int
    size: int
    link: int
    align: int


class Symbol(NamedTuple):
    """One entry of the symbol table. section: index into Elf.headers, or SHN_UNDEF. binding: local, global or weak.
    other: its visibility, and CUDA's flags. value: its offset in the section. size: in bytes."""

    name: str
    kind: int
    section: int
    binding: int
    other: int
    value: int
    size: int


class Relocation(NamedTuple):
    """A field in a section that a linker fills with the address of a symbol. symbol: index into Elf.symbols(). addend:
    number that is added to the address; 0 for .rel sections, where the field itself holds it."""

    offset: int
    kind: int
    symbol: int
    addend: int


class Attribute(NamedTuple):
    """One record of a .nv.info section."""

    kind: int
    value: bytes


class Elf(NamedTuple):
    """A parsed ELF image. headers: in file order, beginning with the null section. by_name: headers by section name;
    the first if several have the same name."""

    data: bytes
    flags: int
    abi: int
    headers: tuple[Header, ...]
    by_name: dict[str, Header]

    def content(self, name: str) -> bytes:
        """Read the bytes of a section; empty if there is no such section, or the file has no bytes for it."""
        header = self.by_name.get(name)
        return b"" if header is None else self.bytes_of(header)

    def bytes_of(self, header: Header) -> bytes:
        return b"" if header.kind in NO_BYTES else self.data[header.offset : header.offset + header.size]

    def symbols(self) -> list[Symbol]:
        """Read the symbol table in order; empty if there is none. Raises CubinError."""
        header = self.by_name.get(".symtab")
        if header is None:
            return []
        if header.kind != _SHT_SYMTAB or header.link >= len(self.headers) or header.size % _SYMBOL.size:
            raise _damaged(
                f".symtab is not a symbol table: type {header.kind} (must be {_SHT_SYMTAB}), {header.size:,} bytes "
                f"(must be a multiple of {_SYMBOL.size}), strings in section {header.link} of {len(self.headers)}"
            )
        strings = self.bytes_of(self.headers[header.link])
        new = tuple.__new__  # takes half the time of Symbol()
        try:
            return [
                new(
                    Symbol,
                    (
                        strings[at : strings.index(b"\0", at)].decode(),
                        info & 15,
                        section,
                        info >> 4,
                        other,
                        value,
                        size,
                    ),
                )
                for at, info, other, section, value, size in _SYMBOL.iter_unpack(self.bytes_of(header))
            ]
        except ValueError:
            raise _damaged("the name of a symbol cannot be read") from None

    def relocations(self, name: str) -> Iterator[Relocation]:
        """Read the relocations of a section by its name, from .rela{name} and .rel{name}."""
        for prefix, width in ((".rela", 24), (".rel", 16)):
            content = self.content(prefix + name)
            for position in range(0, len(content) - width + 1, width):
                offset, info = _RELOCATION.unpack_from(content, position)
                addend = _ADDEND.unpack_from(content, position + 16)[0] if width == 24 else 0
                yield Relocation(offset, info & 0xFFFFFFFF, info >> 32, addend)

    def attributes(self, name: str) -> list[Attribute]:
        """Read the records of a .nv.info section: u8 format, u8 attribute, then a value of 0, 1, 2 or more bytes.

        Raises CubinError if a format is unknown or a value exceeds the section.
        """
        content = self.content(name)
        attributes: list[Attribute] = []
        position = 0
        while position + 4 <= len(content):
            form, kind, short = _ATTRIBUTE.unpack_from(content, position)
            start = position + 4
            if form == 4:  # EIFMT_SVAL: `short` is the number of bytes that follow
                position = start + short
                if position > len(content):
                    raise _damaged(f"{name}: the attribute at byte {start - 4} ends at {position} of {len(content)}")
                attributes.append(Attribute(kind, content[start:position]))
            elif form in (1, 2, 3):  # no value, u8, u16
                attributes.append(Attribute(kind, content[start - 2 : start]))
                position = start
            else:
                raise CubinError(f"{name}: attribute format {form} at byte {position} is not known")
        return attributes


def read_elf(data: bytes) -> Elf:
    """Read the header and the section table. Raises CubinError if this is not a whole ELF image of a CUDA program."""
    check_header(data)
    for label, _, end in table_extents(data):
        if end > len(data):
            raise CubinError(f"truncated: the table of {label} ends at byte {end:,} of {len(data):,}")
    (table,) = struct.unpack_from("<Q", data, 40)
    (flags,) = struct.unpack_from("<I", data, 48)
    entry_bytes, count, names_at = struct.unpack_from("<3H", data, 58)
    if entry_bytes != _SECTION.size or names_at >= count:
        raise _damaged(
            f"{count} section headers of {entry_bytes} bytes (must be {_SECTION.size}), "
            f"their names in section {names_at} (must be below {count})"
        )
    raw = list(_SECTION.iter_unpack(data[table : table + count * _SECTION.size]))
    strings = data[raw[names_at][3] : raw[names_at][3] + raw[names_at][4]]
    new = tuple.__new__  # takes half the time of Header(); a sweep reads thousands of images
    try:
        headers = tuple(
            [
                new(Header, (strings[at : strings.index(b"\0", at)].decode(), kind, flag, offset, size, link, align))
                for at, kind, flag, offset, size, link, align in raw
            ]
        )
    except ValueError:
        raise _damaged("the name of a section cannot be read") from None
    for name, kind, _, offset, size, _, _ in headers:
        if offset + size > len(data) and kind not in NO_BYTES:
            raise CubinError(f"truncated: section {name} ends at byte {offset + size:,} of {len(data):,}")
    return Elf(data, flags, data[8], headers, {header.name: header for header in reversed(headers)})


def check_header(data: bytes) -> None:
    """Raise CubinError if the first bytes are not the header of a CUDA ELF image."""
    if data[:4] != MAGIC:
        raise CubinError("not an ELF image; give a cubin or PTX file")
    if len(data) < HEADER_BYTES:
        raise CubinError(f"truncated: {len(data)} bytes, an ELF header alone takes {HEADER_BYTES}")
    (machine,) = struct.unpack_from("<H", data, 18)
    if machine != EM_CUDA:
        raise CubinError(f"an ELF image for machine {machine}, not for NVIDIA GPUs ({EM_CUDA})")
    if data[4] != _CLASS_64:
        raise CubinError("a 32-bit ELF image; cubins have 64 bits")


def table_extents(data: bytes) -> tuple[tuple[str, int, int], ...]:
    """Locate the program and section header tables as (label, start, end), with byte offsets in the file."""
    segments, sections = struct.unpack_from("<QQ", data, 32)
    segment_bytes, segment_count, section_bytes, section_count = struct.unpack_from("<4H", data, 54)
    return (
        ("program headers", segments, segments + segment_bytes * segment_count),
        ("section headers", sections, sections + section_bytes * section_count),
    )


def values_by_symbol(attributes: Iterable[Attribute], kind: int) -> dict[int, int]:
    """Map the index of each symbol to the symbol's value of one attribute; of several values, the first counts."""
    values: dict[int, int] = {}
    for attribute in attributes:
        if attribute.kind == kind and len(attribute.value) >= 8:
            symbol, value = _TWO_WORDS.unpack_from(attribute.value)
            values.setdefault(symbol, value)
    return values


def kernel_names(elf: Elf) -> list[str]:
    """List the kernels of an image. Device functions have code, too, but only kernels have a constant bank 0, which
    holds their parameters."""
    texts = [header.name[6:] for header in elf.headers if header.name.startswith(".text.")]
    return [text for text in texts if f".nv.constant0.{text}" in elf.by_name]


def named_symbols(symbols: Sequence[Symbol]) -> tuple[dict[str, int], set[str]]:
    """Map each symbol's name to its index, and list the undefined names, which another image must define."""
    indices: dict[str, int] = {}
    undefined = set()
    for index, (name, kind, section, *_) in enumerate(symbols):
        if name and kind != STT_SECTION:
            indices.setdefault(name, index)
            if section == SHN_UNDEF and not name.startswith(LINKERS_OWN):
                undefined.add(name)
    return indices, undefined


def relocations_of(kernel: str, elf: Elf, symbols: Sequence[Symbol]) -> tuple[tuple[int, int, str], ...]:
    """List (byte offset, type, symbol) of each relocation in a kernel's code; {kernel} replaces the kernel's own
    name."""
    relocations: list[tuple[int, int, str]] = []
    for offset, kind, index, _ in elf.relocations(f".text.{kernel}"):
        name = symbols[index].name if index < len(symbols) else str(index)
        relocations.append((offset, kind, KERNEL if name == kernel else name))
    return tuple(relocations)


def words(data: bytes) -> tuple[int, ...]:
    """Split bytes into u32 values; drop an incomplete last one."""
    return struct.unpack(f"<{len(data) // 4}I", data[: len(data) // 4 * 4])


def _damaged(what: str) -> CubinError:
    return CubinError(f"damaged: {what}; is the file complete?")
