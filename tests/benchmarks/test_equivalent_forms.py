"""The forms of known miscompilations: the committed result says which of them the patterns find."""

from __future__ import annotations

import json

import pytest
from bug_examples import EXAMPLES, ptx_of
from repository import ROOT

from tritonhook.ptx.miscompiles import MISCOMPILATIONS, places
from tritonhook.ptx.miscompiles.record import Miscompilation
from tritonhook.ptx.module import Ptx

RESULT = json.loads((ROOT / "benchmarks" / "results" / "equivalent_forms.json").read_text())


@pytest.mark.parametrize("bug", MISCOMPILATIONS, ids=lambda bug: bug.name)
def test_the_forms_that_are_found_are_those_of_the_result(bug: Miscompilation) -> None:
    from benchmarks.verify.equivalent_forms import forms

    said = {row["form"]: row["found"] for row in RESULT["samples"] if row["bug"] == bug.name}
    found = {
        what: bug.name in {place.bug.name for place in places(Ptx(ptx_of(lines, "sm_90a", "8.4")))}
        for what, lines in forms(EXAMPLES[bug.name].lines)
    }
    assert found == said
