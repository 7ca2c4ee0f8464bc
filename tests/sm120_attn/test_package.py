"""The package as a whole: what importing it costs and offers, and whom it knows."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import sm120_attn
from sm120_attn.verify import requirements

PACKAGE = Path(sm120_attn.__file__).parent


def test_import_loads_nothing_heavy() -> None:
    code = (
        "import sys, sm120_attn, sm120_attn.config, sm120_attn.verify.cases; "
        "print(sorted({m.split('.')[0] for m in sys.modules} & {'torch', 'cutlass', 'cuda', 'tvm_ffi'}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=PACKAGE.parent)
    assert done.stdout.strip() == "[]"


def test_every_public_name_resolves() -> None:
    for name in sm120_attn.__all__:
        if name in ("attention", "attention_reference"):
            pytest.importorskip("torch", reason="attention needs torch: pip install torch")
        assert getattr(sm120_attn, name).__doc__


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = sm120_attn.nonsense


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: path.name)
def test_only_the_inspector_knows_another_package(path: Path) -> None:
    tree = ast.parse(path.read_text())
    names = {n.module or "" for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) and n.level == 0}
    names |= {alias.name for n in ast.walk(tree) if isinstance(n, ast.Import) for alias in n.names}
    known = {"gluon_kernels"} if path.name == "inspect.py" else {"gluon_kernels", "tritonhook"}
    assert not {name.split(".")[0] for name in names} & known


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
            "--only 'no such case': no case has this in its name; one ",
        ),
        (["check", "--random", "-1"], "--random -1: at least 0"),
        (["check", "--jobs", "0"], "--jobs 0: at least 1"),
        (["check", "--json", "/nowhere/a.json"], "/nowhere/a.json: the folder /nowhere does not exist; make it first"),
        (["bench", "--json", "/nowhere/a.json"], "/nowhere/a.json: the folder /nowhere does not exist; make it first"),
        (
            ["selftest", "--out", "/nowhere/a.json"],
            "/nowhere/a.json: the folder /nowhere does not exist; make it first",
        ),
        (["selftest", "--jobs", "0"], "--jobs 0: at least 1"),
    ],
)
def test_what_could_not_end_well_does_not_begin(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    from sm120_attn.__main__ import main

    assert main(arguments) == 2
    assert capsys.readouterr().err.startswith(f"sm120_attn {arguments[0]}: {said}")


@pytest.mark.parametrize("text", ["sm_120a", "sm_90:132", "sm_120a:many", "sm_120a:0"])
def test_a_target_of_compile_only_is_an_arch_and_a_number(text: str) -> None:
    from sm120_attn.verify import check

    assert check.parse_target("sm_120a:170") == ("sm_120a", 170)
    with pytest.raises(ValueError, match=re.escape(f"--compile-only {text!r}: must be ARCH:SMS")):
        check.parse_target(text)


def test_a_file_is_not_promised_where_none_can_be(tmp_path: Path) -> None:
    requirements.require_folder(None)
    requirements.require_folder(tmp_path / "new.json")
    with pytest.raises(ValueError, match="is a folder"):
        requirements.require_folder(tmp_path)
    with pytest.raises(ValueError, match="does not exist"):
        requirements.require_folder(tmp_path / "a" / "new.json")
