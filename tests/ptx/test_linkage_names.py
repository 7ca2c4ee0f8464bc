"""A rename in modules for debuggers: the linkage names in the DWARF bytes follow it, and the code stays the same."""

from __future__ import annotations

import io
import re
from typing import Any

import pytest
from elftools.dwarf.dwarfinfo import DebugSectionDescriptor, DwarfConfig, DWARFInfo
from ptx_modules import HEADER, kernel
from repository import GOLDEN

from tritonhook.errors import PtxError
from tritonhook.ptx.linkage_names import linkage_edits, linkage_names
from tritonhook.ptx.module import Ptx, edited
from tritonhook.ptxas.toolchain import Assembled, Toolchain

ARCHS = ("sm_90", "sm_100")
SCALE = "_Z5scaleIfEvPT_i"
NEW_NAMES = ("cutlass_add", "sum", "s", "ad", "adx", "a_name_of_more_than_thirty_two_letters")


def debug_module(arch: str) -> Ptx:
    """By nvcc -G; each architecture writes the bytes in its own way."""
    text = (GOLDEN / f"nvcc_debug.{arch}.ptx").read_text()
    return Ptx(text.replace(".version 9.0", ".version 8.7"))  # ptxas 12.8 reads that


def section(ptx: Ptx, name: str) -> bytes:
    """The bytes of a section, read apart from tritonhook; symbols are 0."""
    body = re.search(rf"\.section\s+\{name}\s*{{([^}}]*)}}", ptx.text)
    found = b""
    for size, values in re.findall(r"\.b(8|16|32|64) (.*)", body[1] if body else ""):
        for value in values.split(","):
            found += (int(value) if value.strip().isdigit() else 0).to_bytes(int(size) // 8, "little")
    return found


def entries(ptx: Ptx) -> list[tuple[str, dict[str, Any]]]:
    """Every entry of .debug_info with its attributes; references are the number of the entry that they mean."""
    names = DWARFInfo.__init__.__code__.co_varnames[2 : DWARFInfo.__init__.__code__.co_argcount]
    given: dict[str, Any] = dict.fromkeys(names)
    for key, name in (("debug_info_sec", ".debug_info"), ("debug_abbrev_sec", ".debug_abbrev")):
        data = section(ptx, name)
        given[key] = DebugSectionDescriptor(io.BytesIO(data), name, 0, len(data), 0)
    found = [die for unit in DWARFInfo(DwarfConfig(True, "", 8), **given).iter_CUs() for die in unit.iter_DIEs()]
    numbers = {die.offset: number for number, die in enumerate(found)}
    return [
        (
            str(die.tag),
            {
                key: numbers[a.value + die.cu.cu_offset] if a.form.startswith("DW_FORM_ref") else a.value
                for key, a in die.attributes.items()
            },
        )
        for die in found
    ]


def public_names(ptx: Ptx) -> list[tuple[int, bytes]]:
    """The tables of names: for each name the number of its entry in .debug_info, which must exist."""
    offsets = [int(n) for n in re.findall(r"\.b32 (\d+)\n(?=\.b8)", ptx.text.partition(".debug_pubnames")[2])]
    data = section(ptx, ".debug_info")
    return [(offset, data[offset : offset + 1]) for offset in offsets if offset < len(data)]


def code(tools: Toolchain, ptx: Ptx, name: str) -> bytes:
    result = tools.assemble(ptx, ())
    assert isinstance(result, Assembled), result.stderr
    return result.cubin.text(name)


@pytest.mark.parametrize("new", NEW_NAMES)
@pytest.mark.parametrize("arch", ARCHS)
def test_code_of_a_renamed_kernel_is_the_code_before(tools: Toolchain, arch: str, new: str) -> None:
    before = debug_module(arch)
    after = before.rename_entries({"add": new})
    assert code(tools, after, new) == code(tools, before, "add")
    assert code(tools, after, SCALE) == code(tools, before, SCALE)


@pytest.mark.parametrize("arch", ARCHS)
def test_without_its_linkage_name_the_code_is_another(tools: Toolchain, arch: str) -> None:
    """The reason for all of this: if this fails, ptxas has changed."""
    before = debug_module(arch)
    edits = linkage_edits(before.tokens, {"add": "sum"})
    plain = edited(before, edits)  # the bytes alone: the entry is still `add`
    assert linkage_names(plain.tokens) == ["_Z6squaref", "sum", SCALE]
    assert code(tools, plain, "add") != code(tools, before, "add")


@pytest.mark.parametrize("new", NEW_NAMES)
@pytest.mark.parametrize("arch", ARCHS)
def test_debug_entries_differ_in_the_name_only(arch: str, new: str) -> None:
    before = debug_module(arch)
    after = before.rename_entries({"add": new, SCALE: f"{new}_scale"})
    expected = entries(before)
    for _, attributes in expected:
        linkage = attributes.get("DW_AT_MIPS_linkage_name")
        if linkage in (b"add", SCALE.encode()):
            attributes["DW_AT_MIPS_linkage_name"] = new.encode() + (b"" if linkage == b"add" else b"_scale")
    assert entries(after) == expected
    assert len(expected) > 20 and any(attributes.get("DW_AT_name") == b"add" for _, attributes in expected)
    assert len(section(after, ".debug_info")) == int.from_bytes(section(after, ".debug_info")[:4], "little") + 4
    # What a table of names points to begins with the same abbreviation as before.
    assert [kind for _, kind in public_names(after)] == [kind for _, kind in public_names(before)]
    assert after.rename_entries({new: "add", f"{new}_scale": SCALE}).text == before.text or len(new) == 1


def two_units(first: str, second: str) -> Ptx:
    """Two units of one function each. Behind each name stand references to places of its own unit and, as in link-time
    optimisation, to one of the other; a table has the name and such a place of each unit."""

    def text(name: str) -> str:
        return f".b8 {','.join(map(str, name.encode()))}\n.b8 0\n"

    names = (first, second)
    sizes = [31 + len(name) for name in names]
    begins = (0, sizes[0])
    places = [14 + len(name) for name in names]  # of the first reference, in its unit
    info, table = "", ""
    for i, name in enumerate(names):
        other = begins[1 - i] + places[1 - i]
        info += f".b32 {sizes[i] - 4}\n.b8 4,0\n.b32 .debug_abbrev\n.b8 8\n.b8 1\n.b8 2\n{text(name)}"
        info += f".b8 3\n.b32 12\n.b8 3\n.b32 {places[i]}\n.b8 4\n.b32 {other}\n.b8 0\n.b8 0\n"
        begin = f".debug_info+{begins[i]}" if i else ".debug_info"
        table += f".b32 99\n.b8 2,0\n.b32 {begin}\n.b32 {sizes[i]}\n"
        table += f".b32 12\n{text('source')}.b32 {places[i]}\n{text('place')}.b32 0\n"
    forms = ((17, 1), (46, 0, 135, 64, 8), (46, 0, 71, 19), (46, 0, 71, 16))  # a unit; a name; a reference of each kind
    abbreviations = "".join(f".b8 {i + 1},{','.join(map(str, form))},0,0\n" for i, form in enumerate(forms))
    sections = {"debug_abbrev": abbreviations + ".b8 0\n", "debug_info": info, "debug_pubnames": table}
    code = HEADER.replace("sm_90a", "sm_90a, debug") + "".join(map(kernel, names))
    return Ptx(code + "".join(f".section .{name}\n{{\n{body}}}\n" for name, body in sections.items()))


@pytest.mark.parametrize(("first", "second"), [("a_longer_first", "b"), ("a", "a_longer_second"), ("one", "three")])
def test_every_length_and_reference_of_several_units_follows(first: str, second: str) -> None:
    before = two_units("one", "second")
    assert linkage_names(before.tokens) == ["one", "second"]
    wanted = two_units(first, second)
    assert section(wanted, ".debug_info") != section(before, ".debug_info")
    assert before.rename_entries({"one": first, "second": second}).text == wanted.text


@pytest.mark.parametrize("arch", ARCHS)
def test_modules_that_are_for_no_debugger_keep_all_bytes(arch: str) -> None:
    before = Ptx(debug_module(arch).text.replace(", debug", ""))
    after = before.rename_entries({"add": "cutlass_add"})
    assert section(after, ".debug_info") == section(before, ".debug_info")
    assert linkage_names(before.tokens) == []


_ADD = r"\.b8 97(?:,|\n\.b8 )100(?:,|\n\.b8 )100\n\.b8 0\n"  # the linkage name; behind it that of the source
DAMAGE = [
    (r"\.section\s+\.debug_abbrev\s*{[^}]*}", "", ".+"),  # no abbreviations
    (r"(\.section\s+\.debug_info\s*{\s*\.b32) \d+", r"\1 99999999", ".+"),  # a unit that is too long
    (r"(\.section\s+\.debug_info\s*{\s*\.b32) \d+", r"\1 3", ".+"),
    (r"(\.section\s+\.debug_info\s*{\s*\.b32 \d+\s*\.b8) 2", r"\1 99", ".+"),  # an unknown version
    (
        r"(\.section\s+\.debug_info\s*{\s*)\.b32 (\d+)",
        r"\1.b16 \2,0",
        ".debug_info has no value of 4 bytes at offset 0",
    ),
    (r"(\.section\s+\.debug_info\s*{)", r"\1 17", "'17' in .debug_info is not a value"),
    (r"(\.section\s+\.debug_info\s*{)", r"\1 .b8 " + "9" * 5000, "'9{40}' in .debug_info is not a value"),
    (r"(\.section\s+\.debug_info\s*{)", r"\1 .b8 " + "9" * 21, "'9{21}' in .debug_info is not a value"),
    (_ADD, ".b16 97,100,100,0\n", ".+"),  # a name of other values
    (f"{_ADD}({_ADD})", r".b16 25697\n.b8 100,0\n\1", "the name 'add' is not spelled byte by byte"),
    (r"(\.section\s+\.debug_info\s*{[^}]*})", r"\1\n\1", "there are 2 sections .debug_info"),
]


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize(("pattern", "text", "why"), DAMAGE)
def test_damaged_debug_bytes_are_an_error(arch: str, pattern: str, text: str, why: str) -> None:
    damaged, count = re.subn(pattern, text, debug_module(arch).text, count=1)
    assert count == 1
    with pytest.raises(PtxError, match=f"debug information cannot be changed: {why}; compile.*or keep the name$"):
        Ptx(damaged).rename_entries({"add": "cutlass_add"})


def test_a_module_for_debuggers_without_debug_bytes_is_renamed() -> None:
    ptx = Ptx(HEADER.replace("sm_90a", "sm_90a, debug") + kernel("k"))
    assert ptx.rename_entries({"k": "n"}).entries == ("n",)
