"""The programs of docs/explanation/findings.md have the findings that stand below them."""

from __future__ import annotations

import re

import pytest
from ended import python_ended
from repository import ROOT

pytest.importorskip("torch")
PROGRAM = re.compile(r"```python\n(.*?)```\n\nFinding: (.*?)\.\n", re.DOTALL)
PROGRAMS = dict(
    zip(
        ("lock", "overwritten", "behind"),
        PROGRAM.findall((ROOT / "docs/explanation/findings.md").read_text()),
        strict=True,
    )
)
WANTED = {
    "lock": ("race", "argument total"),
    "overwritten": ("race", "shared address", "the compiler ordered these, not the source: try num_stages=1"),
    "behind": ("copy by descriptor", "0 bytes beyond the end of argument d"),
}


def sanitized(text, folder, status):
    (folder / "program.py").write_text(text)
    options = ("--arch", "sm_90a", "--emulate", "--sanitize", "--bounds", "view", "program.py")
    return python_ended(
        "-m", "tritonhook", "run", *options, folder=folder, status=status, without=["TRITONHOOK"]
    ).stderr


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_has_its_finding(name, tmp_path):
    shown = sanitized(PROGRAMS[name][0], tmp_path, 1)
    assert [words for words in WANTED[name] if words not in shown] == [], shown


def test_the_lock_with_its_barrier_is_healthy(tmp_path):
    text = PROGRAMS["lock"][0].replace("    tl.atomic_xchg", "    tl.debug_barrier()\n    tl.atomic_xchg")
    assert "no fault found" in sanitized(text, tmp_path, 0)
