"""Source and PTX lines of instructions, from a cubin that Triton made with -lineinfo."""

from __future__ import annotations

import inspect
from dataclasses import replace
from pathlib import Path

import pytest
import triton_kernels
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
