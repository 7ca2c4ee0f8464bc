"""Which source line, and which PTX line, each instruction of a kernel comes from: the DWARF line tables of a cubin.

ptxas -lineinfo writes two: .debug_line (the source that the PTX's .loc name) and .nv_debug_line_sass (lines of the
PTX text). Reads the image alone. An image without them has no lines, which is no error.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tritonhook.cubin.image import Cubin
from tritonhook.cubin.sass import INSTRUCTION_BYTES

_SOURCE, _PTX = ".debug_line", ".nv_debug_line_sass"


@dataclass(frozen=True, slots=True)
class Lines:
    """Of one kernel, by instruction index. files: paths as the compiler wrote them.

    source: (index into files, line); ptx: the line of the PTX text, from 1. None: the table says nothing there.
    """

    files: tuple[str, ...]
    source: tuple[tuple[int, int] | None, ...]
    ptx: tuple[int | None, ...]

    @property
    def known(self) -> bool:
        return any(self.source) or any(self.ptx)


def read_lines(cubin: Cubin, kernel: str) -> Lines:
    """The lines of a kernel's instructions. A damaged table counts as none: the code can be read without it."""
    count = len(cubin.text(kernel)) // INSTRUCTION_BYTES
    files: list[str] = []
    source: list[tuple[int, int] | None] = [None] * count
    for index, (path, line) in _table(cubin, kernel, _SOURCE, count):
        if path not in files:
            files.append(path)
        source[index] = (files.index(path), line)
    ptx: list[int | None] = [None] * count
    for index, (_, line) in _table(cubin, kernel, _PTX, count):
        ptx[index] = line
    return Lines(tuple(files), tuple(source), tuple(ptx))


def _table(cubin: Cubin, kernel: str, section: str, count: int) -> list[tuple[int, tuple[str, int]]]:
    """(instruction index, (file, line)) of every instruction that the table names."""
    from elftools.common.exceptions import DWARFError, ELFError
    from elftools.construct import ConstructError

    try:
        return list(_rows(cubin, kernel, section, count))
    except (DWARFError, ELFError, ConstructError, struct.error, *_DAMAGE):
        return []


_DAMAGE = (AttributeError, IndexError, KeyError, TypeError, ValueError, OverflowError)


def _rows(cubin: Cubin, kernel: str, section: str, count: int) -> Iterator[tuple[int, tuple[str, int]]]:
    from elftools.elf.elffile import ELFFile

    elf = ELFFile(io.BytesIO(cubin.data))
    found = elf.get_section_by_name(section)
    if found is None:
        return
    # A sequence begins with DW_LNE_set_address, which the linker fills in: its relocation names the function.
    owners = _functions(elf, section)
    for number, (program, states) in enumerate(_sequences(found.data())):
        if number >= len(owners) or owners[number] not in (kernel, f".text.{kernel}"):
            continue
        names = _files(program)
        for state, following in zip(states, [*states[1:], None], strict=True):
            if state.end_sequence:
                continue
            end = following.address if following is not None else count * INSTRUCTION_BYTES
            for index in range(state.address // INSTRUCTION_BYTES, min(count, -(-end // INSTRUCTION_BYTES))):
                yield index, (names.get(state.file, ""), state.line)


def _functions(elf: Any, section: str) -> list[str]:
    """The functions whose addresses the line table is waiting for, in order."""
    table = elf.get_section_by_name(f".rela{section}") or elf.get_section_by_name(f".rel{section}")
    symbols = elf.get_section_by_name(".symtab")
    if table is None or symbols is None:
        return []
    entries = sorted((r["r_offset"], r["r_info_sym"]) for r in table.iter_relocations())
    named = [symbols.get_symbol(index) for _, index in entries]
    return [symbol.name or elf.get_section(symbol["st_shndx"]).name for symbol in named]


def _sequences(data: bytes) -> Iterator[tuple[Any, list[Any]]]:
    """Each sequence of rows with the line program it is of."""
    from elftools.dwarf.dwarfinfo import DebugSectionDescriptor, DwarfConfig, DWARFInfo
    from elftools.dwarf.structs import DWARFStructs

    sections = DWARFInfo.__init__.__code__.co_varnames[2 : DWARFInfo.__init__.__code__.co_argcount]
    table = DebugSectionDescriptor(io.BytesIO(data), _SOURCE, 0, len(data), 0)
    # All sections but this one are missing; pyelftools asks for no other to decode a line program.
    given = dict.fromkeys(sections) | {"debug_line_sec": table}
    dwarf = DWARFInfo(DwarfConfig(little_endian=True, machine_arch="", default_address_size=8), **given)
    structs = DWARFStructs(little_endian=True, dwarf_format=32, address_size=8)
    position = 0
    while position + 4 <= len(data):
        program = dwarf._parse_line_program_at_offset(position, structs)
        rows: list[Any] = []
        for entry in program.get_entries():
            if entry.state is not None:
                rows.append(entry.state)
                if entry.state.end_sequence:
                    yield program, rows
                    rows = []
        position += program.header["unit_length"] + 4


def _files(program: Any) -> dict[int, str]:
    """Paths by their number in the table (DWARF 2 to 4 count from 1)."""
    folders = [name.decode("utf-8", "replace") for name in program.header["include_directory"]]
    found = {}
    for number, entry in enumerate(program.header["file_entry"], 1):
        name = entry.name.decode("utf-8", "replace")
        folder = folders[entry.dir_index - 1] if 0 < entry.dir_index <= len(folders) else ""
        found[number] = f"{folder}/{name}" if folder and not name.startswith("/") else name
    return found
