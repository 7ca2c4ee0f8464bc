"""The package as a whole: what importing it costs and offers, and whom it knows."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import sm120_attn

PACKAGE = Path(sm120_attn.__file__).parent


def test_import_loads_nothing_heavy() -> None:
    code = (
        "import sys, sm120_attn, sm120_attn.config, sm120_attn.verify.cases; "
        "print(sorted({m.split('.')[0] for m in sys.modules} & {'torch', 'cutlass', 'cuda', 'tvm_ffi'}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=PACKAGE.parent)
    assert done.stdout.strip() == "[]"


def test_no_verb_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    from sm120_attn.__main__ import main

    with pytest.raises(SystemExit) as ended:
        main([])
    assert ended.value.code == 2
    assert "check|bench|inspect|selftest" in capsys.readouterr().err


@pytest.mark.parametrize(
    "verb", [*(pytest.param(v, marks=pytest.mark.nightly) for v in ("check", "bench")), "selftest"]
)
def test_without_a_gpu_a_verb_says_so_in_one_line(verb: str, tmp_path: Path) -> None:
    # given neither a GPU nor, mostly, torch
    out = ["--out", str(tmp_path / "selftest.json")] if verb == "selftest" else []
    environment = os.environ | {"PYTHONPATH": str(PACKAGE.parent), "CUDA_VISIBLE_DEVICES": ""}

    # when
    done = subprocess.run(
        [sys.executable, "-m", "sm120_attn", verb, *out], capture_output=True, text=True, env=environment, check=False
    )

    # then
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.count("\n") == 1 and f"sm120_attn {verb}: needs" in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["check", "--only", "no such case"],
            "--only 'no such case': no case has this text in its name; one ",
        ),
        (["check", "--random", "-1"], "--random -1: must be at least 0"),
        (["check", "--jobs", "0"], "--jobs 0: must be at least 1"),
        (["check", "--json", "/nowhere/a.json"], "/nowhere/a.json: the folder /nowhere does not exist; make it first"),
        (
            ["selftest", "--out", "/nowhere/a.json"],
            "/nowhere/a.json: the folder /nowhere does not exist; make it first",
        ),
        (["selftest", "--jobs", "0"], "--jobs 0: must be at least 1"),
    ],
)
def test_what_could_not_end_well_does_not_begin(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    from sm120_attn.__main__ import main

    assert main(arguments) == 2
    assert capsys.readouterr().err.startswith(f"sm120_attn {arguments[0]}: {said}")
