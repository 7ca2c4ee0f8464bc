"""Slow work says what it is on standard error: lines in a file, a bar on a terminal, nothing where it is not wanted."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from shell_ptxas import shell_ptxas

from tritonhook.cli import _progress, main
from tritonhook.ptxas.tool import find_ptxas


@pytest.fixture(autouse=True)
def no_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    """Here progress is wanted, and at once."""
    monkeypatch.setattr(_progress, "DELAY_S", 0.0)
    monkeypatch.delenv("TRITONHOOK_QUIET", raising=False)


@pytest.fixture
def slow_ptxas(tmp_path: Path) -> str:
    """A ptxas that takes half a second longer."""
    return str(shell_ptxas(tmp_path, find_ptxas(), "sleep 0.5").path)


VERBS: list[tuple[Callable[[str], list[str]], str]] = [
    (lambda ptx: ["diff", ptx, ptx], "tritonhook: assembling and comparing both sides ..."),
    (lambda ptx: ["diff", "--rename", ptx], "tritonhook: assembling work under three names with ptxas"),
    (lambda ptx: ["mem", "predict", ptx, "--gpu", "H100"], "tritonhook: reading and assembling the kernels ..."),
    (lambda ptx: ["lab", "probe", ptx, "--names", "cutlass_*", "--no-cache"], "tritonhook: assembling with ptxas"),
]


@pytest.mark.parametrize(("words", "line"), VERBS, ids=["diff", "diff --rename", "mem predict", "probe"])
def test_a_verb_says_what_it_does(
    words: Callable[[str], list[str]], line: str, plain: Path, slow_ptxas: str, capsys: pytest.CaptureFixture
) -> None:
    assert main([*words(str(plain)), "--ptxas", slow_ptxas, "--json"]) in (0, 1)
    captured = capsys.readouterr()
    assert any(said.startswith(line) for said in captured.err.splitlines()), captured.err
    assert captured.out.startswith("{")


def test_quick_work_and_quiet_work_say_nothing(
    plain: Path, slow_ptxas: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setenv("TRITONHOOK_QUIET", "1")
    assert main(["diff", str(plain), str(plain), "--ptxas", slow_ptxas]) == 0
    assert capsys.readouterr().err == ""
    monkeypatch.delenv("TRITONHOOK_QUIET")
    monkeypatch.setattr(_progress, "DELAY_S", 60.0)
    assert main(["diff", str(plain), str(plain), "--ptxas", slow_ptxas]) == 0
    assert capsys.readouterr().err == ""


def test_a_terminal_gets_a_bar_that_goes_away(plain: Path, slow_ptxas: str) -> None:
    words = [sys.executable, "-m", "tritonhook", "lab", "probe", str(plain), "--names", "gemm_*", "--no-cache"]
    words += ["--ptxas", slow_ptxas, "--json"]
    here, there = pty.openpty()
    done = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=there, env=os.environ | {"COLUMNS": "100"})
    os.close(there)
    shown = b""
    while True:
        try:
            shown += os.read(here, 4096)
        except OSError:  # the other end is closed
            break
    assert done.communicate()[0].startswith(b"{") and done.returncode == 0
    text = shown.decode()
    assert re.search(r"[1-3]/3", text)
    assert "\x1b[2K" in text  # the bar's line was erased
