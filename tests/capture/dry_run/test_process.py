"""A process of a dry run: the limit for ptxas, and what begins and ends with it, in this process."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest

pytest.importorskip("triton", minversion="3.6")


from tritonhook.capture.dry_run import process


def test_a_program_is_ended_when_it_takes_too_long() -> None:
    assert process._status(subprocess.Popen(["sh", "-c", "exit 3"]), 600) == 3
    sleeping = subprocess.Popen(["sleep", "600"])
    assert process._status(sleeping, 0.01) is None and sleeping.returncode == -9


def test_a_program_does_not_outlive_this_thread(monkeypatch) -> None:
    sleeping = subprocess.Popen(["sleep", "600"])
    wait = sleeping.wait

    def interrupted(*given: Any, **named: Any) -> Any:
        monkeypatch.setattr(sleeping, "wait", wait)
        raise KeyboardInterrupt

    monkeypatch.setattr(sleeping, "wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        process._status(sleeping, 600)
    assert sleeping.returncode == -9
