"""The command line, without a GPU: options, what it runs and prints, and its exit code."""

import subprocess
import sys
from types import SimpleNamespace

import pytest
from repository import ROOT

from gluon_kernels import cli
from gluon_kernels.cli import main
from gluon_kernels.verify import check
from gluon_kernels.verify.check import Case, Verdict

VERBS = ("check", "bench", "tune")
RIGHT = Verdict(Case(64, 64), error=1.0, allowed=8.0)
WRONG = Verdict(Case(1, 1), error=9.0, allowed=2.0, reason="too far off")
SKIPPED = Verdict(Case(0, 1), skipped="too large")


def command(line):
    return main(line.split())


@pytest.mark.parametrize("verb", VERBS)
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
        ([], "arguments are required: verb"),
        (["check", "--kernel", "cutlass"], "invalid choice: 'cutlass'"),
        (["check", "--dtypes", "fp7"], "invalid choice: 'fp7'"),
        (["check", "--head-dims", "two"], "'two' is not a number of at least 1"),
        (["bench", "--baselines", "luck"], "invalid choice: 'luck'"),
        (["check", "--head-dims", "0"], "'0' is not a number of at least 1"),
        (["bench", "--rounds", "0"], "'0' is not a number of at least 1"),
        (["tune", "--dtype", "fp8e5"], "invalid choice: 'fp8e5'"),
        (["tune", "--head-dim", "17"], "invalid choice: 17"),
        (["tune", "--batch", "0"], "'0' is not a number of at least 1"),
        (["tune", "--length", "\N{SUPERSCRIPT TWO}"], "is not a number of at least 1"),
    ],
)
def test_wrong_arguments_are_named(arguments, message, capsys):
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    told = capsys.readouterr().err
    assert message in told and told.startswith(" ".join(["usage: python -m gluon_kernels", *arguments[:1]]))


@pytest.fixture
def gpu(monkeypatch):
    """An sm_90 GPU; its kernels are texts."""
    monkeypatch.setattr(cli, "_why_not", lambda: None)
    monkeypatch.setattr(cli, "_arch", lambda: 90)
    monkeypatch.setattr(cli, "launcher", lambda kernel: SimpleNamespace(attention=f"attention of {kernel}"))


@pytest.mark.parametrize(
    ("verdicts", "hard", "code"),
    [
        ([RIGHT], 0, 0),
        ([RIGHT], 1, 1),
        ([RIGHT, WRONG], 0, 1),
        ([RIGHT, WRONG], 1, 1),
        ([WRONG], 0, 1),
        ([SKIPPED], 0, 2),
        ([RIGHT, SKIPPED], 0, 0),
        ([], 0, 2),
    ],
)
def test_check_is_right_wrong_or_not_run(gpu, monkeypatch, verdicts, hard, code):
    monkeypatch.setattr(check, "run", lambda *_, **__: verdicts)
    monkeypatch.setattr(cli, "_check_accuracy", lambda *_: hard)
    assert command("check --kernel mma --dtypes fp8e5 --head-dims 64") == code
