"""The GitHub Action: its steps run from action.yml, on a repository with one kernel, with a stand-in for gh."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import warm
from ended import python_ended
from repository import GOLDEN, ROOT, SUPPORT
from workflows import Runner, read_yaml

from tritonhook.cli import parser

pytest.importorskip("triton", minversion="3.6")

ACTION = read_yaml(ROOT / "action.yml")
SCRIPT = f"""
import sys
sys.path.insert(0, {str(SUPPORT)!r})
import triton, triton_kernels as kernels
from fake_tensors import Storage, Tensor
x = Tensor(Storage(1 << 20, 4000))
kernels.add_kernel[(8,)](x, x, x, 1000, BLOCK=128, num_warps=2)
"""
INSTALL = "Install tritonhook"
TRITONHOOK = """#!/bin/sh
echo "$@" >> '{log}'
case "$1 $2" in "ptxas add") exit 0;; esac
PYTHONPATH='{root}' exec '{python}' '{warm}' -m tritonhook "$@"
"""
Use = Callable[..., Runner]
Lock = Callable[[Path], Path]


@pytest.fixture
def use(tmp_path: Path, warm_start: None) -> Use:
    """Run the action with inputs; install: also its installation, in an environment of its own."""
    project, folder, state = tmp_path / "project", tmp_path / "bin", tmp_path / "gh.json"
    project.mkdir()
    folder.mkdir()
    state.write_text(json.dumps({"comments": [], "calls": []}))
    (project / "kernels.py").write_text(SCRIPT)
    programs = {
        "gh": f"#!/bin/sh\nexec '{sys.executable}' '{SUPPORT / 'fake_gh.py'}' \"$@\"\n",
        "tritonhook": TRITONHOOK.format(
            log=tmp_path / "words", root=ROOT, python=sys.executable, warm=SUPPORT / "warm.py"
        ),
    }
    for name, text in programs.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    environment = {
        "FAKE_GH": str(state),
        "GITHUB_EVENT_PATH": str(GOLDEN / "github" / "pull_request.json"),
        "GITHUB_REPOSITORY": "hello/kernels",
        "GITHUB_SHA": "0" * 40,
        "GITHUB_WORKSPACE": str(project),
        "GITHUB_ACTION_PATH": str(ROOT),
        warm.SERVER: os.environ[warm.SERVER],
        "TRITON_CACHE_DIR": str(tmp_path / "cache"),
        "TRITONHOOK_CACHE": str(tmp_path / "results"),
    }
    usual = {name: one.get("default", "") for name, one in ACTION["inputs"].items()}

    def run(install: bool = False, **inputs: str) -> Runner:
        given = usual | {name.replace("_", "-"): value for name, value in inputs.items()}
        runner = Runner(project, tmp_path / "runner", {"inputs": given}, dict(environment))
        Path(runner.environment["GITHUB_PATH"]).write_text(f"{folder}\n")
        if install:
            runner.run([{"uses": "actions/setup-python"}])
        return runner.run(ACTION["runs"]["steps"], skip=() if install else (INSTALL,))

    return run


def words(tmp_path: Path) -> list[str]:
    return (tmp_path / "words").read_text().splitlines()


@pytest.fixture(scope="module")
def lock(tmp_path_factory: pytest.TempPathFactory, warm_start: None) -> Lock:
    """Lock what the command compiles now, in the project of a test."""
    folder = tmp_path_factory.mktemp("locked")
    (folder / "kernels.py").write_text(SCRIPT)
    (folder / "locked").mkdir()
    lock = ["lock", "before", "-o", "locked/tritonhook.lock"]
    for words in (["run", "--arch", "sm_90a", "--out", "before", "kernels.py"], lock):
        python_ended("-m", "tritonhook", *words, folder=folder, TRITON_CACHE_DIR=str(folder / "cache"))
    return lambda tmp_path: shutil.copytree(folder / "locked", tmp_path / "project", dirs_exist_ok=True)


def test_a_pull_request_that_changes_a_kernel(use: Use, tmp_path: Path, lock: Lock) -> None:
    lock(tmp_path)
    same = use(command="kernels.py", arch="sm_90a")
    assert not same.failed, same.output
    assert json.loads((tmp_path / "gh.json").read_text())["comments"] == []
    script = tmp_path / "project" / "kernels.py"
    script.write_text(SCRIPT.replace("kernels.add_kernel[", "kernels.other_add_kernel()["))
    changed = use(command="kernels.py", arch="sm_90a", fail_on="code", verify="known")
    assert changed.failed
    (comment,) = json.loads((tmp_path / "gh.json").read_text())["comments"]
    assert "fails: code: 1 kernel" in comment["body"] and "add\\_kernel" in comment["body"]
    summary = Path(changed.environment["GITHUB_STEP_SUMMARY"]).read_text()
    assert "add\\_kernel" in summary and "tritonhook verify" in " ".join(f"tritonhook {it}" for it in words(tmp_path))
    report = tmp_path / "runner" / "artifacts" / "tritonhook-report" / "captures.html"
    assert "add_kernel" in report.read_text()


def test_each_architecture_runs_and_each_ptxas_assembles(
    use: Use, tmp_path: Path, lock: Callable[[Path], Path]
) -> None:
    lock(tmp_path)
    found = use(command="kernels.py --flag", arch="sm_80, sm_90a", ptxas="12.8.93", fail_on="spills,gone")
    assert not found.failed, found.output
    runs = [line for line in words(tmp_path) if line.startswith("run ")]
    assert [line.split()[4] for line in runs] == ["sm_80", "sm_90a"] and all("kernels.py --flag" in it for it in runs)
    assert "ptxas add 12.8.93" in words(tmp_path)
    summary = Path(found.environment["GITHUB_STEP_SUMMARY"]).read_text()
    assert "1 new" in summary and "add\\_kernel sm\\_80" in summary  # beside the kernel of the lock
    checks = [line for line in words(tmp_path) if line.startswith("check ")]
    assert len(checks) == 2 and "--ptxas 12.8.93" in checks[1]
    assert all("--fail-on spills,gone" in line and "--github" in line for line in checks)


def test_a_lock_alone_is_assembled(use: Use, tmp_path: Path, lock: Lock) -> None:
    lock(tmp_path)
    assert not use().failed
    assert [line.split()[:3] for line in words(tmp_path)] == [["check", "--fail-on", "spills,stack"]]


@pytest.mark.parametrize(("emulate", "more"), [("true", ""), ("sanitize", " --kernel-sanitize")])
def test_tests_run_with_real_values_and_need_no_lock(use: Use, tmp_path: Path, emulate: str, more: str) -> None:
    (tmp_path / "bin" / "pytest").write_text(f"#!/bin/sh\necho \"$@\" >> '{tmp_path / 'words'}'\n")
    (tmp_path / "bin" / "pytest").chmod(0o755)
    done = use(command="pytest tests -x", arch="sm_90a,sm_120a", emulate=emulate)
    assert not done.failed and "the kernels are not compared" in done.output, done.output
    usual = "--kernel-captures tritonhook-captures --kernel-emulate"
    assert words(tmp_path) == [f"tests -x --kernel-arch {arch} {usual}{more}" for arch in ("sm_90a", "sm_120a")]


def test_a_script_is_emulated(use: Use, tmp_path: Path) -> None:
    (tmp_path / "project" / "kernels.py").write_text("print('began')\n")
    done = use(command="kernels.py", arch="sm_90a", emulate="true")
    assert not done.failed and "began" in done.output
    assert [line.split()[-2:] for line in words(tmp_path)] == [["--emulate", "kernels.py"]]


def test_a_command_that_fails_ends_the_job(use: Use, tmp_path: Path, lock: Lock) -> None:
    lock(tmp_path)
    (tmp_path / "project" / "kernels.py").write_text("raise SystemExit(3)\n")
    assert use(command="kernels.py", arch="sm_90a").failed
    assert not [line for line in words(tmp_path) if line.startswith("check ")]


@pytest.mark.machine
@pytest.mark.skipif(os.environ.get("WORKFLOWS") != "all", reason="downloads a ptxas: `make test-workflows`")
def test_it_installs_itself_where_there_is_no_triton(use: Use, tmp_path: Path, lock: Lock) -> None:
    """From the commit that the workflow names, with the ptxas that the input names."""
    lock(tmp_path)
    (tmp_path / "bin" / "tritonhook").unlink()
    found = use(install=True, ptxas="12.8.93", fail_on="code")
    assert not found.failed, found.output
    assert "1 kernel, all with the same code" in found.output
    assert (tmp_path / "runner" / "artifacts" / "tritonhook-report" / "ptxas-12.8.93.html").exists()


@pytest.mark.parametrize("verify", ["known", "cpu"])
def test_what_the_input_verify_names_is_an_option(verify: str) -> None:
    assert f'"{verify}"' in ACTION["inputs"]["verify"]["description"]
    assert parser().parse_args(["verify", f"--{verify}", "captures", "--markdown"]).verb == "verify"


def test_every_input_is_used_and_none_reaches_a_shell_as_text() -> None:
    text = (ROOT / "action.yml").read_text().partition("runs:")[2]
    for name in ACTION["inputs"]:
        assert f"inputs.{name}" in text, name
    assert all("${{" not in step.get("run", "") for step in ACTION["runs"]["steps"])
