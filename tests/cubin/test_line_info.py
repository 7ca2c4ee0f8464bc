"""Source and PTX lines of instructions, from a cubin that Triton made with -lineinfo."""

from __future__ import annotations

import inspect
import struct
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import triton_kernels
from made_elf import Named, Part, made_elf, relocation
from repository import GOLDEN

from tritonhook.cubin.image import Cubin
from tritonhook.cubin.line_info import read_lines


@pytest.mark.parametrize("arch", [90, 100])
def test_instructions_know_their_source_and_their_ptx(arch: int, triton_cache: Path) -> None:
    compiled = triton_kernels.compile_kernel(triton_kernels.fused_kernel, arch)
    cubin = Cubin.from_bytes(compiled.asm["cubin"])
    lines = read_lines(cubin, "fused_kernel")
    assert lines.known and len(lines.source) == len(lines.ptx) == len(cubin.text("fused_kernel")) // 16
    own = next(number for number, path in enumerate(lines.files) if path.endswith("/triton_kernels.py"))
    text, first = inspect.getsourcelines(triton_kernels.fused_kernel.fn)
    said = {at[1] for at in lines.source if at is not None and at[0] == own}
    assert said and said <= set(range(first, first + len(text)))
    # Then the PTX lines hold instructions that make such code
    ptx = compiled.asm["ptx"].splitlines()
    named = " ".join(ptx[line - 1] for line in lines.ptx if line)
    assert "ld.global" in named and "st.global" in named and "ret;" in named


def test_a_cubin_without_lines_has_none() -> None:
    cubin = Cubin.from_bytes((GOLDEN / "sm_90a.exp.plain.cubin").read_bytes())
    lines = read_lines(cubin, cubin.kernels[0])
    assert not lines.known and set(lines.source) == {None}


def test_a_damaged_table_counts_as_none(triton_cache: Path) -> None:
    cubin = Cubin.from_bytes(triton_kernels.compile_kernel().asm["cubin"])
    section = next(s for s in cubin.sections if s.name == ".debug_line")
    start, end = section.file_range
    for filler in (b"\xff", b"\x00", b"\x41"):
        data = cubin.data[:start] + filler * (end - start) + cubin.data[end:]
        lines = read_lines(replace(cubin, data=data), "add_kernel")
        assert not any(lines.source) and any(lines.ptx)


def test_a_table_that_divides_by_zero_counts_as_none(triton_cache: Path) -> None:
    cubin = Cubin.from_bytes(triton_kernels.compile_kernel().asm["cubin"])
    start, _ = next(s for s in cubin.sections if s.name == ".debug_line").file_range
    data = bytearray(cubin.data)
    assert data[start + 4] == 2 and data[start + 13] > 0  # DWARF 2; line_range
    data[start + 13] = 0
    assert not any(read_lines(replace(cubin, data=bytes(data)), "add_kernel").source)


# --- tables made by hand -------------------------------------------------------------------------


def line_table(*sequences: bytes, folders: Sequence[str] = (), files: Sequence[tuple[str, int]] = ()) -> bytes:
    """A line program of DWARF 2. files: names, each with the number of its folder."""
    named = b"".join(one.encode() + b"\0" for one in folders) + b"\0"
    named += b"".join(name.encode() + bytes([0, folder, 0, 0]) for name, folder in files) + b"\0"
    prologue = bytes([1, 1, 0xFB, 14, 10, 0, 1, 1, 1, 1, 0, 0, 0, 1]) + named
    rest = struct.pack("<HI", 2, len(prologue)) + prologue + b"".join(sequences)
    return struct.pack("<I", len(rest)) + rest


def rows(*steps: tuple[int, int, int], end: int) -> bytes:
    """A sequence from address 0 on. steps: bytes on, file, lines on."""
    code = b"\0\x09\x02" + bytes(8)
    for advance, file, line in steps:
        code += bytes([2, advance, 4, file, 3, line, 1])
    return code + bytes([2, end, 0, 1, 1])


def test_each_instruction_has_the_line_of_the_row_before_it() -> None:
    source = line_table(
        rows((0, 1, 9), (16, 2, 4), (32, 1, 1), end=16),
        rows((0, 3, 50), end=32),
        folders=["/src", "rel"], files=[("a.py", 1), ("b.py", 2), ("c.py", 0), ("/abs.py", 1)],
    )  # fmt: skip
    source += line_table(rows((16, 1, 6), end=16), files=[("/late.py", 0)])
    ptx = line_table(rows((0, 1, 3), (20, 1, 2), end=44), files=[("", 0)])
    address = 3 + 0  # of an address in a sequence that begins a program
    starts = [source.index(b"\0\x09\x02") + address, 0, 0]
    starts[1] = source.index(b"\0\x09\x02", starts[0]) + address
    starts[2] = source.index(b"\0\x09\x02", starts[1]) + address
    places = relocation(starts[2], 2, 2, 0) + relocation(starts[0], 2, 1, 0) + relocation(starts[1], 2, 3, 0)
    parts = [
        Part(".text.k", bytes(80)), Part(".nv.constant0.k"), Part(".text.z", bytes(32)), Part(".nv.constant0.z"),
        Part(".debug_line", source), Part(".rela.debug_line", places, 4),
        Part(".nv_debug_line_sass", ptx), Part(".rel.nv_debug_line_sass", relocation(4, 2, 2), 9),
    ]  # fmt: skip
    symbols = [Named("k", ".text.k", 2), Named("", ".text.k", 3, 0), Named("z", ".text.z", 2)]
    cubin = Cubin.from_bytes(made_elf(parts, symbols))
    lines = read_lines(cubin, "k")
    assert lines.files == ("/src/a.py", "rel/b.py", "/late.py")
    assert lines.source == ((0, 10), (2, 7), (1, 14), (0, 15), None)
    assert lines.ptx == (4, 6, 6, 6, None) and lines.known
    other = read_lines(cubin, "z")
    assert (other.files, other.source, other.ptx) == (("c.py",), ((0, 51), (0, 51)), (None, None)) and other.known
