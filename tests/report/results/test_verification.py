"""Which step of ptxas changed a result."""

from __future__ import annotations

from pathlib import Path

import pytest

from tritonhook.report.results.verification import VerifiedKernel
from tritonhook.verify.differential import Verified
from tritonhook.verify.judgement import Judgement, Observation
from tritonhook.verify.model import Build, Verdict


@pytest.mark.parametrize(
    ("groups", "text"),
    [
        ((("PTX", "1.1 -O0"), ("1.1 -O3",)), "the optimiser of ptxas 1.1"),
        ((("PTX",), ("1.1 -O0", "1.1 -O3")), "ptxas 1.1 changes the result at -O0 already"),
        ((("PTX",), ("1.1 -O3",), ("1.1 -O0",)), "ptxas 1.1 changes the result at -O0 already"),
        ((("PTX", "1.1 -O0", "1.1 -O3"), ("2.2 -O3",)), ""),
        ((("PTX",), ("1.1 -O3",)), ""),
        ((("1.1 -O0",), ("1.1 -O3",)), ""),
    ],
)
def test_the_step_that_changed_the_result(groups, text):
    worst = Observation(Verdict.DIFFERENT, "other", "normal", "1.1 -O3")
    versions = {"PTX": None, "1.1 -O3": "1.1", "1.1 -O0": "1.1", "2.2 -O3": "2.2"}
    builds = tuple(Build(label, Path(label), "k", version) for label, version in versions.items())
    kernel = VerifiedKernel.of(Verified("k", "", Judgement(worst.verdict, (worst,)), builds, groups=groups))
    assert kernel.stage.startswith(text) and bool(kernel.stage) == bool(text)
    assert any("ptxas 1.1" in fact for fact in kernel.facts()) == bool(text)
