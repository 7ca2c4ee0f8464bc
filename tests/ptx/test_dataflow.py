"""What an instruction writes and reads; what is dead goes; a read of an unwritten register is seen on every path."""

from __future__ import annotations

import pytest
from ptx_checks import Case, cases
from ptx_modules import HEADER, kernel

from tritonhook.ptx.dataflow import access, cleaned, flow_of, number, read_unwritten
from tritonhook.ptx.module import Ptx
from tritonhook.ptx.program import Item, read_program

ABOVE = ".reg .b64 %rd<9>; .reg .b32 %r<9>; .reg .pred %p<9>;\n"
WGMMA = "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16"


@pytest.mark.parametrize("case", cases("dead"), ids=lambda case: case.name)
def test_what_is_dead_goes(case: Case) -> None:
    text = HEADER + kernel("k", ABOVE + case.ptx)
    (function,) = read_program(Ptx(text)).functions
    kept = {id(item) for item in cleaned(function.items)}
    gone = [item for item in function.items if id(item) not in kept and not item.label]
    places = [item.position if item.position >= 0 else text.index(item.text.strip()) for item in gone]
    first = text[: text.index(ABOVE)].count("\n")
    case.compare({text[:place].count("\n") - first: "dead" for place in places})


@pytest.mark.parametrize("case", cases("unwritten"), ids=lambda case: case.name)
def test_reads_before_writes_are_seen(case: Case) -> None:
    """No two instructions of a name in a case read registers that may be unwritten."""
    (function,) = read_program(Ptx(HEADER + kernel("k", ABOVE + case.ptx))).functions
    readers = {opcode for _, opcode in read_unwritten(function)}
    lines = enumerate(case.ptx.split("\n"), 1)
    case.compare({number: "unwritten" for number, line in lines if any(f"{name}." in line for name in readers)})


@pytest.mark.parametrize(
    ("item", "writes", "reads", "has_effect"),
    [
        (Item("ld.global.v2.b32", ("{%r0, %r1}", "[%rd0+8]"), "@%p0"), {"%r0", "%r1"}, {"%rd0", "%p0"}, False),
        (Item("st.global.b32", ("[%rd0]", "%r1")), set(), {"%rd0", "%r1"}, True),
        (Item("setp.lt.s32", ("%p0|%p1", "%r0", "%r1")), {"%p0", "%p1"}, {"%r0", "%r1"}, False),
        (Item(WGMMA, ("{%r0}", "%rd0", "%rd1", "%p0", "1")), {"%r0"}, {"%r0", "%rd0", "%rd1", "%p0"}, True),
        (Item(WGMMA, ("{%r0}", "%rd0", "%rd1", "0", "1")), {"%r0"}, {"%rd0", "%rd1"}, True),
        (Item("mov.u32", ("%r0", "%tid.x")), {"%r0"}, set(), False),
        (Item("mbarrier.arrive.shared.b64", ("_", "[%r0]")), set(), {"%r0"}, True),
    ],
)
def test_what_an_item_writes_and_reads(item: Item, writes: set[str], reads: set[str], has_effect: bool) -> None:
    assert flow_of(item)[:3] == (writes, reads, has_effect)


WRITES = """add.u32 %r0, %r1, 1; mbarrier.arrive.shared.b64 %rd0, [%r0]; multimem.ld_reduce.global.add.f32 %f0, [%rd0];
clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 %p0, %q0; tcgen05.ld.sync.aligned.32x32b.x1.b32 %r0, [%r1];
bar.red.popc.u32 %r0, 1, %p0; barrier.cta.red.popc.u32 %r0, 1, %p0; brev.b32 %r0, %r1"""
READS = """st.global.b32 [%rd0], %r1; mbarrier.init.shared.b64 [%r0], 1; multimem.red.global.add.f32 [%rd0], %f0;
clusterlaunchcontrol.try_cancel.async.b128 [%r0], [%r1]; tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r0, 32;
bar.sync %r0, %r1; barrier.cta.sync %r0; brx.idx %r0, targets; bra.uni L0; nanosleep.u32 %r0; stackrestore.u32 %r0;
setmaxnreg.inc.sync.aligned.u32 240; cp.async.wait_group 0; pmevent 1; wgmma.wait_group.sync.aligned 0"""


@pytest.mark.parametrize(("lines", "writes"), [(WRITES, True), (READS, False)])
def test_the_first_operand_is_the_result_or_is_read(lines: str, writes: bool) -> None:
    for line in lines.replace("\n", " ").split("; "):
        opcode, *operands = line.replace(",", "").split()
        expected = (operands[0], tuple(operands[1:])) if writes else ("", tuple(operands))
        assert access(opcode, tuple(operands)) == expected, line
    assert (
        access("call.uni", ("(%r0)", "f", "(%r1)")).result == "(%r0)" and not access("call.uni", ("f", "(%r0)")).result
    )
    assert access("ret", ()) == ("", ())


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *(("0", 0), ("9", 9), ("-0x1F", -31), ("+0X1f", 31), ("0b101", 5), ("0B1", 1), ("017", 15), ("-00", 0)),
        *((text, None) for text in ("", "09", "0b2", "0x", "1.5", "%r1", "- 1", "7UU", "0f3F800000")),
        *(("7U", 7), ("0b" + "0" * 67 + "1", 1), ("0b" + "0" * 68 + "1", 1 << 64)),
    ],
)
def test_integers_are_read_in_each_base(text: str, value: int | None) -> None:
    """One of more than 70 characters, as no compiler writes it, is too large for 64 bits."""
    assert number(text) == value
