"""Damaged cubins: everything that reads one gives a value, or an error of tritonhook's own."""

from __future__ import annotations

import pytest
from damage import damaged_bytes, no_hang
from hypothesis import given, settings
from hypothesis import strategies as st
from repository import GOLDEN

from tritonhook.cubin.byte_map import file_layout
from tritonhook.cubin.elf import read_elf
from tritonhook.cubin.image import Cubin
from tritonhook.cubin.line_info import read_lines
from tritonhook.cubin.sass import parse_nvdisasm
from tritonhook.cubin.shipped import embedded_cubins
from tritonhook.cubin.summary import summarise_image
from tritonhook.errors import CubinError, TritonHookError
from tritonhook.memory.prediction import stack_needs
from tritonhook.ptx.module import Ptx
from tritonhook.ptxas.tool import find_ptxas
from tritonhook.ptxas.toolchain import Assembled, assemble

from .conftest import ABUSE

FILES = ("sm_80.module", "sm_90a.module", "sm_100a.tcgen05.cutlass", "sm_120a.tensor_load.cluster")


def read_all(data: bytes) -> None:
    """Read a cubin in every way that needs no other program."""
    with no_hang():
        try:
            embedded_cubins(data)
            cubin = Cubin.from_bytes(data, "damaged")
            for kernel in cubin.kernels:
                cubin.text(kernel)
                file_layout(cubin, kernel)
                read_lines(cubin, kernel)
            assert set(cubin.resources) == set(cubin.kernels)
            stack_needs(cubin)
            summarise_image(data, {})
        except TritonHookError:
            pass


@pytest.fixture(scope="module")
def with_lines() -> bytes:
    """A cubin with both line tables."""
    made = assemble(find_ptxas("12.8.93"), Ptx((GOLDEN / "triton.sm_90.ptx").read_text()), ("-lineinfo",))
    assert isinstance(made, Assembled)
    return made.cubin.data


@pytest.mark.parametrize("name", FILES)
def test_a_damaged_cubin_is_read_or_refused(name: str) -> None:
    whole = (GOLDEN / f"{name}.cubin").read_bytes()
    settings(ABUSE, max_examples=2 * ABUSE.max_examples)(given(damaged_bytes(whole))(read_all))()


def test_damaged_headers_are_read_or_refused() -> None:
    """Most bytes of a file are code; here damage is where the structure is."""
    whole = (GOLDEN / "sm_90a.module.cubin").read_bytes()
    table = int.from_bytes(whole[40:48], "little")
    odd = st.sampled_from((0, 1, 0x7F, 0x80, 0xFF))

    @settings(ABUSE, max_examples=5 * ABUSE.max_examples)
    @given(st.lists(st.tuples(st.integers(0, 63) | st.integers(table, len(whole) - 1), odd), min_size=1, max_size=4))
    def holds(changes: list[tuple[int, int]]) -> None:
        data = bytearray(whole)
        for at, value in changes:
            data[at] = value
        read_all(bytes(data))

    holds()


def test_a_damaged_line_table_counts_as_none(with_lines: bytes) -> None:
    (at, size), *_ = [(h.offset, h.size) for h in read_elf(with_lines).headers if h.name == ".debug_line"]

    @settings(ABUSE, max_examples=3 * ABUSE.max_examples)
    @given(damaged_bytes(with_lines[at : at + size]))
    def holds(table: bytes) -> None:
        data = with_lines[:at] + table.ljust(size, b"\0")[:size] + with_lines[at + size :]
        cubin = Cubin.from_bytes(data, "damaged")
        with no_hang():
            read_lines(cubin, cubin.kernels[0])

    holds()


@pytest.mark.parametrize("at", range(64))
@pytest.mark.parametrize("value", [0, 255])
def test_each_byte_of_the_header_of_a_line_table(with_lines: bytes, at: int, value: int) -> None:
    """line_range 0 divided by zero; a length of 0xffffffff is the mark of another format."""
    start = next(h.offset for h in read_elf(with_lines).headers if h.name == ".debug_line")
    data = bytearray(with_lines)
    data[start + at] = value
    cubin = Cubin.from_bytes(bytes(data), "damaged")
    with no_hang():
        read_lines(cubin, cubin.kernels[0])


def test_damaged_output_of_nvdisasm_is_refused() -> None:
    whole = (GOLDEN / "sm_90a.exp.plain.json").read_bytes()
    cubin = Cubin.from_bytes((GOLDEN / "sm_90a.exp.plain.cubin").read_bytes(), "golden")
    texts = {kernel: cubin.text(kernel) for kernel in cubin.kernels}

    @settings(ABUSE)
    @given(damaged_bytes(whole))
    def holds(output: bytes) -> None:
        with no_hang():
            try:
                for sass in parse_nvdisasm(output, texts, {}).values():
                    sass.loops  # noqa: B018
            except TritonHookError:
                pass

    holds()


@settings(ABUSE)
@given(st.binary(max_size=200).map(lambda data: b"\x7fELF" + data))
def test_any_bytes_after_the_magic_are_refused(data: bytes) -> None:
    with no_hang(), pytest.raises(CubinError):
        Cubin.from_bytes(data, "damaged")
