"""Bad input: the error says what is wrong and what to give in its place."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import failing
from repository import ROOT

from tritonhook.capture.model import Capture, Stage
from tritonhook.capture.store import CaptureWriter


@pytest.fixture
def captures(tmp_path: Path, plain: Path) -> Path:
    """A folder with one captured kernel, which has PTX only."""
    out = tmp_path / "captures"
    CaptureWriter(out).add_files(Capture("work", "ab" * 32, "sm_90a", {}), {Stage.PTX: str(plain)})
    return out


def record(captures: Path) -> Path:
    (found,) = (captures / "kernels").iterdir()
    return found


KERNEL_VERBS = ["diff --rename", "lab probe", "mem predict --gpu H200"]


@pytest.mark.parametrize("verb", KERNEL_VERBS)
def test_a_damaged_capture_is_named(verb: str, captures: Path, capsys: pytest.CaptureFixture) -> None:
    (record(captures) / "capture.json").write_text('{"kernel"')
    name, *options = verb.split(" --")
    error = failing(capsys, *name.split(), str(captures), *f"--{options[0]}".split() if options else ())
    assert error.startswith(f"tritonhook {name}: {record(captures)}/capture.json: damaged")
    assert "capture the kernel again" in error


@pytest.mark.parametrize("verb", KERNEL_VERBS)
def test_a_folder_without_kernels_is_said(verb: str, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    CaptureWriter(tmp_path / "none").close()
    name, *options = verb.split(" --")
    error = failing(capsys, *name.split(), str(tmp_path / "none"), *f"--{options[0]}".split() if options else ())
    assert error.startswith(f"tritonhook {name}: {tmp_path / 'none'}: no kernel")


def test_an_interrupt_while_the_command_loads_has_no_traceback(tmp_path: Path) -> None:
    (tmp_path / "argparse.py").write_text("raise KeyboardInterrupt\n")  # the command line loads it
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (tmp_path, ROOT)))}
    done = subprocess.run(
        [sys.executable, "-m", "tritonhook", "status"], env=environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "tritonhook: interrupted\n")
