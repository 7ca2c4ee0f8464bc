"""What is loaded besides the code: each kind of change is seen in its part, and what does not matter in none."""

from __future__ import annotations

import hashlib
import struct

import pytest
from made_elf import Named, Part, attribute, made_elf, numbers, relocation

from tritonhook.cubin.elf import kernel_names, read_elf
from tritonhook.cubin.image import Cubin
from tritonhook.cubin.loaded import PARTS, Image, loaded_of, loaded_parts, parameter_places
from tritonhook.ptx.module import Ptx
from tritonhook.ptxas.toolchain import find_toolchain

BASE = """.version 8.5
.target sm_90a
.address_size 64
.global .align 4 .u32 a[4] = {1, 2, 3, 4};
.global .align 4 .u32 b[4] = {5, 6, 7, 8};
.global .align 8 .u64 table[2] = {generic(a), generic(b)};
.const .align 8 .u64 banked[2] = {generic(a), generic(b)};
.const .align 4 .u32 values[4] = {9, 8, 7, 6};
.visible .global .align 4 .u32 counter[8];
.global .texref one;
.global .texref other;
.extern .shared .align 16 .b8 dynamic[];
.visible .entry k(.param .u64 p0, .param .u32 p1)
.maxntid 256
{
.shared .align 16 .b8 tile[64];
.reg .b64 %rd<8>;
.reg .b32 %r<16>;
.reg .f32 %f<8>;
ld.param.u64 %rd1, [p0];
mov.u32 %r2, %tid.x;
mov.u64 %rd2, a;
ld.global.u32 %r3, [%rd2];
mov.u64 %rd3, table;
ld.global.u64 %rd4, [%rd3];
ld.u32 %r4, [%rd4];
ld.const.u64 %rd5, [banked];
ld.u32 %r5, [%rd5];
ld.const.u32 %r6, [values];
atom.global.add.u32 %r7, [counter], 1;
mov.u32 %r8, dynamic;
st.shared.u32 [%r8], %r2;
mov.u32 %r9, tile;
st.shared.u32 [%r9], %r2;
tex.1d.v4.f32.s32 {%f1, %f2, %f3, %f4}, [one, {%r2}];
cvt.rzi.u32.f32 %r10, %f1;
add.u32 %r11, %r3, %r4;
add.u32 %r11, %r11, %r5;
add.u32 %r11, %r11, %r6;
add.u32 %r11, %r11, %r7;
add.u32 %r11, %r11, %r10;
st.global.u32 [%rd1], %r11;
ret;
}
"""
# What is changed into what, and the part that must say so; "code": the instructions say it.
KINDS = {
    "order of a table": ("table[2] = {generic(a), generic(b)}", "table[2] = {generic(b), generic(a)}", "relocations"),
    "order of a constant table": (
        "banked[2] = {generic(a), generic",
        "banked[2] = {generic(b), generic",
        "relocations",
    ),
    "another global": ("mov.u64 %rd2, a;", "mov.u64 %rd2, b;", "code"),
    "another texture": ("[one, {%r2}]", "[other, {%r2}]", "relocations"),
    "one parameter more": (".param .u32 p1)", ".param .u32 p1, .param .u32 p2)", "parameters"),
    "a wider parameter": (".param .u32 p1)", ".param .u64 p1)", "parameters"),
    "a struct": (".param .u32 p1)", ".param .align 8 .b8 p1[24])", "parameters"),
    "size of a global": ("counter[8]", "counter[16]", "data"),
    "alignment of a global": (".visible .global .align 4", ".visible .global .align 128", "data"),
    "alignment of values": (".global .align 4 .u32 a[4]", ".global .align 64 .u32 a[4]", "data"),
    "alignment of constants": (".const .align 4", ".const .align 64", "data"),
    "size of shared memory": ("tile[64]", "tile[128]", "data"),
    "alignment of shared memory": (".shared .align 16 .b8 tile", ".shared .align 256 .b8 tile", "data"),
    "alignment of dynamic shared memory": (".extern .shared .align 16", ".extern .shared .align 1024", "data"),
    "value of a constant": ("{9, 8, 7, 6}", "{9, 8, 7, 5}", "data"),
    "value of a global": ("{5, 6, 7, 8}", "{5, 6, 7, 9}", "data"),
    "name of a global": ("counter", "kounter", "data"),
    "managed memory": (".visible .global", ".visible .global .attribute(.managed)", "data"),
    "a weak global": (".visible .global", ".weak .global", "data"),
    "a global of the module": (".visible .global", ".global", "data"),
    "a weak kernel": (".visible .entry", ".weak .entry", "attributes"),
    "registers": (".maxntid 256", ".maxntid 256\n.maxnreg 128", "attributes"),
    "blocks of an SM": (".maxntid 256", ".maxntid 256\n.minnctapersm 2", "attributes"),
}


def assembled(text: str, arch: str = "sm_90a") -> bytes:
    return find_toolchain().assemble_or_raise(Ptx(text), (f"--gpu-name={arch}",)).cubin.data


def parts(data: bytes, kernel: str = "k") -> dict[str, str]:
    elf = read_elf(data)
    return loaded_parts(Image(elf, elf.symbols(), frozenset(kernel_names(elf))), kernel)


@pytest.fixture(scope="module")
def base() -> bytes:
    return assembled(BASE)


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_of_change_is_seen_in_its_part(base: bytes, kind: str) -> None:
    old, new, part = KINDS[kind]
    assert old in BASE
    made = assembled(BASE.replace(old, new))
    before, after = parts(base), parts(made)
    differ = {name for name in PARTS if before[name] != after[name]}
    if part == "code":
        assert Cubin.from_bytes(made).text("k") != Cubin.from_bytes(base).text("k")
    else:
        assert part in differ


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("mov.u32 %r2, %tid.x;", "mov.u32 %r2, %tid.y;"),  # other code
        (".maxntid 256", ".maxntid 128"),  # a launch bound, which is a fact of its own
        ("add.u32 %r11, %r3, %r4;", "add.u32 %r11, %r3, %r4; setp.eq.u32 %p1, %r2, 77; @%p1 exit;"),
    ],
)
def test_code_and_launch_bounds_are_in_no_part(base: bytes, old: str, new: str) -> None:
    text = BASE.replace(old, new).replace(".reg .f32 %f<8>;", ".reg .f32 %f<8>; .reg .pred %p<2>;")
    assert parts(assembled(text)) == parts(base)


def test_names_of_the_kernel_and_the_number_of_symbols_do_not_count(base: bytes) -> None:
    renamed = BASE.replace(".entry k(", ".entry cutlass_k(")
    assert parts(assembled(renamed), "cutlass_k") == parts(base)


def test_another_kernel_of_the_module_is_in_none_of_this_ones_parts(base: bytes) -> None:
    second = ".visible .entry z(.param .u64 q) { .shared .align 64 .b8 own[512]; .reg .b32 %r<2>; mov.u32 %r1, own;"
    both = assembled(f"{BASE}{second} st.shared.u32 [%r1], %r1; ret; }}\n")
    alone, beside = parts(base), parts(both)
    assert {name: beside[name] for name in ("parameters", "attributes")} == {
        name: alone[name] for name in ("parameters", "attributes")
    }
    changed = assembled(f"{BASE}{second.replace('512', '1024')} st.shared.u32 [%r1], %r1; ret; }}\n")
    assert parts(changed) == beside and parts(changed, "z")["data"] != parts(both, "z")["data"]


def test_what_a_relocation_writes_over_does_not_count(base: bytes) -> None:
    elf = read_elf(base)
    place = elf.by_name[".nv.global.init"].offset
    offset = next(iter(elf.relocations(".nv.global.init"))).offset
    data = bytearray(base)
    struct.pack_into("<Q", data, place + offset, 77)
    assert parts(bytes(data)) == parts(base)


def test_the_addend_of_a_relocation_counts(base: bytes) -> None:
    header = read_elf(base).by_name[".rela.nv.global.init"]
    data = bytearray(base)
    struct.pack_into("<q", data, header.offset + 16, 4)
    differ = [name for name, found in parts(bytes(data)).items() if found != parts(base)[name]]
    assert differ == ["relocations"]


# --- images made by hand -------------------------------------------------------------------------


def made(kernels: tuple[str, ...] = ("k", "z")) -> bytes:
    info = attribute(0x17, numbers(0, 1 | 8 << 16, 4 << 18)) + attribute(0x17, numbers(0, 0, 8 << 18 | 0x1000))
    info += attribute(0x0A, numbers(4, 0x160)) + attribute(0x19, b"\x0c\0", 3) + attribute(0x0F, numbers(5, 1, 99))
    info += attribute(0x50, numbers(0)) + attribute(0x6D, b"\1\0", 3) + attribute(0x37, numbers(7)) + attribute(0x41)
    parts = [
        Part(".nv.info.k", info, 0x7000_0000),
        Part(".text.k", bytes(32), flags=6, align=128),
        Part(".text.z", bytes(48), flags=6),
        Part(".nv.constant0.k", bytes(12), flags=2),
        Part(".nv.constant0.z", bytes(8), flags=2),
        Part(".nv.constant2.k", b"\xff" * 20, flags=2, align=8),
        Part(".nv.global.init", b"\xee" * 24, flags=3, align=16),
        Part(".nv.shared.reserved.0", kind=8, flags=3, size=1024),
        Part(".rela.nv.global.init", relocation(4, 2, 1, 16) + relocation(20, 3, 5, 0), 4),
        Part(".rel.text.k", relocation(16, 9, 2), 9),
        Part(".debug", b"not in memory"),
        Part(".nv.shared.z", kind=8, flags=3, size=64),
    ]
    symbols = [
        Named("a", ".nv.global.init", 1, 1, 2, 8, 16),
        Named("k", ".text.k", 2, 2, 0x10, 0, 32),
        Named("$k$f", ".debug"),
        Named("", ".nv.constant0.k", 3, 0),
        Named("vprintf"),
        Named("own", ".nv.shared.z", 1, 0, 0, 0, 4),
        Named(".nv.theirs", ".nv.global.init"),
        Named("of.k", ".nv.constant2.k", 1, 0, 3, 4, 8),
    ]
    return made_elf(parts, symbols)


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


def lines_sha(*lines: str) -> str:
    return sha("\n".join(sorted(lines)).encode())


def test_each_part_is_the_hash_of_its_lines_which_locks_keep() -> None:
    unlinked = b"\xee" * 4 + bytes(8) + b"\xee" * 8 + bytes(4)
    bank = ".nv.constant0.{kernel}"
    data = [
        f"section .nv.constant2.{{kernel}} 1 20 8 {sha(bytes([255]) * 20)}",
        f"section .nv.global.init 1 24 16 {sha(unlinked)}",
        "symbol a 1 1 2 .nv.global.init 8 16",
        "symbol vprintf 1 1 0 undefined",
        "symbol of.{kernel} 1 0 3 .nv.constant2.{kernel} 4 8",
    ]
    found = parts(made())
    assert found == {
        "parameters": lines_sha(
            f"0x17 {numbers(0, 1 | 8 << 16, 4 << 18).hex()} ", f"0x17 {numbers(0, 0, 8 << 18 | 0x1000).hex()} ",
            f"0xa {numbers(0x160).hex()} {bank}", "0x19 0c00 ", "bank 12",
        ),
        "attributes": lines_sha("0xf  99 a vprintf", "0x6d 0100 ", "0x41  ", "symbol 2 16"),
        "data": lines_sha(*data),
        "relocations": lines_sha(
            ".nv.global.init 4 2 a 16", ".nv.global.init 20 3 vprintf 0", ".text.{kernel} 16 9 {kernel} 0",
        ),
    }  # fmt: skip
    assert dict(loaded_of(made(), "k")) == found
    assert parameter_places(made(), "k") == ((0, 8), (8, 4)) and parameter_places(made(), "z") == ()


def test_an_empty_part_has_no_hash() -> None:
    bare = made_elf([Part(".text.k", bytes(16)), Part(".nv.constant0.k")])
    assert parts(bare) == {"parameters": lines_sha("bank 0"), "attributes": "", "data": "", "relocations": ""}
    assert dict(loaded_of(bare, "k")) == {"parameters": lines_sha("bank 0")}
