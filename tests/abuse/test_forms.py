"""Equivalent forms of known miscompilations: what is found stays found when the text is written otherwise."""

from __future__ import annotations

from functools import cache

from bug_examples import EXAMPLES, ptx_of
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.verify.equivalent_forms import forms
from tritonhook.ptx.miscompiles import MISCOMPILATIONS, places
from tritonhook.ptx.module import Ptx

from .conftest import ABUSE

BUGS = {bug.name: bug for bug in MISCOMPILATIONS}
_NOISE = ("// x;\n", "/* ; */", "\n\n\t", "\n.loc 1 7 3\n", "add.u32 %x8, %x8, 7;", "mov.b64 %y8, -1;", "{ }")


@cache
def forms_of(bug: str) -> tuple[str, ...]:
    return tuple(lines for _, lines in forms(EXAMPLES[bug].lines))


def is_found(bug: str, lines: str) -> bool:
    return bug in {place.bug.name for place in places(Ptx(ptx_of(lines, "sm_90a", "8.4")))}


@settings(ABUSE)
@given(st.data())
def test_blanks_comments_and_dead_statements_hide_no_bug(data: st.DataObject) -> None:
    bug = data.draw(st.sampled_from(sorted(BUGS)))
    lines = data.draw(st.sampled_from(forms_of(bug)))
    noise = data.draw(st.lists(st.sampled_from(_NOISE), min_size=1, max_size=8))
    parts = lines.split(";\n")
    for number, words in enumerate(noise):
        place = data.draw(st.integers(1, len(parts) - 1), label=f"place {number}")
        parts[place] = f"{words} {parts[place]}"
    if is_found(bug, lines):
        assert is_found(bug, ";\n".join(parts))


@settings(ABUSE)
@given(st.data())
def test_a_bug_is_found_among_much_other_code(data: st.DataObject) -> None:
    bug = data.draw(st.sampled_from(sorted(BUGS)))
    lines = data.draw(st.sampled_from(forms_of(bug)))
    others = "".join(f"xor.b32 %x{n % 9}, %x{(n + 1) % 9}, {n};\n" for n in range(data.draw(st.integers(0, 200))))
    head, _, rest = lines.partition("\n")
    if is_found(bug, lines):
        assert is_found(bug, f"{head}\n{others}{rest}")
