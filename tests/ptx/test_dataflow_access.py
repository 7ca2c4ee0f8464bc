"""Which operands an instruction writes and reads, and which of them are numbers."""

from __future__ import annotations

import pytest

from tritonhook.ptx.dataflow import access, elements, number


@pytest.mark.parametrize(
    ("opcode", "operands", "result"),
    [
        ("add.u32", ("%r0", "%r1", "1"), "%r0"),
        ("st.global.b32", ("[%rd0]", "%r1"), ""),
        ("mbarrier.init.shared.b64", ("[%r0]", "1"), ""),
        ("mbarrier.arrive.shared.b64", ("%rd0", "[%r0]"), "%rd0"),
        ("multimem.ld_reduce.global.add.f32", ("%f0", "[%rd0]"), "%f0"),
        ("multimem.red.global.add.f32", ("[%rd0]", "%f0"), ""),
        ("clusterlaunchcontrol.query_cancel.is_canceled.pred.b128", ("%p0", "%q0"), "%p0"),
        ("clusterlaunchcontrol.try_cancel.async.b128", ("[%r0]", "[%r1]"), ""),
        ("tcgen05.ld.sync.aligned.32x32b.x1.b32", ("%r0", "[%r1]"), "%r0"),
        ("tcgen05.dealloc.cta_group::1.sync.aligned.b32", ("%r0", "32"), ""),
        ("bar.sync", ("%r0", "%r1"), ""),
        ("bar.red.popc.u32", ("%r0", "1", "%p0"), "%r0"),
        ("barrier.cta.sync", ("%r0",), ""),
        ("barrier.cta.red.popc.u32", ("%r0", "1", "%p0"), "%r0"),
        ("brx.idx", ("%r0", "targets"), ""),
        ("bra.uni", ("L0",), ""),
        ("call.uni", ("f", "(%r0)"), ""),
        ("call.uni", ("(%r0)", "f", "(%r1)"), "(%r0)"),
        ("nanosleep.u32", ("%r0",), ""),
        ("stackrestore.u32", ("%r0",), ""),
        ("setmaxnreg.inc.sync.aligned.u32", ("240",), ""),
        ("cp.async.wait_group", ("0",), ""),
        ("pmevent", ("1",), ""),
        ("wgmma.wait_group.sync.aligned", ("0",), ""),
        ("brev.b32", ("%r0", "%r1"), "%r0"),
        ("ret", (), ""),
    ],
)
def test_the_first_operand_is_the_result_or_is_read(opcode: str, operands: tuple[str, ...], result: str) -> None:
    assert access(opcode, operands) == (result, operands[1:] if result else operands)


def test_a_wgmma_reads_the_sum_that_it_adds_to() -> None:
    opcode, operands = "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16", ("{%f0}", "%d0", "%d1", "%p0", "1", "1")
    assert access(opcode, operands) == ("{%f0}", operands)
    first = (*operands[:3], "0", *operands[4:])
    assert access(opcode, first) == ("{%f0}", first[1:])


def test_elements_of_lists() -> None:
    assert elements("{%r0, [%r1+4]}") == ["%r0", "[%r1+4]"]
    assert elements("(%r0, %r1)") == ["%r0", "%r1"]
    assert [list(elements(text)) for text in ("%r0", "[%r0]", "{%r0", "")] == [["%r0"], ["[%r0]"], ["{%r0"], [""]]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *(
            ("0", 0),
            ("9", 9),
            ("-0x1F", -31),
            ("+0X1f", 31),
            ("0b101", 5),
            ("0B1", 1),
            ("017", 15),
            ("-00", 0),
            ("7U", 7),
        ),
        *((text, None) for text in ("", "09", "0b2", "0x", "1.5", "%r1", "- 1", "7UU", "0f3F800000")),
        *(("0b" + "0" * 67 + "1", 1), ("0b" + "0" * 68 + "1", 1 << 64)),
    ],
)
def test_integers_are_read_in_each_base(text: str, value: int | None) -> None:
    """One of more than 70 characters, as no compiler writes it, is too large for 64 bits."""
    assert number(text) == value
