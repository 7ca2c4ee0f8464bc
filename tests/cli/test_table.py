"""`tritonhook demo` and its table on an installation that lacks the published ptxas, or Triton."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest
from command_line import failing

from tritonhook.cli import main
from tritonhook.errors import ToolError
from tritonhook.ptxas.tool import Tool, find_ptxas

MISSING = "12.8.1"  # no such ptxas was ever released


@pytest.fixture
def lacking(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[str], Tool]], None]:
    """An installation without the published ptxas; takes what fetching it does. Nothing is assembled."""
    monkeypatch.setattr("tritonhook.cli.demo.PTXAS", MISSING)
    monkeypatch.setattr("tritonhook.cli.demo.measure", lambda *words: iter(()))
    return lambda fetch: monkeypatch.setattr("tritonhook.cli.demo.add_ptxas", fetch)


def test_without_a_network_the_ptxas_at_hand_is_used_and_named(lacking, capsys: pytest.CaptureFixture) -> None:
    def fetch(version: str) -> Tool:
        raise ToolError("pip could not fetch it: no network")

    lacking(fetch)
    assert main(["demo", "--table"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert f"ptxas {MISSING}, the version of the published table, could not be fetched" in shown
    assert f"the installed ptxas {find_ptxas().version} is used" in shown and "no network" in shown


def test_a_ptxas_that_was_asked_for_is_not_replaced(lacking, capsys: pytest.CaptureFixture) -> None:
    lacking(lambda version: pytest.fail("it was fetched"))
    assert "ptxas 1.2.3: not found" in failing(capsys, "demo", "--table", "--ptxas", "1.2.3")


def test_the_demo_without_triton_says_so_before_any_work(monkeypatch, lacking, capsys: pytest.CaptureFixture) -> None:
    lacking(lambda version: pytest.fail("it was fetched"))
    monkeypatch.setitem(sys.modules, "triton", None)
    error = failing(capsys, "demo")
    assert error.startswith("tritonhook demo: Triton is not installed") and "pip install triton" in error
