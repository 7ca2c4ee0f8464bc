"""Run a program to its end, and check how it ended."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import warm
from hangs import HANG_S
from repository import ROOT

Done = subprocess.CompletedProcess[str]


def ended(
    command: Sequence[str | Path], folder: Path, env: Mapping[str, str], status: int | None = 0, fresh: bool = False
) -> Done:
    """Run a command in a folder. status: how it has to end; None: in any way. fresh: forked from no warm process."""
    if not fresh and warm.forks(command):
        done = warm.run(command, folder, env)
    else:
        done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=HANG_S, check=False)
    assert status in (None, done.returncode), done.stderr
    return done


def python_ended(
    *words: str,
    folder: Path,
    status: int | None = 0,
    without: Sequence[str] = (),
    fresh: bool = False,
    **env: str,
) -> Done:
    """Run this Python, which finds the checkout. without: beginnings of variables that it does not get."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(tuple(without))}
    return ended([sys.executable, *words], folder, {**kept, "PYTHONPATH": str(ROOT), **env}, status, fresh)
