"""Captured kernels of a lock, where ptxas gives one input several codes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tritonhook.capture.model import Capture, Stage
from tritonhook.ptxas.tool import Tool
from tritonhook.snapshot import lockable as module
from tritonhook.snapshot.changes import ChangeStatus, compare
from tritonhook.snapshot.facts import FIGURES, Identity, KernelFacts


def captured(code: str) -> tuple[Capture, KernelFacts]:
    """A kernel for sm_100a that was compiled to this code."""
    figures = dict.fromkeys(FIGURES, 1)
    facts = KernelFacts(
        Identity("k", "sm_100a", "Triton"), "k", {"ptx": "p"}, "p", "12.9.86", ("-v",), (code,), figures
    )
    return Capture("k", "0", "sm_100a", {Stage.PTX: "ptx"}), facts


@pytest.fixture
def draws(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The codes that ptxas gives the kernel, whatever the captures say. The test fills it."""
    codes: list[str] = []
    monkeypatch.setattr(
        "tritonhook.snapshot.assembled.find_ptxas", lambda version: Tool(Path("ptxas"), version, "a test")
    )
    monkeypatch.setattr(module, "codes_of", lambda tasks, run, runs: [tuple(codes) for _ in tasks])
    return codes


def codes_of(made: Sequence[tuple[Any, str | None]]) -> list[tuple[str, ...]]:
    return [locked.codes for locked, _ in made]


def test_a_new_lock_keeps_all_codes(draws: list[str]) -> None:
    draws += ["b", "c"]
    assert codes_of(module.lockable([captured("a")])) == [("a", "b", "c")]


@pytest.mark.parametrize(
    ("code", "others", "status"),
    [
        ("a", [], ChangeStatus.SAME),
        ("d", ["a", "d"], ChangeStatus.SAME),  # a draw that the lock has not seen
        ("d", ["a", "b"], ChangeStatus.CHANGED),  # ptxas never gives this code, so that somebody changed it
        ("d", ["d", "e"], ChangeStatus.CHANGED),
    ],
)
def test_only_what_ptxas_gives_again_is_a_draw(
    draws: list[str], code: str, others: list[str], status: ChangeStatus
) -> None:
    known = [captured("a")[1]]
    draws += others
    ((now, _),) = module.lockable([captured(code)], known)
    (change,) = compare(known, [now])
    assert change.status is status
