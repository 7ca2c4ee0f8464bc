"""One kernel under two names as a result: what its summary says."""

from __future__ import annotations

import pytest
from documents import golden, summary_of

from tritonhook.report.result import Tone


@pytest.mark.parametrize(
    ("neutral", "difference", "said"),
    [
        (True, None, "the code of the name without the trigger, byte for byte"),
        (False, "different code: 3 of 9 only in a", "under this ordinary name: different code: 3 of 9"),
        (None, None, "not assembled"),
    ],
)
def test_the_control_is_told(neutral: bool | None, difference: str | None, said: str) -> None:
    document = golden("names") | {"control_is_neutral": neutral, "control_diff": difference}
    (note,) = (n for n in summary_of(document).notes if n.startswith("control "))
    assert document["control"]["kernel"] in note and said in note


def test_names_that_all_change_the_code_are_not_called_the_same() -> None:
    """The two names of equal length have one code, and the kernel's own name has another."""
    document = golden("names") | {"control_is_neutral": False, "control_diff": "different code: 3 of 9 only in a"}
    document["diff"] |= {"verdict": "same code", "summary": "same code: 20 instructions"}
    summary = summary_of(document)
    assert "same" not in summary.verdict and summary.tone is Tone.UNSURE
    assert all("changes nothing" not in fact for fact in summary.facts)
    assert any(f"{document['original']['kernel']} has another: different code: 3 of 9" in f for f in summary.facts)


def test_an_unsteady_ptxas_is_told_with_its_codes() -> None:
    document = golden("names") | {"runs": 8, "codes_seen": {"original": 1, "renamed": 3, "control": 2}}
    (fact,) = (f for f in summary_of(document).facts if "not deterministic" in f)
    names = [document[side]["kernel"] for side in ("original", "renamed", "control")]
    assert f"different codes in 8 runs: 1 for {names[0]}, 3 for {names[1]}, 2 for {names[2]}" in fact
    assert "no code is common to all" in fact
