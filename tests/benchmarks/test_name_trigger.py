"""The records that benchmarks/lab/name_trigger.py keeps of every cell."""

from __future__ import annotations

from dataclasses import replace

from benchmarks.lab import name_trigger
from tests.report.results.test_probe import CHANGED, CRASH, NO_ANSWER, SAME, SETUP


def test_every_cell_has_a_sign_and_digests() -> None:
    older = replace(SETUP, ptxas="11.8.89")
    cells = [SAME, CHANGED, replace(NO_ANSWER, setup=older), replace(CRASH, setup=older, template="x_*")]
    assert name_trigger.records(cells) == {
        "fma/loop sm_90a": {
            "12.8.93": [".D", "ab", "aa", "bb/aa"],
            "11.8.89": ["- X", "a b", "", "/aa"],
        }
    }
