"""Reading cubins: kernels, sections, resources; and a damaged image never passes for a whole one."""

from __future__ import annotations

import re
import struct
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from repository import GOLDEN

from tritonhook.cubin.image import Cubin, count_capmerc_records, owner_of
from tritonhook.cubin.resources import Resources
from tritonhook.errors import CubinError
from tritonhook.ptx.module import Ptx
from tritonhook.ptxas.toolchain import Toolchain

NAMES = sorted(path.stem for path in GOLDEN.glob("*.cubin"))
ARCHITECTURES = {"sm_80": 80, "sm_90a": 90, "sm_100a": 100, "sm_120a": 120}
HAS_CAPMERC = [name for name in NAMES if name.startswith(("sm_100a", "sm_120a"))]
SYSCALL = "__cuda_syscall_cp_async_bulk_tensor_2d_tile_unicast"


@cache
def image(name: str) -> bytes:
    return (GOLDEN / f"{name}.cubin").read_bytes()


@cache
def golden(name: str) -> Cubin:
    return Cubin.from_bytes(image(name), name)


def assemble(tools: Toolchain, *names: str, before: str = "", arguments: tuple[str, ...] = ()) -> Cubin:
    """A cubin of kernels with these names; each stores one value."""
    body = ".reg .b64 %rd<2>;\nld.param.u64 %rd1, [p];\nst.global.u32 [%rd1], 1;\nret;"
    entries = "".join(f".visible .entry {name}(.param .u64 p)\n{{\n{body}\n}}\n" for name in names)
    text = f".version 8.7\n.target sm_90a\n.address_size 64\n{before}{entries}"
    return tools.assemble_or_raise(Ptx(text), arguments).cubin


# --- what it is ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_architecture_of_the_header(name: str) -> None:
    assert golden(name).arch == ARCHITECTURES[name.split(".")[0]]


@pytest.mark.parametrize(
    "abi, flags, arch",
    [(7, 0x005A, 90), (7, 0x500550, 80), (8, 0x6006402, 100), (8, 0x7802, 120), (8, 0x5A04, 90)],
)
def test_architecture_field_moved_with_the_abi(abi: int, flags: int, arch: int) -> None:
    data = bytearray(image("sm_90a.exp.plain"))
    data[8] = abi
    struct.pack_into("<I", data, 48, flags)
    assert Cubin.from_bytes(bytes(data)).arch == arch


@pytest.mark.parametrize("name", NAMES)
def test_kernels_are_the_entries_without_device_functions(name: str) -> None:
    expected = {"plain": {"cutlasz_k"}, "cutlass": {"cutlass_k"}, "renamed": {"a_much_longer_name_k"}}
    expected |= {"cluster": {"load"}, "cta": {"load"}, "module": {"foo", "foo_bar", "printer"}}
    assert set(golden(name).kernels) == expected[name.split(".")[-1]]
    assert len(golden(name).kernels) == len(expected[name.split(".")[-1]])


@pytest.mark.parametrize("name", NAMES)
def test_tool_note_is_of_sm_100_and_newer(name: str) -> None:
    cubin = golden(name)
    if name not in HAS_CAPMERC:
        assert (cubin.ptxas_version, cubin.ptxas_arguments) == (None, None)
        return
    assert cubin.ptxas_version == "12.8.93"
    assert (cubin.ptxas_arguments or "").split() == ["-v", "-arch", name.split(".")[0]]


# --- sections ------------------------------------------------------------------------------------


def role_table(cubin: Cubin) -> list[tuple[str, str]]:
    return [(section.role, section.kind) for section in cubin.sections]


def test_rename_changes_no_role() -> None:
    plain, renamed = golden("sm_90a.exp.plain"), golden("sm_90a.exp.renamed")
    assert role_table(plain) == role_table(renamed)
    assert [s.name for s in plain.sections] != [s.name for s in renamed.sections]


@pytest.mark.parametrize("name", NAMES)
def test_every_section_is_where_it_says(name: str) -> None:
    data = image(name)
    for section in golden(name).sections:
        start, end = section.file_range
        assert 64 <= start <= end <= len(data)
        assert section.data == data[start:end]
        assert len(section.data) == (0 if section.kind == "SHT_NOBITS" else section.size)


@pytest.mark.parametrize("name", NAMES)
def test_every_byte_of_the_file_is_accounted_for(name: str) -> None:
    """Headers, tables and sections cover the file. Gaps are padding: zeros, below 128 bytes each."""
    data = image(name)
    program, table = struct.unpack_from("<QQ", data, 32)
    program_bytes, programs, section_bytes, sections = struct.unpack_from("<HHHH", data, 54)
    ranges = [(0, 64), (program, program + program_bytes * programs), (table, table + section_bytes * sections)]
    ranges += [section.file_range for section in golden(name).sections]
    covered = bytearray(len(data))
    for start, end in ranges:
        covered[start:end] = b"\1" * (end - start)
    gaps = [match.span() for match in re.finditer(rb"\0+", bytes(covered))]
    assert sections == len(golden(name).sections) + 1  # the first of the table is the null section
    assert all(end - start < 128 and not any(data[start:end]) for start, end in gaps), gaps


@pytest.mark.parametrize(
    "section, kernel",
    [
        (".text.k", "k"),
        (".nv.merc.rela.text.k", "k"),
        (".nv.capmerc.text.k.k", "k.k"),  # the longest name that fits
        (".text.other", None),
        (".nv.info", None),  # the module's, though a kernel is called "info"
        (".nv.info.info", "info"),
        ("k", None),
        (".debug_line", None),
        ("." * 100_000 + "k", None),  # no search through a long name of dots
    ],
)
def test_owner_of_a_section(section: str, kernel: str | None) -> None:
    assert owner_of(section, {"k", "k.k", "info"}) == kernel


def test_kernel_whose_name_ends_another_has_sections_of_its_own(tools: Toolchain) -> None:
    cubin = assemble(tools, "foo_bar", "bar", "ar")
    assert {s.name: s.kernel for s in cubin.sections if s.role == ".text.{kernel}"} == {
        ".text.foo_bar": "foo_bar",
        ".text.bar": "bar",
        ".text.ar": "ar",
    }


@pytest.mark.parametrize("name", ["fo", "tab", "k"])
def test_section_that_only_ends_like_a_kernel_is_the_modules(tools: Toolchain, name: str) -> None:
    assert role_table(assemble(tools, name)) == role_table(assemble(tools, "other"))


@pytest.mark.parametrize("name", ["info", "symtab", "callgraph"])
def test_kernel_named_like_a_section(tools: Toolchain, name: str) -> None:
    assert role_table(assemble(tools, name)) == role_table(assemble(tools, "other"))


def test_device_function_of_a_relocatable_image_is_no_kernel(tools: Toolchain) -> None:
    function = ".visible .func (.reg .b32 %o) helper(.reg .b32 %i)\n{\nmul.lo.s32 %o, %i, %i;\nret;\n}\n"
    assert assemble(tools, "k", before=function, arguments=("-c",)).kernels == ("k",)


def test_kernel_has_to_be_named_where_there_are_several() -> None:
    cubin = golden("sm_90a.module")
    with pytest.raises(CubinError, match=r"3 kernels .*foo"):
        cubin.only_kernel()
    with pytest.raises(CubinError, match="no kernel 'missing'"):
        cubin.only_kernel("missing")
    with pytest.raises(CubinError, match="no code section for kernel 'missing'"):
        cubin.text("missing")
    assert cubin.only_kernel("foo") == "foo"
    assert golden("sm_80.exp.plain").only_kernel() == "cutlasz_k"


# --- resources -----------------------------------------------------------------------------------


def used(
    *values: int | None, block: str = "128 1 1", local: tuple[int, int] = (0, 0), externs: tuple[str, ...] = ()
) -> Resources:
    """local: bytes stored to local memory and loaded from it. Whether they are spills, the code alone does not tell."""
    spills = 0 if local == (0, 0) else None
    bounds = () if values[-1] is None else (f"reqntid {block}",)
    stores, loads = local
    return Resources(
        *values,
        spill_stores=spills,
        spill_loads=spills,
        local_stores=stores,
        local_loads=loads,
        launch_bounds=bounds,
        externs=externs,
    )


@pytest.mark.parametrize(
    "name, kernel, expected",
    [
        ("sm_80.exp.plain", "cutlasz_k", used(23, 0, 0, 0, 0, 128)),
        ("sm_80.exp.cutlass", "cutlass_k", used(24, 0, 0, 0, 0, 128)),
        ("sm_90a.fma.plain", "cutlasz_k", used(18, 0, 0, 0, 0, 128)),
        ("sm_80.module", "foo", used(8, 48, 48, 1024, 4, 128, block="64 2 1", local=(4, 0))),
        ("sm_90a.module", "foo", used(8, 48, 48, 2048, 4, 128, block="64 2 1", local=(4, 0))),  # sm_90 reserves 1 KiB
        ("sm_90a.module", "foo_bar", used(8, 0, 0, 0, 0, None)),
        ("sm_90a.module", "printer", used(24, 0, 0, 0, 0, None, externs=("vprintf",))),
        ("sm_120a.tensor_load.cluster", "load", used(24, 8, 8, 1024, 0, 128, local=(8, 0), externs=(SYSCALL,))),
        ("sm_120a.tensor_load.cta", "load", used(4, 0, 0, 1024, 0, 128)),
    ],
)
def test_resources(name: str, kernel: str, expected: Resources) -> None:
    found = golden(name).resources[kernel]
    assert replace(found, externs=()) == replace(expected, externs=())
    if ".module" not in name or kernel == "printer":
        assert found.externs == expected.externs


def test_spills_beside_an_array_are_not_known_until_the_log_says_them() -> None:
    cubin = golden("sm_90a.module")
    assert (cubin.resources["foo"].spill_stores, cubin.resources["foo"].spill_loads) == (None, None)
    told = cubin.with_spills({"foo": (20, 12), "unheard_of": (1, 1)})
    assert (told.resources["foo"].spill_stores, told.resources["foo"].spill_loads) == (20, 12)
    assert told.resources["foo_bar"].spill_stores == 0  # its code accesses no local memory
    assert set(told.resources) == set(cubin.kernels)


@pytest.mark.parametrize(
    ("name", "is_extern"), [("__UFT_0", False), ("__UDT_0", False), (".nv.res", False), ("__UFO_0", True)]
)
def test_symbols_for_the_linkers_own_use_are_no_externs(name: str, is_extern: bool) -> None:
    data = (GOLDEN / "sm_90a.module.cubin").read_bytes().replace(b"vprintf", name.encode())
    assert Cubin.from_bytes(data).resources["printer"].externs == ((name,) if is_extern else ())


# --- the other scheduler's records ---------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_scheduler_records(name: str) -> None:
    expected = {"sm_120a.exp.cutlass": 45, "sm_100a.tcgen05.cutlass": 78}
    for kernel in golden(name).kernels:
        known = expected.get(name, 0) if name in HAS_CAPMERC else None
        assert golden(name).scheduler_records(kernel) == known


@pytest.mark.parametrize(
    "data, count",
    [
        (b"", 0),
        (b"\x31\x02", 0),  # no room for a record
        (b"\x31\x02" + b"\0" * 14, 1),
        (b"\x31\x02" + b"\0" * 13, 0),
        ((b"\x31\x02" + b"\0" * 14) * 3, 3),
        (b"\x0b" * 5 + (b"\x31\x02" + b"\x31\x02" * 7) * 2, 2),  # inside a record, the mark is data
        (b"\x02\x31" * 16, 1),
        (b"\x30\x02" * 16, 0),
    ],
)
def test_records_are_counted_whole(data: bytes, count: int) -> None:
    assert count_capmerc_records(data) == count


# --- what is no cubin ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_every_truncation_is_an_error(name: str) -> None:
    data = image(name)
    table = struct.unpack_from("<Q", data, 40)[0]
    lengths = {*range(0, len(data), len(data) // 50), 3, 4, 63, 64, table, table + 1, len(data) - 1, len(data) - 56}
    accepted = []
    for length in sorted(lengths):
        try:
            Cubin.from_bytes(data[:length])
        except CubinError:
            continue
        accepted.append(length)
    assert len(lengths) > 50
    assert accepted == []


@pytest.mark.parametrize(
    "data, message",
    [
        (b"", "not an ELF image"),
        (b"\x7fEL", "not an ELF image"),
        (b".version 8.7\n.target sm_90a\n", "not an ELF image"),
        (b"\x7fELF", "4 bytes"),
        (b"\x7fELF\x02\x01\x01" + bytes(57), "machine 0"),
        (b"PK\x03\x04" + bytes(200), "not an ELF image"),
    ],
)
def test_other_files_are_an_error(data: bytes, message: str) -> None:
    with pytest.raises(CubinError, match=f"^some.cubin: .*{message}"):
        Cubin.from_bytes(data, "some.cubin")


@pytest.mark.machine
def test_elf_of_the_processor_is_an_error() -> None:
    program = Path(sys.executable).resolve()
    if program.read_bytes()[:4] != b"\x7fELF":
        pytest.skip(f"{program.name} is no ELF image on this system")
    machine = struct.unpack_from("<H", program.read_bytes(), 18)[0]
    with pytest.raises(CubinError, match=f"for machine {machine}, not for NVIDIA GPUs"):
        Cubin.from_bytes(program.read_bytes())


def test_some_kernels_only_are_seen_of_the_same_image() -> None:
    cubin = Cubin.from_bytes((GOLDEN / "sm_90a.module.cubin").read_bytes())
    some = cubin.only(["foo"])
    assert (some.kernels, some.only_kernel(), some.data) == (("foo",), "foo", cubin.data)
