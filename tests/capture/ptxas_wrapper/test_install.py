"""Installing the ptxas wrapper: a ptxas works after a kill at any moment, uninstalling gives the same file back, and
files of others stay as they are."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from fake_ptxas import SCRIPT, make_ptxas, works

from tritonhook._util import files
from tritonhook.capture.ptxas_wrapper import install as installer
from tritonhook.capture.ptxas_wrapper import script as wrapper
from tritonhook.capture.ptxas_wrapper.install import InstallState, find_target, install, uninstall
from tritonhook.capture.ptxas_wrapper.script import PROGRAM
from tritonhook.errors import ToolError


@pytest.fixture
def ptxas(tmp_path: Path) -> Path:
    path = make_ptxas(tmp_path / "cuda 13" / "bin")
    os.utime(path, ns=(1_600_000_000_123_456_789, 1_600_000_000_123_456_789))
    path.chmod(0o555)
    return path


def facts(path: Path) -> tuple[bytes, int, int, int]:
    at = path.lstat()
    return path.read_bytes(), at.st_mode, at.st_mtime_ns, at.st_ino


def test_uninstall_gives_the_same_file_back(ptxas: Path) -> None:
    before = facts(ptxas)
    target = find_target(str(ptxas))
    assert target.state is InstallState.PLAIN
    assert "installed" in install(target)
    assert target.state is InstallState.INSTALLED
    assert works(ptxas)
    assert facts(target.real) == before
    assert ptxas.stat().st_mode == before[1]
    assert "installed already" in install(target)
    assert "the original is restored" in uninstall(target)
    assert facts(ptxas) == before
    assert "no wrapper is installed" in uninstall(target)
    assert [p.name for p in ptxas.parent.iterdir()] == ["ptxas"]


def test_a_link_is_followed_and_stays(ptxas: Path, tmp_path: Path) -> None:
    link = tmp_path / "ptxas"
    link.symlink_to(ptxas)
    before = facts(ptxas)
    install(find_target(str(link)))
    assert link.is_symlink()
    assert ptxas.with_name("ptxas.real").exists()
    assert works(link)
    uninstall(find_target(str(link)))
    assert link.is_symlink()
    assert facts(ptxas) == before


def test_a_moved_toolkit_still_works(ptxas: Path, tmp_path: Path) -> None:
    install(find_target(str(ptxas)))
    ptxas.parent.parent.rename(tmp_path / "moved")
    moved = tmp_path / "moved" / "bin" / "ptxas"
    assert works(moved)
    uninstall(find_target(str(moved)))
    assert moved.read_text() == SCRIPT


def test_an_upgrade_over_the_wrapper_is_seen_and_not_undone(ptxas: Path) -> None:
    target = find_target(str(ptxas))
    install(target)
    ptxas.unlink()
    shutil.copy("/bin/true", ptxas)
    before = facts(ptxas)
    assert target.state is InstallState.REPLACED
    assert "not changed, it is a newer ptxas" in uninstall(target)
    assert facts(ptxas) == before
    assert "over the newer ptxas" in install(target)
    assert target.state is InstallState.INSTALLED
    uninstall(target)
    assert facts(ptxas) == before


@pytest.mark.parametrize("script", ['exec "${0%/*}/ptxas.real" "$@"', 'exec "$0.real" "$@"'])
def test_another_tools_wrapper_is_left_alone(ptxas: Path, script: str) -> None:
    ptxas.rename(ptxas.with_name("ptxas.real"))
    foreign = make_ptxas(ptxas.parent, f"#!/bin/sh\n{script}\n")
    target = find_target(str(foreign))
    assert target.state is InstallState.FOREIGN
    before = facts(foreign), facts(target.real)
    for action in (install, uninstall):
        with pytest.raises(ToolError, match="another tool's wrapper"):
            action(target)
    assert (facts(foreign), facts(target.real)) == before


def test_an_original_that_is_gone(ptxas: Path) -> None:
    target = find_target(str(ptxas))
    install(target)
    target.real.unlink()
    assert target.state is InstallState.BROKEN
    for action in (install, uninstall):
        with pytest.raises(ToolError, match="install the CUDA package again"):
            action(target)


@pytest.mark.parametrize("gone", ["python", "tritonhook"])
def test_without_tritonhook_the_wrapper_is_ptxas(ptxas: Path, monkeypatch: pytest.MonkeyPatch, gone: str) -> None:
    if gone == "tritonhook":
        monkeypatch.setattr(wrapper, "PROGRAM", Path("/nowhere/_program.py"))
    install(find_target(str(ptxas)), python="/nowhere/python" if gone == "python" else sys.executable)
    assert works(ptxas)
    line = [str(ptxas), "x.ptx"]
    done = subprocess.run(line, cwd=ptxas.parent, env={"FAKE_DO": "exit 3"}, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (3, b"")
    assert not (ptxas.parent / "ptx_dumps").exists()


@pytest.mark.machine
@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_toolkit_that_cannot_be_written_as_a_user(ptxas: Path) -> None:
    ptxas.parent.chmod(0o555)
    with pytest.raises(ToolError, match="tritonhook run -- nvcc"):
        install(find_target(str(ptxas)))


@pytest.mark.parametrize("step", ["link", "replace"])
def test_a_refusal_changes_nothing(ptxas: Path, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    def refuse(*names: object, **options: object) -> None:
        raise OSError(30, "Read-only file system")

    before = facts(ptxas)
    if step == "link":
        monkeypatch.setattr(os, "link", refuse)
        monkeypatch.setattr(shutil, "copy2", refuse)
    else:
        monkeypatch.setattr(Path, "replace", refuse)
    with pytest.raises(ToolError, match="Read-only file system.*tritonhook run -- nvcc"):
        install(find_target(str(ptxas)))
    monkeypatch.undo()
    assert facts(ptxas) == before
    assert [p.name for p in ptxas.parent.iterdir()] == ["ptxas"]


def test_which_ptxas_is_meant(ptxas: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_target(str(ptxas.parent)).path == ptxas  # a folder
    monkeypatch.setenv("CUDA_HOME", str(ptxas.parent.parent))
    assert find_target(None).path == ptxas
    with pytest.raises(ToolError, match="no such file; give a ptxas"):
        find_target(str(tmp_path / "none"))
    monkeypatch.setattr(installer, "_toolkit_ptxas", lambda: iter([tmp_path / "a"]))
    with pytest.raises(ToolError, match="no CUDA toolkit with a ptxas found; name one"):
        find_target(None)


# --- kills ---------------------------------------------------------------------------------------


def killed(action: Callable[[], None]) -> bool:
    """Run an action in a child process; whether the process was killed before the end of the action."""
    child = os.fork()
    if child == 0:
        try:
            action()
            os._exit(0)
        finally:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
    return os.WIFSIGNALED(status)


WRITERS = (installer.__file__, wrapper.__file__, files.__file__)


def killing_itself_at(line: int, action: Callable[[], object]) -> None:
    """Run an action, and kill this process at the given line, counted in the files that install the wrapper."""
    count = 0

    def trace(frame: object, event: str, argument: object) -> object:
        nonlocal count
        if frame.f_code.co_filename not in WRITERS:  # type: ignore[attr-defined]
            return None
        count += event == "line"
        if count == line:
            os.kill(os.getpid(), signal.SIGKILL)
        return trace

    sys.settrace(trace)
    action()
    sys.settrace(None)


@pytest.mark.parametrize("links", [True, pytest.param(False, marks=pytest.mark.nightly)])
def test_killed_at_every_line(ptxas: Path, monkeypatch: pytest.MonkeyPatch, links: bool) -> None:
    if not links:

        def refuse(*names: object) -> None:
            raise PermissionError(1, "Operation not permitted")

        monkeypatch.setattr(os, "link", refuse)
    before = facts(ptxas)
    target = find_target(str(ptxas))
    for action, begin in ((install, uninstall), (uninstall, install)):
        line, going = 0, True
        while going:
            line += 1
            begin(target)
            going = killed(lambda line=line, action=action: killing_itself_at(line, lambda: action(target)))
            assert works(ptxas), (action, line)
            assert target.state in (InstallState.PLAIN, InstallState.UNFINISHED, InstallState.INSTALLED), (action, line)
        assert line > 15
        uninstall(target)
        assert facts(ptxas)[:3] == before[:3]
    assert [p.name for p in ptxas.parent.iterdir()] == ["ptxas"]


def test_a_call_that_meets_the_uninstall_halfway(ptxas: Path, tmp_path: Path) -> None:
    # given a wrapper that has started, and a ptxas.real that is renamed to ptxas before the wrapper runs it
    target = find_target(str(ptxas))
    install(target)
    uninstall(target)
    line = [sys.executable, "-I", "-S", str(PROGRAM), str(target.real), "12.8.93", "1", "1"]
    for settings in ({}, {"TRITONHOOK_RUN": json.dumps({"out": str(tmp_path), "only": None, "rename": None})}):
        environment = {"PATH": os.environ["PATH"], "FAKE_DO": "exit 3", "PTX_DUMP_DIR": str(tmp_path)} | settings
        line_ = [*line, str(tmp_path / "log"), "installed", "a.ptx", "-o", str(tmp_path / "x")]
        done = subprocess.run(line_, env=environment, capture_output=True, check=False)
        assert (done.returncode, done.stderr) == (3, b"")


# --- the command line ----------------------------------------------------------------------------


def test_the_verbs(ptxas: Path) -> None:
    def run(*words: str) -> subprocess.CompletedProcess:
        line = [sys.executable, "-m", "tritonhook", "ptxas", *words]
        return subprocess.run(line, capture_output=True, text=True, check=False)

    assert "Not installed" in run("status", str(ptxas)).stdout
    assert "the wrapper is installed" in run("install", str(ptxas), "--system", "--yes").stdout
    document = json.loads(run("status", str(ptxas), "--json").stdout)
    assert (document["state"], document["path"], document["troubles"]) == ("installed", str(ptxas), [])
    assert "the original is restored" in run("uninstall", str(ptxas)).stdout
    wrong = run("install", str(ptxas.parent / "none"), "--system", "--yes")
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert "no such file" in wrong.stderr
