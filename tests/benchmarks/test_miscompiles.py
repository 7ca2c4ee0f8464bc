"""The ranges of known miscompilations are what was assembled."""

from __future__ import annotations

import json

import pytest
from bug_examples import EXAMPLES
from repository import ROOT

from benchmarks.lab.miscompiles import about, assembled, verdict
from tritonhook.ptx.miscompiles import MISCOMPILATIONS
from tritonhook.ptx.miscompiles.record import TARGETS, TRIED, Miscompilation, PtxasVerdict
from tritonhook.ptxas.tool import available_ptxas

pytest.importorskip("numpy")

RESULT = json.loads((ROOT / "benchmarks" / "results" / "miscompiles.json").read_text())


def test_ranges_are_what_was_assembled() -> None:
    bugs = {bug.name: bug for bug in MISCOMPILATIONS}
    tried = [(one["bug"], one["ptxas"], one["target"]) for one in RESULT["samples"]]
    assert sorted(tried) == sorted((b, v, t) for b in bugs for v in TRIED for t in TARGETS)
    for one in RESULT["samples"]:
        assert one["example"] in ("right", "wrong", "refused") and one["near miss"] in ("right", "refused"), one
        if one["example"] != "refused":
            verdict = bugs[one["bug"]].verdict(one["ptxas"], one["target"])
            assert verdict is PtxasVerdict(one["example"]), one


def test_results_describe_the_bugs_as_they_are() -> None:
    assert RESULT["bugs"] == [about(bug) for bug in MISCOMPILATIONS]


@pytest.mark.parametrize(
    "bug",
    [pytest.param(bug, marks=[pytest.mark.nightly] * (n % 6 > 0)) for n, bug in enumerate(MISCOMPILATIONS)],
    ids=lambda bug: bug.name,
)
def test_ptxas_here_is_as_its_range_says(bug: Miscompilation) -> None:
    tools = [tool for tool in available_ptxas() if tool.version in TRIED]
    if not tools:
        pytest.skip("requires a ptxas that was tried")
    for tool in tools[:1] + tools[-1:]:
        codes = assembled(tool, "sm_90a", {"example": EXAMPLES[bug.name].lines, "near": EXAMPLES[bug.name].near})
        if codes:
            assert verdict(bug, 0, codes["example"]) == bug.verdict(tool.version, "sm_90a").value
            assert verdict(bug, 1, codes["near"]) == "right"
