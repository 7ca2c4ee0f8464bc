"""Which kernel computes an operator on which GPU, and the command line without a GPU."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from gluon_kernels import cli
from gluon_kernels.api import attention, kernels_for
from gluon_kernels.cli import main

ROOT = Path(__file__).parents[2]


def test_every_architecture_has_its_kernels_fastest_first():
    assert kernels_for(80) == kernels_for(120) == kernels_for(121) == ("mma",)
    assert kernels_for(90) == ("hopper", "mma")
    assert kernels_for(100) == kernels_for(103) == ("blackwell",)
    with pytest.raises(ValueError, match="sm_75: there are kernels for sm_80, sm_90"):
        kernels_for(75)


def test_a_tensor_that_is_not_on_a_gpu_is_named():
    pytest.importorskip("torch", reason="needs torch")
    q = SimpleNamespace(device=SimpleNamespace(type="cpu", __str__=lambda self: "cpu"))
    with pytest.raises(ValueError, match="the kernels run on CUDA devices"):
        attention(q, q, q)


@pytest.mark.parametrize("verb", ["check", "bench", "tune"])
def test_without_a_gpu_the_command_says_so_in_one_line(verb):
    environment = {"PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": "", "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        [sys.executable, "-m", "gluon_kernels", verb], capture_output=True, text=True, env=environment, check=False
    )
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.count("\n") == 1 and f"python -m gluon_kernels {verb}: needs" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["check", "--dtypes", "fp7"], "invalid choice: 'fp7'"),
        (["check", "--head-dims", "0"], "'0' is not a number of at least 1"),
        (["bench", "--rounds", "0"], "'0' is not a number of at least 1"),
        (["tune", "--dtype", "fp8e5"], "invalid choice: 'fp8e5'"),
        (["tune", "--head-dim", "17"], "invalid choice: 17"),
    ],
)
def test_wrong_arguments_are_named(arguments, message, capsys):
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert message in capsys.readouterr().err


def test_a_verb_that_cannot_go_on_says_why(monkeypatch, capsys):
    def stopped(options):
        raise ValueError("no candidate could be timed")

    monkeypatch.setattr(cli, "_why_not", lambda: None)
    monkeypatch.setattr(cli, "_tune", stopped)
    assert main(["tune"]) == 2
    assert capsys.readouterr().err == "python -m gluon_kernels tune: no candidate could be timed\n"
