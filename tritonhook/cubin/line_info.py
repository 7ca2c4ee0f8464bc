"""Read the DWARF line tables: the source line and the PTX line of each instruction of a kernel.

ptxas -lineinfo writes two tables: .debug_line (the source lines that .loc names in the PTX) and .nv_debug_line_sass
(lines of the PTX text). An image without them has no lines; that is not an error.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tritonhook._display import Brief
from tritonhook.cubin.elf import Elf, read_elf
from tritonhook.cubin.image import Cubin
from tritonhook.cubin.sass import INSTRUCTION_BYTES
from tritonhook.errors import CubinError
from tritonhook.ptx.locations import source_places

_SOURCE, _PTX = ".debug_line", ".nv_debug_line_sass"


@dataclass(frozen=True, slots=True, repr=False)
class Lines(Brief):
    """The lines of one kernel, by instruction index. files: paths as the compiler wrote them.

    source: (index into files, line). ptx: the line of the PTX text, from 1. None: the table has no line for it.
    """

    files: tuple[str, ...]
    source: tuple[tuple[int, int] | None, ...]
    ptx: tuple[int | None, ...]

    @property
    def known(self) -> bool:
        return any(self.source) or any(self.ptx)


def read_lines(cubin: Cubin, kernel: str, ptx: str | None = None) -> Lines:
    """Read the lines of a kernel's instructions. A damaged table counts as missing, because the code can be read
    without it.

    ptx: the text that the cubin was made from. With it, code of a library is attributed to the line that called it.
    """
    count = len(cubin.text(kernel)) // INSTRUCTION_BYTES
    lines: list[int | None] = [None] * count
    for index, (_, line) in _table(cubin, kernel, _PTX, count):
        lines[index] = line
    charged = source_places(ptx or "")
    files: list[str] = []
    source: list[tuple[int, int] | None] = [None] * count
    for index, place in _table(cubin, kernel, _SOURCE, count):
        own = lines[index]
        path, number = (charged(own) if own is not None else None) or place
        if path not in files:
            files.append(path)
        source[index] = (files.index(path), number)
    return Lines(tuple(files), tuple(source), tuple(lines))


def _table(cubin: Cubin, kernel: str, section: str, count: int) -> list[tuple[int, tuple[str, int]]]:
    """List (instruction index, (file, line)) of every instruction in a line table; empty if it is damaged."""
    from elftools.common.exceptions import DWARFError, ELFError
    from elftools.construct import ConstructError

    try:
        return list(_rows(cubin, kernel, section, count))
    except (CubinError, DWARFError, ELFError, ConstructError, struct.error, *_DAMAGE):
        return []


_DAMAGE = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)  # pyelftools raises these, too


def _rows(cubin: Cubin, kernel: str, section: str, count: int) -> Iterator[tuple[int, tuple[str, int]]]:
    elf = read_elf(cubin.data)
    # A sequence begins with DW_LNE_set_address. The linker fills in this address; its relocation names the function.
    owners = _functions(elf, section)
    for number, (program, states) in enumerate(_sequences(elf.content(section))):
        if number >= len(owners) or owners[number] not in (kernel, f".text.{kernel}"):
            continue
        names = _files(program)
        for state, following in zip(states, [*states[1:], None], strict=True):
            if state.end_sequence:
                continue
            end = following.address if following is not None else count * INSTRUCTION_BYTES
            for index in range(state.address // INSTRUCTION_BYTES, min(count, -(-end // INSTRUCTION_BYTES))):
                yield index, (names.get(state.file, ""), state.line)


def _functions(elf: Elf, section: str) -> list[str]:
    """List the functions whose addresses a linker writes into the line table, in the order of the table."""
    symbols = elf.symbols()
    waiting = sorted((relocation.offset, relocation.symbol) for relocation in elf.relocations(section))
    named = [symbols[index] for _, index in waiting]
    return [symbol.name or elf.headers[symbol.section].name for symbol in named]


def _sequences(data: bytes) -> Iterator[tuple[Any, list[Any]]]:
    """Yield (line program, its rows) for each sequence of a line table."""
    from elftools.dwarf.dwarfinfo import DebugSectionDescriptor, DwarfConfig, DWARFInfo
    from elftools.dwarf.structs import DWARFStructs

    sections = DWARFInfo.__init__.__code__.co_varnames[2 : DWARFInfo.__init__.__code__.co_argcount]
    table = DebugSectionDescriptor(io.BytesIO(data), _SOURCE, 0, len(data), 0)
    # Only this section is passed on: pyelftools needs no other to decode a line program.
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
    """Map each file number in the table to its path (DWARF 2 to 4 count from 1)."""
    folders = [name.decode("utf-8", "replace") for name in program.header["include_directory"]]
    paths = {}
    for number, entry in enumerate(program.header["file_entry"], 1):
        name = entry.name.decode("utf-8", "replace")
        folder = folders[entry.dir_index - 1] if 0 < entry.dir_index <= len(folders) else ""
        paths[number] = f"{folder}/{name}" if folder and not name.startswith("/") else name
    return paths
