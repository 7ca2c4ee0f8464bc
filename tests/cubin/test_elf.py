"""The ELF reader: it agrees with pyelftools, and damaged bytes are a CubinError and nothing else."""

from __future__ import annotations

import io
import struct
from functools import cache

import pytest
from elftools.elf.elffile import ELFFile
from made_elf import Named, Part, attribute, made_elf, relocation
from repository import GOLDEN

from tritonhook.cubin.elf import Attribute, read_elf, values_by_symbol, words
from tritonhook.cubin.image import Cubin
from tritonhook.cubin.summary import summarise_image
from tritonhook.errors import CubinError

NAMES = sorted(path.stem for path in GOLDEN.glob("*.cubin"))


@cache
def image(name: str) -> bytes:
    return (GOLDEN / f"{name}.cubin").read_bytes()


def changed(name: str, *edits: tuple[str, int, int]) -> bytes:
    """The image with values written into it: (struct format, position, value)."""
    data = bytearray(image(name))
    for form, position, value in edits:
        struct.pack_into(form, data, position, value)
    return bytes(data)


def entry(name: str, section: str) -> int:
    """Where the section's entry in the section table begins."""
    (table,) = struct.unpack_from("<Q", image(name), 40)
    return int(table) + 64 * [header.name for header in read_elf(image(name)).headers].index(section)


# --- whole images --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_sections_and_symbols_are_those_of_pyelftools(name: str) -> None:
    elf, other = read_elf(image(name)), ELFFile(io.BytesIO(image(name)))
    sections = list(other.iter_sections())
    assert [h.name for h in elf.headers] == [s.name for s in sections]
    places = [(h.flags, h.offset, h.size, h.link, h.align) for h in elf.headers]
    fields = [f"sh_{field}" for field in ("flags", "offset", "size", "link", "addralign")]
    assert places == [tuple(s[field] for field in fields) for s in sections]
    named = [h for h in elf.headers if h.name]
    assert [elf.content(h.name) for h in named if h.kind != 8] == [
        s.data() for s in sections if s.name and s["sh_type"] != "SHT_NOBITS"
    ]
    symbols = list(other.get_section_by_name(".symtab").iter_symbols())
    assert [s.name for s in elf.symbols()] == [s.name for s in symbols]
    assert [s.section == 0 for s in elf.symbols()] == [s["st_shndx"] == "SHN_UNDEF" for s in symbols]
    assert [(s.value, s.size) for s in elf.symbols()] == [(s["st_value"], s["st_size"]) for s in symbols]
    bindings = ["STB_LOCAL", "STB_GLOBAL", "STB_WEAK"]
    assert [bindings[s.binding] for s in elf.symbols()] == [s["st_info"]["bind"] for s in symbols]
    assert [s.kind == 3 for s in elf.symbols()] == [s["st_info"]["type"] == "STT_SECTION" for s in symbols]


@pytest.mark.parametrize("name", NAMES)
def test_relocations_are_those_of_pyelftools(name: str) -> None:
    elf, other = read_elf(image(name)), ELFFile(io.BytesIO(image(name)))
    for section in other.iter_sections():
        if section.name.startswith((".rela.", ".rel.")) and section["sh_type"] in ("SHT_RELA", "SHT_REL"):
            target = section.name.removeprefix(".rela").removeprefix(".rel")
            expected = [
                (r["r_offset"], r["r_info_type"], r["r_info_sym"], r["r_addend"] if r.is_RELA() else 0)
                for r in section.iter_relocations()
            ]
            assert [tuple(r) for r in elf.relocations(target)] == expected


def test_values_are_by_symbol_and_the_first_counts() -> None:
    def pair(symbol: int, value: int) -> bytes:
        return struct.pack("<II", symbol, value)

    attributes = [Attribute(0x2F, pair(3, 40)), Attribute(0x2F, pair(3, 41)), Attribute(0x2F, b"\1\2")]
    attributes += [Attribute(0x11, pair(3, 8)), Attribute(0x2F, pair(4, 50) + b"more")]
    assert values_by_symbol(attributes, 0x2F) == {3: 40, 4: 50}
    assert words(b"\1\0\0\0\2\0\0\0\3") == (1, 2)


# --- damaged images ------------------------------------------------------------------------------

NAME = "sm_120a.tensor_load.cluster"


@pytest.mark.parametrize(
    "edits, message",
    [
        ([("<B", 4, 1)], "32-bit ELF image"),
        ([("<H", 18, 62)], "for machine 62, not for NVIDIA GPUs"),
        ([("<H", 58, 40)], "section headers of 40 bytes"),
        ([("<H", 62, 9999)], "names in section 9999"),
        ([("<H", 60, 0)], "damaged: 0 section headers"),
        ([("<Q", 32, 1 << 60)], "truncated: the table of program headers ends at byte"),
        ([("<Q", 40, 1 << 60)], "truncated: the table of section headers ends at byte"),
        ([("<I", entry(NAME, ".symtab"), 1 << 30)], "the name of a section cannot be read"),
        ([("<I", entry(NAME, ".symtab") + 40, 200)], "symtab is not a symbol table"),
        ([("<Q", entry(NAME, ".symtab") + 32, 25)], r"symtab is not a symbol table: type 2 \(must be 2\), 25 bytes"),
        ([("<I", entry(NAME, ".symtab") + 40, 3)], "the name of a symbol cannot be read"),
        ([("<Q", entry(NAME, ".text.load") + 24, 1 << 40)], r"truncated: section \.text\.load ends at byte"),
    ],
)
def test_damage_is_named(edits: list[tuple[str, int, int]], message: str) -> None:
    data = changed(NAME, *edits)
    for read in (Cubin.from_bytes, lambda data: summarise_image(data, {})):
        with pytest.raises(CubinError, match=message):
            read(data)


def test_names_that_are_not_text_are_damage() -> None:
    elf = read_elf(image(NAME))
    data = image(NAME).replace(b"\0.symtab\0", b"\0.sym\xff\xfeb\0")
    assert data != image(NAME) and ".symtab" in elf.by_name
    with pytest.raises(CubinError, match="the name of a section cannot be read"):
        read_elf(data)


@pytest.mark.parametrize(
    "content, message",
    [
        (b"\x05\x2f\0\0", r"\.nv\.info: attribute format 5 at byte 0 is not known"),
        (b"\x04\x2f\x08\x00", r"\.nv\.info: the attribute at byte 0 ends at \d+ of"),
    ],
)
def test_damaged_attributes_are_named(content: bytes, message: str) -> None:
    header = read_elf(image(NAME)).by_name[".nv.info"]
    data = bytearray(image(NAME))
    data[header.offset : header.offset + 4] = content
    struct.pack_into("<Q", data, entry(NAME, ".nv.info") + 32, 4)  # the section ends behind them
    with pytest.raises(CubinError, match=message):
        summarise_image(bytes(data), {})


# --- images made by hand -------------------------------------------------------------------------


def test_relocations_of_both_kinds_are_read_entry_by_entry() -> None:
    with_addend = relocation(8, 2, 3, -5) + relocation(24, 0x38, 1, 7) + b"cut off"
    without = relocation(16, 1, 2) + relocation(40, 4, 0xFFFF_FFFF)
    elf = read_elf(
        made_elf([Part(".text.k", bytes(64)), Part(".rela.text.k", with_addend), Part(".rel.text.k", without)])
    )
    assert [tuple(one) for one in elf.relocations(".text.k")] == [
        (8, 2, 3, -5),
        (24, 0x38, 1, 7),
        (16, 1, 2, 0),
        (40, 4, 0xFFFF_FFFF, 0),
    ]


def test_each_form_of_an_attribute_has_its_value() -> None:
    records = [(1, b"\0\0"), (2, b"\7\0"), (3, b"\1\2"), (4, b""), (4, b"abc"), (4, b"12345678"), (3, b"\xff\xff")]
    content = b"".join(attribute(0x40 + n, value, form) for n, (form, value) in enumerate(records))
    for rest in (b"", b"\4\1\2"):  # what is shorter than a record
        elf = read_elf(made_elf([Part(".nv.info.k", content + rest)]))
        assert elf.attributes(".nv.info.k") == [Attribute(0x40 + n, value) for n, (_, value) in enumerate(records)]
    for bad in (attribute(1, b"ab")[:-1], b"\5\1\0\0", b"\0\1\0\0"):
        with pytest.raises(CubinError, match=r"\.nv\.info\.k"):
            read_elf(made_elf([Part(".nv.info.k", content + bad)])).attributes(".nv.info.k")


def test_symbols_and_sections_keep_each_field() -> None:
    parts = [Part(".text.k", b"abcd", 1, 6, 128), Part(".nv.shared.k", kind=8, flags=3, align=16, size=4096)]
    symbols = [Named("k", ".text.k", 2, 1, 0x10, 0, 4), Named("s", ".nv.shared.k", 1, 2, 3, 64, 1024), Named("u")]
    elf = read_elf(made_elf(parts, symbols, 0x1234, 8))
    assert (elf.flags, elf.abi) == (0x1234, 8)
    assert [(h.name, h.kind, h.flags, h.size, h.align) for h in elf.headers[:3]] == [
        ("", 0, 0, 0, 0),
        (".text.k", 1, 6, 4, 128),
        (".nv.shared.k", 8, 3, 4096, 16),
    ]
    assert [tuple(one) for one in elf.symbols()[1:]] == [
        ("k", 2, 1, 1, 0x10, 0, 4),
        ("s", 1, 2, 2, 3, 64, 1024),
        ("u", 1, 0, 1, 0, 0, 0),
    ]
    assert elf.content(".text.k") == b"abcd" and elf.content(".nv.shared.k") == b""
