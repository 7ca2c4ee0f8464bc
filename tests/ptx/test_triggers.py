"""What makes ptxas take its other scheduler for an entry: its name, the pragma, both, or neither of them."""

from __future__ import annotations

import pytest
from at_hand import toolchain_at_hand
from ptx_modules import HEADER, kernel

from tritonhook.lab.published_table import condition
from tritonhook.ptx.module import Ptx, bodies
from tritonhook.ptx.throughput_pragma import DIRECTIVE, ThroughputPragma, Trigger, trigger_of

PRAGMA = f"{DIRECTIVE}\nret;"
HELPER = ".func {name}()\n{{ {body} ret; }}\n"


def test_the_name_and_the_pragma_are_two_triggers() -> None:
    text = HEADER + kernel("plain") + kernel("cutlass_k") + kernel("fast", PRAGMA) + kernel("cutlass_fast", PRAGMA)
    found = [trigger_of(entry, text, None) for entry in ("plain", "cutlass_k", "fast", "cutlass_fast")]
    assert found == [Trigger(False, False), Trigger(True, False), Trigger(False, True), Trigger(True, True)]


def test_a_comment_and_another_word_are_no_pragma() -> None:
    text = HEADER + kernel("a", f"// {DIRECTIVE}\nret;") + kernel("b", '.pragma "nounroll"; // mma_throughput\nret;')
    assert [trigger_of(entry, text, None).pragma for entry in "ab"] == [False, False]


def test_without_a_text_that_can_be_read_the_pragma_is_not_known() -> None:
    assert trigger_of("cutlass_k", None, "13.3.73") == trigger_of("cutlass_k", None, None) == Trigger(True, None)
    assert trigger_of("k", f"no PTX {DIRECTIVE}", "13.5.37").pragma is None
    assert trigger_of("other", HEADER + kernel("k", PRAGMA), None).pragma is None


def test_no_code_of_an_older_ptxas_has_the_pragma() -> None:
    assert trigger_of("k", None, "13.2.51") == Trigger(False, False)
    assert trigger_of("cutlass_k", None, "12.8.93") == Trigger(True, False)


def test_the_pragma_of_a_function_counts_for_the_entries_that_call_it() -> None:
    functions = HELPER.format(name="f", body="call g, ();") + HELPER.format(name="g", body=DIRECTIVE)
    text = HEADER + functions + kernel("caller", "call f, ();\nret;") + kernel("alone")
    assert [trigger_of(entry, text, None).pragma for entry in ("caller", "alone")] == [True, False]


CALL = "call helper, ();"


@pytest.mark.parametrize(
    ("in_entry", "in_helper", "pragma"),
    [("", "", False), ("", DIRECTIVE, False), (CALL, "", False), (CALL, DIRECTIVE, True), (DIRECTIVE, "", True)],
)
def test_ptxas_takes_its_other_scheduler_where_the_trigger_says_so(in_entry: str, in_helper: str, pragma: bool) -> None:
    """Assembled: the code is that of the same module with the pragma in the entry if and only if the pragma counts."""
    tools = toolchain_at_hand()
    plain = condition("fma").ptx("kernel_x", "sm_90a", "9.3")
    at = bodies(plain)["kernel_x"].begin
    text = plain.text[:at] + in_entry + plain.text[at:]
    begin = text.index(".visible")
    ptx = Ptx(text[:begin] + HELPER.format(name="helper", body=in_helper) + text[begin:])
    assert trigger_of("kernel_x", ptx.text, "13.5.37") == Trigger(False, pragma)
    code = tools.assemble_or_raise(ptx).cubin.text("kernel_x")
    forced = tools.assemble_or_raise(ThroughputPragma(("kernel_x",)).apply(ptx)).cubin.text("kernel_x")
    assert (code == forced) == pragma
