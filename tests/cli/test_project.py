"""Settings in pyproject.toml and in variables, what `status` says of them, and the shell's completion."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from command_line import failing
from hangs import HANG_S
from repository import ROOT

from tritonhook.cli import main
from tritonhook.ptxas.tool import available_ptxas

TABLE = """
[tool.tritonhook]
out = "kept"
only = "add"
ptxas = "{version}"
rewrites = ["mma-throughput"]
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project whose pyproject.toml has the table; the current folder lies below it."""
    version = next(iter(available_ptxas())).version
    (tmp_path / "pyproject.toml").write_text(TABLE.format(version=version))
    below = tmp_path / "src" / "package"
    below.mkdir(parents=True)
    monkeypatch.chdir(below)
    for name in ("TRITONHOOK_OUT", "TRITONHOOK_PTXAS"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def test_lock_and_check_take_the_lock_of_the_project(project: Path, capsys: pytest.CaptureFixture) -> None:
    (project / "pyproject.toml").write_text('[tool.tritonhook]\nlock = "locks/gpu.lock"\n')
    lock = project / "locks" / "gpu.lock"
    assert failing(capsys, "check", str(project)).startswith(f"tritonhook check: {lock}: cannot read")
    assert f"{lock}: cannot write: the folder {lock.parent} does not exist" in failing(capsys, "lock", "captures")
    (project / "pyproject.toml").unlink()
    assert "check: tritonhook.lock: cannot read" in failing(capsys, "check")


def test_status_lists_the_project_and_every_variable(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    for name in ("TRITONHOOK_QUIET", "TRITONHOOK_CACHE"):
        monkeypatch.setenv(name, "1")
    assert main(["status", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["project"]["path"] == str(project / "pyproject.toml")
    assert document["project"]["rewrites"] == "mma-throughput" and document["project"]["out"] == str(project / "kept")
    assert {"TRITONHOOK_QUIET", "TRITONHOOK_CACHE"} <= set(document["environment"])
    assert "TRITONHOOK_OUT" not in document["environment"]  # it is set by the project, not by the user


def test_a_policy_of_the_project_goes_with_no_other_change(project: Path, capfd: pytest.CaptureFixture) -> None:
    (project / "pyproject.toml").write_text('[tool.tritonhook]\npolicy = "gone.toml"\n')
    Path("script.py").touch()
    assert main(["run", "script.py"]) == 2
    assert "gone.toml: cannot read the policy" in capfd.readouterr().err
    for change in (["--strip"], ["--rewrite", "tma-cta"], ["--options=-O1"], ["--pin", "pins.toml"]):
        assert main(["run", *change, "script.py"]) == 0


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ('rewrite = ["tma-cta"]', "no such setting: rewrite; did you mean rewrites?"),
        ("out = 3", "out = 3: give it as text"),
        ('rewrites = ["tma"]', "give a list of tma-cta, mma-throughput"),
        ('ptxas = "./ptxas"', "give a version; for a path, use --ptxas PATH"),
        ("out = ", "no TOML that can be read"),
    ],
)
def test_a_wrong_setting_is_an_error(line: str, error: str, project: Path, capsys: pytest.CaptureFixture) -> None:
    (project / "pyproject.toml").write_text(f"[tool.tritonhook]\n{line}\n")
    message = failing(capsys, "status")
    assert message.startswith(f"tritonhook status: {project / 'pyproject.toml'}: ") and error in message


def test_every_variable_is_documented() -> None:
    documented = (ROOT / "docs" / "reference" / "environment.md").read_text()
    sources = " ".join(path.read_text() for path in (ROOT / "tritonhook").rglob("*.py"))
    names = set(re.findall(r"TRITONHOOK_[A-Z]+(?:_[A-Z]+)*", sources))
    assert len(names) > 10
    assert {name for name in names if f"`{name}`" not in documented} == set()


@pytest.mark.machine
@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
@pytest.mark.parametrize(
    ("words", "completed"),
    [("dif", "diff"), ("diff --ma", "--markdown"), ("mem pre", "predict"), ("run --rewrite tma", "tma-cta")],
)
def test_bash_completes(words: str, completed: str, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    assert main(["completion", "bash"]) == 0
    script = tmp_path / "completion"
    script.write_text(capsys.readouterr().out)
    given = words.split()
    line = (
        f"source {script}; COMP_WORDS=(tritonhook {words}); COMP_CWORD={len(given)}; "
        'COMP_LINE="${COMP_WORDS[*]}"; _shtab_tritonhook; echo "${COMPREPLY[@]}"'
    )
    done = subprocess.run(
        ["bash", "-c", line], capture_output=True, text=True, check=True, timeout=HANG_S, stdin=subprocess.DEVNULL
    )
    assert completed in done.stdout.split()


@pytest.mark.parametrize("shell", ["zsh", "fish", "tcsh"])
def test_other_shells_get_a_script(shell: str, capsys: pytest.CaptureFixture) -> None:
    assert main(["completion", shell]) == 0
    assert "tritonhook" in capsys.readouterr().out
