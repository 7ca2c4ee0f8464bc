"""Comparing two cubins: the verdict comes from the code, and code that was not read is never the same."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st
from repository import GOLDEN

from tritonhook.compare.diff import CodeVerdict, CubinDiff, LoopDelta, LoopSummary, ResourceDelta, diff, diff_sass
from tritonhook.cubin.image import Cubin
from tritonhook.cubin.resources import Resources
from tritonhook.cubin.sass import Instruction, Sass, parse_nvdisasm
from tritonhook.errors import CubinError


@cache
def golden(name: str) -> tuple[Cubin, dict[str, Sass]]:
    cubin = Cubin.from_bytes((GOLDEN / f"{name}.cubin").read_bytes(), name)
    texts = {k: cubin.text(k) for k in cubin.kernels}
    return cubin, parse_nvdisasm((GOLDEN / f"{name}.json").read_bytes(), texts, cubin.indirect_targets or {})


def compare(a: str, b: str, a_kernel: str | None = None, b_kernel: str | None = None) -> CubinDiff:
    (a_cubin, a_code), (b_cubin, b_code) = golden(a), golden(b)
    return diff(a_cubin, b_cubin, a_code[a_cubin.only_kernel(a_kernel)], b_code[b_cubin.only_kernel(b_kernel)])


def code(*opcodes: str, control: int = 0) -> Sass:
    """Code from `OPCODE` or `OPCODE operands`."""
    parts = [word.partition(" ") for word in opcodes]
    return Sass("k", tuple(Instruction(16 * i, "", op, rest, control) for i, (op, _, rest) in enumerate(parts)))


def changed_roles(d: CubinDiff) -> set[str]:
    return {delta.role for delta in d.sections if delta.changed}


# --- verdicts ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["sm_80.exp.plain", "sm_90a.exp.cutlass", "sm_100a.tcgen05.plain", "sm_120a.exp.plain"]
)
def test_cubin_against_itself_is_the_same(name: str) -> None:
    d = compare(name, name)
    count = len(d.a.text(d.a_kernel)) // 16
    assert (d.verdict, d.identical_code) == (CodeVerdict.SAME_CODE, True)
    assert (d.sass.a_instructions, d.sass.b_instructions, d.sass.in_place, d.sass.identical) == (count,) * 4
    assert (d.sass.moved, d.sass.removed, d.sass.added, d.sass.control_changed) == (0, 0, 0, 0)
    assert all(a == b for a, b in d.sass.opcodes.values())
    assert changed_roles(d) == set()
    assert [r.field for r in d.resources if r.changed] == []
    assert d.worse == ()
    assert d.summary.startswith(f"same code: {count} instructions, equal byte for byte")


def test_renamed_kernel_has_the_same_code_and_matching_sections() -> None:
    d = compare("sm_90a.exp.plain", "sm_90a.exp.renamed")
    assert (d.a_kernel, d.b_kernel) == ("cutlasz_k", "a_much_longer_name_k")
    assert d.verdict is CodeVerdict.SAME_CODE
    assert all(delta.a is not None and delta.b is not None for delta in d.sections)
    sections = {delta.role: delta for delta in d.sections}
    assert not sections[".text.{kernel}"].changed
    assert not sections[".nv.info.{kernel}"].changed
    # only the names
    assert changed_roles(d) == {".shstrtab", ".strtab", ".symtab"}
    assert [r.field for r in d.resources if r.changed] == []


@pytest.mark.parametrize(
    "name, verdict, moved, removed, added, control_changed",
    [
        ("sm_80.exp", CodeVerdict.SCHEDULING, 5, 0, 0, 14),
        ("sm_90a.exp", CodeVerdict.SCHEDULING, 6, 0, 0, 14),
        ("sm_120a.exp", CodeVerdict.SCHEDULING, 6, 0, 0, 10),
        ("sm_100a.tcgen05", CodeVerdict.DIFFERENT_CODE, 2, 3, 3, 12),
    ],
)
def test_plain_against_cutlass(
    name: str, verdict: CodeVerdict, moved: int, removed: int, added: int, control_changed: int
) -> None:
    d = compare(f"{name}.plain", f"{name}.cutlass")
    s = d.sass
    assert (d.verdict, s.moved, s.removed, s.added, s.control_changed) == (
        verdict,
        moved,
        removed,
        added,
        control_changed,
    )
    assert s.in_place + s.moved + s.removed == s.a_instructions
    assert s.in_place + s.moved + s.added == s.b_instructions
    assert d.other_scheduler == (False, True)
    assert d.summary.endswith("; ptxas took its other scheduler for b")
    assert d.summary.startswith(f"{verdict.value}: ")
    turned = compare(f"{name}.cutlass", f"{name}.plain")
    assert (turned.verdict, turned.other_scheduler) == (verdict, (True, False))
    assert (turned.sass.removed, turned.sass.added) == (added, removed)


def test_different_kernels_are_different_code() -> None:
    d = compare("sm_90a.exp.plain", "sm_90a.fma.plain")
    assert d.verdict is CodeVerdict.DIFFERENT_CODE
    assert d.sass.opcodes["MUFU"] == (8, 0)
    assert d.sass.opcodes["FFMA"] == (8, 8)
    assert d.sass.removed > 8


def test_equal_listings_of_unequal_bytes_are_not_the_same_code() -> None:
    """The bytes decide: only a control field differs here, which no listing shows."""
    cubin, sass = golden("sm_90a.exp.plain")
    start = next(s for s in cubin.sections if s.role == ".text.{kernel}").file_range[0]
    data = bytearray(cubin.data)
    data[start + 13] ^= 0x02  # the lowest stall bit of the first instruction
    other = Cubin.from_bytes(bytes(data))
    kernel = cubin.kernels[0]
    output = (GOLDEN / "sm_90a.exp.plain.json").read_bytes()
    d = diff(cubin, other, sass[kernel], parse_nvdisasm(output, {kernel: other.text(kernel)}, {})[kernel])
    assert (d.verdict, d.identical_code) == (CodeVerdict.SCHEDULING, False)
    assert (d.sass.control_changed, d.sass.moved, d.sass.in_place) == (1, 0, 40)
    assert changed_roles(d) == {".text.{kernel}"}


# --- nothing unread counts as equal --------------------------------------------------------------


@pytest.mark.parametrize("side", ["a", "b"])
def test_side_without_instructions_is_an_error(side: str) -> None:
    cubin, sass = golden("sm_90a.exp.plain")
    empty = Sass("cutlasz_k", ())
    pair = (empty, sass["cutlasz_k"]) if side == "a" else (sass["cutlasz_k"], empty)
    with pytest.raises(CubinError, match=f"side {side}: no instructions of 'cutlasz_k'"):
        diff(cubin, cubin, *pair)


def test_code_of_a_kernel_that_the_cubin_does_not_have_is_an_error() -> None:
    (a, a_code), (b, _) = golden("sm_90a.exp.plain"), golden("sm_90a.exp.cutlass")
    with pytest.raises(CubinError, match="no kernel 'cutlasz_k' in the cubin; it has: cutlass_k"):
        diff(a, b, a_code["cutlasz_k"], a_code["cutlasz_k"])


# --- sections and resources ----------------------------------------------------------------------


def test_section_of_one_side_is_a_change() -> None:
    (a, a_code), (b, b_code) = golden("sm_90a.exp.plain"), golden("sm_120a.exp.plain")
    d = diff(a, replace(b, arch=a.arch), *(code["cutlasz_k"] for code in (a_code, b_code)))  # as by a newer ptxas
    only_b = {delta.role for delta in d.sections if delta.a is None}
    assert {".nv.capmerc.text.{kernel}", ".note.nv.tkinfo"} <= only_b <= changed_roles(d)
    (note,) = (delta for delta in d.sections if delta.role == ".note.nv.tkinfo")
    assert (note.a_bytes, note.changed) == (None, True)
    assert d.scheduler_records == (None, 0)


def test_shared_memory_that_grows_is_a_change_without_bytes() -> None:
    cubin, sass = golden("sm_90a.module")
    sections = tuple(replace(s, size=4096) if s.name == ".nv.shared.foo" else s for s in cubin.sections)
    d = diff(cubin, replace(cubin, sections=sections), sass["foo"], sass["foo"])
    assert changed_roles(d) == {".nv.shared.{kernel}"}


@pytest.mark.parametrize(
    "a, b, changed, shown",
    [
        (0, 0, False, None),
        (None, None, False, None),
        (None, 0, False, None),  # unknown on one side: nobody can tell whether it changed
        (8, None, False, None),
        (8, 0, True, "stack 8 -> 0"),
    ],
)
def test_not_known_is_not_zero(a: int | None, b: int | None, changed: bool, shown: str | None) -> None:
    cubin, sass = golden("sm_90a.exp.plain")
    kernel = cubin.kernels[0]

    def with_stack(value: int | None) -> Cubin:
        return replace(cubin, resources={kernel: replace(cubin.resources[kernel], stack=value)})

    d = diff(with_stack(a), with_stack(b), sass[kernel], sass[kernel])
    (stack,) = (r for r in d.resources if r.field == "stack")
    assert stack == ResourceDelta("stack", a, b)
    assert stack.changed is changed
    assert (shown in d.summary) if shown else ("stack" not in d.summary)
    assert d.worse == ()  # what is not known does not count as worse


def test_resources_that_grow_are_worse() -> None:
    cubin, sass = golden("sm_90a.exp.plain")
    kernel = cubin.kernels[0]
    before = Resources(32, 0, 0, 1024, 1, 128, 0, 0)
    after = Resources(40, 8, 8, 512, 2, 128, 20, 12)
    sides = [replace(cubin, resources={kernel: r}) for r in (before, after)]
    d = diff(*sides, a_sass=sass[kernel], b_sass=sass[kernel])
    assert {r.field: (r.a, r.b) for r in d.worse} == {
        "registers": (32, 40),
        "stack": (0, 8),
        "spill_stores": (0, 20),
        "spill_loads": (0, 12),
    }
    for text in ("registers 32 -> 40", "spill stores 0 -> 20", "shared 1,024 -> 512"):
        assert text in d.summary


def test_what_launches_add_is_counted_beside_the_static_bytes() -> None:
    def known(shared: int | None) -> CubinDiff:
        given = (ResourceDelta("registers", 8, 9), ResourceDelta("shared", 16, shared), ResourceDelta("stack", 0, 0))
        return replace(compare("sm_90a.exp.plain", "sm_90a.exp.plain"), resources=given)

    registers, _, stack = known(32).resources
    for a, b, total in ((64, 128, (80, 160)), (0, 1, (16, 33)), (1, 0, (17, 32)), (None, 1, (None, 33))):
        counted = (ResourceDelta("shared", *total), ResourceDelta("dynamic_shared", a, b))
        assert known(32).with_launches(a, b).resources == (registers, *counted, stack)
    for a, b in ((0, 0), (None, None), (None, 0)):
        assert known(32).with_launches(a, b) == known(32)
    assert known(None).with_launches(64, 64) == known(None)


def test_traffic_to_local_memory_is_told_only_where_spills_are_not_known() -> None:
    cubin, sass = golden("sm_90a.exp.plain")
    kernel = cubin.kernels[0]
    traffic = Resources(local_stores=4, local_loads=4)
    for known, expected in ((0, set()), (None, {"local_stores", "local_loads"})):
        sides = [
            replace(cubin, resources={kernel: replace(r, spill_stores=0)})
            for r in (replace(traffic, spill_stores=0), replace(traffic, local_loads=8))
        ]
        if known is None:
            sides[1] = replace(cubin, resources={kernel: replace(traffic, local_loads=8)})
        d = diff(*sides, a_sass=sass[kernel], b_sass=sass[kernel])
        assert {r.field for r in d.resources if r.field.startswith("local_")} == expected
        assert ("local loads 4 -> 8" in d.summary) == (known is None)


def test_driver_calls_are_resources() -> None:
    (a, a_code), (b, b_code) = golden("sm_120a.tensor_load.cluster"), golden("sm_120a.exp.plain")
    d = diff(a, b, a_code["load"], b_code["cutlasz_k"])
    (syscalls,) = (r for r in d.resources if r.field == "syscalls")
    assert syscalls.a == ("__cuda_syscall_cp_async_bulk_tensor_2d_tile_unicast",)
    assert (syscalls.b, syscalls.changed) == ((), True)


# --- loops and the other scheduler ---------------------------------------------------------------


@pytest.mark.parametrize(
    "name, records", [("sm_80.exp", (None, None)), ("sm_90a.exp", (None, None)), ("sm_120a.exp", (0, 45))]
)
def test_scheduler_is_told_by_records_else_by_loops(name: str, records: tuple[int | None, int | None]) -> None:
    d = compare(f"{name}.plain", f"{name}.cutlass")
    assert d.scheduler_records == records
    assert d.other_scheduler == (False, True)


def test_records_overrule_the_loops() -> None:
    """On sm_120 a plain loop can look rescheduled; the missing records prove that it is not."""
    cubin, code_of = golden("sm_120a.exp.plain")
    sass = code_of["cutlasz_k"]
    yielded = replace(sass, instructions=tuple(i._replace(control=i.control | 16) for i in sass.instructions))
    d = diff(cubin, cubin, sass, yielded)
    assert (d.sass.a_rescheduled_loops, d.sass.b_rescheduled_loops) == (0, 1)
    assert d.other_scheduler == (False, False)


def test_loop_that_has_all_yield_bits_on_both_sides_tells_nothing() -> None:
    d = compare("sm_90a.fma.plain", "sm_90a.fma.cutlass")
    assert (d.sass.a_rescheduled_loops, d.sass.b_rescheduled_loops) == (1, 1)
    assert d.other_scheduler == (None, None)
    assert "scheduler" not in d.summary


def test_kernel_without_loops_was_not_rescheduled() -> None:
    assert compare("sm_90a.module", "sm_90a.module", "foo_bar", "foo_bar").other_scheduler == (False, False)


def test_plain_loop_of_one_side_is_no_proof() -> None:
    d = compare("sm_90a.module", "sm_90a.fma.plain", "foo_bar")
    assert d.other_scheduler in ((False, None), (False, False))


def with_loops(*bodies: str) -> Sass:
    """For each opcode, one loop of nine such instructions."""
    opcodes: list[str] = []
    for body in bodies:
        start = 16 * len(opcodes)
        opcodes += [*[f"{body} R1, R2"] * 9, f"BRA UP0, 0x{start:x}"]
    return code(*opcodes, "EXIT")


def test_loop_without_a_partner_is_told() -> None:
    pairs = diff_sass(with_loops("FADD", "MUFU"), with_loops("MUFU")).loops
    assert [(p.a and p.a.opcodes, p.b and p.b.opcodes) for p in pairs] == [
        ({"FADD": 9, "BRA": 1}, None),
        ({"MUFU": 9, "BRA": 1}, {"MUFU": 9, "BRA": 1}),
    ]
    pairs = diff_sass(with_loops("MUFU"), with_loops("FADD", "MUFU", "FMUL")).loops  # the likest, not the first
    assert [(p.a is not None, set(p.b.opcodes)) for p in pairs if p.b] == [
        (True, {"MUFU", "BRA"}),
        (False, {"FADD", "BRA"}),
        (False, {"FMUL", "BRA"}),
    ]
    pairs = diff_sass(with_loops(), with_loops("MUFU")).loops
    assert [(p.a, p.b is not None) for p in pairs] == [(None, True)]


# --- instructions --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "a, b, in_place, identical, moved, removed, added",
    [
        (["FADD R1, R2", "FMUL R3, R4"], ["FADD R1, R2", "FMUL R3, R4"], 2, 2, 0, 0, 0),
        (["FADD R1, R2", "FMUL R3, R4"], ["FADD R9, R2", "FMUL R3, R4"], 2, 1, 0, 0, 0),
        (["FADD R1, R2", "FMUL R3, R4"], ["FMUL R3, R4", "FADD R1, R2"], 1, 1, 1, 0, 0),
        (["FADD R1, R2", "FMUL R3, R4"], ["FADD R1, R2"], 1, 1, 0, 1, 0),
        (["FADD R1, R2"], ["FADD R1, R2", "FADD R3, R2"], 1, 1, 0, 0, 1),
        (["FADD R1, R2"], ["MUFU R1, R2"], 0, 0, 0, 1, 1),
        (["MOV R1, 0x1"], ["MOV R1, 0x2"], 0, 0, 0, 1, 1),
        (["BRA 0x0"], ["BRA 0x10"], 1, 0, 0, 0, 0),
    ],
)
def test_counts_of_instructions(
    a: list[str], b: list[str], in_place: int, identical: int, moved: int, removed: int, added: int
) -> None:
    s = diff_sass(code(*a), code(*b))
    assert (s.in_place, s.identical, s.moved, s.removed, s.added) == (in_place, identical, moved, removed, added)
    assert (s.a_instructions, s.b_instructions) == (len(a), len(b))


def test_control_fields_are_compared_pair_by_pair() -> None:
    s = diff_sass(code("FADD R1", "FMUL R1", control=0x13), code("FADD R1", "FMUL R1", control=0x02))
    assert (s.control_changed, s.identical) == (2, 2)  # control fields are not part of the listing
    assert (s.a_yield_bits, s.b_yield_bits) == (2, 0)
    assert (s.a_stall_cycles, s.b_stall_cycles) == (6, 4)


LISTINGS = st.lists(
    st.sampled_from(["FADD R1, R2", "FADD R3, R2", "FMUL R1", "MOV R1, 0x1", "MUFU.EX2 R1"]), max_size=12
)


@given(LISTINGS, LISTINGS)
def test_every_instruction_is_counted_once(a: list[str], b: list[str]) -> None:
    s, turned = diff_sass(code(*a), code(*b)), diff_sass(code(*b), code(*a))
    assert s.in_place + s.moved + s.removed == len(a)
    assert s.in_place + s.moved + s.added == len(b)
    assert min(s.in_place, s.moved, s.removed, s.added) >= 0
    assert (s.removed, s.added, s.in_place, s.moved) == (turned.added, turned.removed, turned.in_place, turned.moved)
    assert (s.removed == s.added == 0) == (sorted(w[:4] for w in a) == sorted(w[:4] for w in b))


# --- several kernels -----------------------------------------------------------------------------


def test_kernel_of_a_module_is_compared_without_the_others() -> None:
    d = compare("sm_90a.module", "sm_90a.module", "foo_bar", "foo_bar")
    assert d.verdict is CodeVerdict.SAME_CODE
    owners = {delta.a.kernel for delta in d.sections if delta.a is not None}
    assert owners == {None, "foo_bar"}
    assert ".nv.shared.{kernel}" not in {delta.role for delta in d.sections}
    assert (d.sass.a_instructions, d.sass.b_instructions) == (16, 16)


@pytest.mark.parametrize(
    ("before", "use", "old", "new", "part"),
    [
        (
            ".const .f32 table[2] = {0f3F800000, 0f40000000};\n",
            "ld.const.f32 %f1, [table]; st.global.f32 [%rd1], %f1;",
            "0f3F800000",
            "0f40E00000",
            ".nv.constant3",
        ),
        (
            ".visible .func (.reg .b32 %o) helper(.reg .b32 %i)\n{\nadd.u32 %o, %i, 7;\nret;\n}\n",
            "call (%r1), helper, (%r1); st.global.u32 [%rd1], %r1;",
            "%i, 7",
            "%i, 9",
            ".text.helper",
        ),
        (
            ".visible .global .u32 start[1] = {5};\n",
            "ld.global.u32 %r1, [start]; st.global.u32 [%rd1], %r1;",
            "{5}",
            "{6}",
            ".nv.global.init",
        ),
    ],
    ids=["constants", "device function", "globals"],
)
def test_a_program_is_more_than_its_kernels_instructions(before: str, use: str, old: str, new: str, part: str) -> None:
    """Given two kernels with equal instructions that work on other constants, functions or globals."""
    from tritonhook.compare.names import diff_cubins
    from tritonhook.ptx.module import Ptx
    from tritonhook.ptxas.toolchain import find_toolchain

    tools = find_toolchain()
    head = ".version 8.0\n.target sm_90a\n.address_size 64\n"
    body = ".visible .entry k(.param .u64 p)\n{\n.reg .f32 %f<4>; .reg .b32 %r<4>; .reg .b64 %rd<4>;\n"
    text = head + before + body + "ld.param.u64 %rd1, [p]; mov.u32 %r1, %tid.x;\n" + use + "\nret;\n}\n"
    a, b = (tools.assemble_or_raise(Ptx(t), ("-c",)).cubin for t in (text, text.replace(old, new)))
    assert a.text("k") == b.text("k")
    d = diff_cubins(a, b, tools)
    assert d.verdict is CodeVerdict.DIFFERENT_CODE
    assert part in d.changed_parts
    assert part in d.summary
    assert diff_cubins(a, a, tools).verdict is CodeVerdict.SAME_CODE


# --- what counts as the program besides the instructions -----------------------------------------


def side(relocations: tuple[tuple[int, str], ...] = (), stall: int = 0, **parts: bytes) -> tuple[Cubin, Sass]:
    """A golden kernel with these places to link, another stall count in an instruction, and sections of these bytes."""
    cubin, code_of = golden("sm_90a.exp.plain")
    (kernel,) = cubin.kernels
    sass = code_of[kernel]
    first = sass.instructions[0]
    sections = [
        replace(s, data=bytes([*s.data[:13], s.data[13] ^ stall << 1, *s.data[14:]]))
        if s.role == ".text.{kernel}"
        else s
        for s in cubin.sections
    ]
    model = next(s for s in cubin.sections if s.role == ".nv.constant0.{kernel}")
    given = {f".nv.{name}.{{kernel}}": data for name, data in parts.items()}
    sections = [s for s in sections if s.role not in given]
    sections += [replace(model, role=role, data=data) for role, data in given.items()]
    places = {kernel: tuple((offset, 1, name) for offset, name in relocations)}
    changed = first._replace(control=first.control ^ stall)
    instructions = (changed, *sass.instructions[1:])
    return replace(cubin, sections=tuple(sections), relocations=places), replace(sass, instructions=instructions)


def verdict(a: tuple[Cubin, Sass], b: tuple[Cubin, Sass]) -> CodeVerdict:
    return diff(a[0], b[0], a[1], b[1]).verdict


def test_calls_that_moved_are_scheduling_and_other_calls_are_not() -> None:
    here = side(((0, "f"), (16, "g")))
    assert verdict(here, side(((0, "f"), (16, "g")))) is CodeVerdict.SAME_CODE
    assert verdict(here, side(((32, "f"), (0, "g")), stall=1)) is CodeVerdict.SCHEDULING
    assert verdict(here, side(((16, "f"), (32, "h")), stall=1)) is CodeVerdict.DIFFERENT_CODE
    assert verdict(here, side(((16, "f"),), stall=1)) is CodeVerdict.DIFFERENT_CODE
    assert verdict(here, side(((16, "f"), (32, "f")), stall=1)) is CodeVerdict.DIFFERENT_CODE


def test_parameters_are_no_part_of_the_program_and_other_constants_are() -> None:
    assert verdict(side(constant0=b"a"), side(constant0=b"b")) is CodeVerdict.SAME_CODE
    assert verdict(side(constant3=b"a"), side(constant3=b"b")) is CodeVerdict.DIFFERENT_CODE
    assert verdict(side(constant3=b"a"), side(constant3=b"b", stall=1)) is CodeVerdict.DIFFERENT_CODE
    # the targets of indirect branches move with the instructions
    assert verdict(side(constant2=b"a"), side(constant2=b"b", stall=1)) is CodeVerdict.SCHEDULING


def test_code_for_two_architectures_is_not_compared() -> None:
    (a, a_sass), (b, b_sass) = side(), side()
    with pytest.raises(CubinError, match="a is for sm_90, b for sm_80; compare kernels for one architecture"):
        diff(a, replace(b, arch=80), a_sass, b_sass)


@pytest.mark.parametrize(
    "a, b, alike",
    [
        ({"A": 8, "B": 2}, {"A": 8, "C": 2}, True),
        ({"A": 7, "B": 3}, {"A": 7, "C": 3}, False),
        ({"A": 8}, {"A": 12}, True),  # 8 of 10 on average
        ({"A": 8}, {"A": 13}, False),
        ({"A": 10}, {"B": 10}, False),
    ],
)
def test_loops_with_four_fifths_of_their_opcodes_in_common_are_alike(
    a: dict[str, int], b: dict[str, int], alike: bool
) -> None:
    x, y = (LoopSummary(0, sum(opcodes.values()), 0, 0, False, opcodes) for opcodes in (a, b))
    assert LoopDelta(x, y).alike is alike
    assert not LoopDelta(x, None).alike and not LoopDelta(None, y).alike
