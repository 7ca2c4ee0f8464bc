"""The settings that `tritonhook run` gives to child processes, and programs under it that enable tritonhook."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest
from ended import python_ended
from repository import ROOT, SUPPORT

from tritonhook._util.variables import RUN, RUN_ID, WATCH
from tritonhook.capture.dry_run.gpu import DryRun
from tritonhook.capture.run_config import RunConfig
from tritonhook.capture.settings import Settings, make_settings
from tritonhook.children import SITE, bootstrap, environment
from tritonhook.children.environment import capture_environment, site_folder, watch_environment
from tritonhook.errors import StartupError, UsageError
from tritonhook.ptx.module import Ptx
from tritonhook.rename import Rename

RENAMES = [
    None,
    Rename(prefix="cutlass_"),
    Rename(strip="cutlass"),
    Rename(mapping=(("a", "b"), ("c", "d"))),
    Rename(prefix="cutlass_", strip="fast", mapping=(("a", "b"),), entry="add"),
]


# --- the environment -----------------------------------------------------------------------------


@pytest.mark.parametrize("rename", RENAMES)
@pytest.mark.parametrize("launches", [None, "shapes", "values"])
def test_a_child_gets_all_settings(tmp_path, monkeypatch, rename, launches):
    begun: list[Any] = []
    monkeypatch.setattr("tritonhook.capture.front_ends.begin_run", lambda *arguments: begun.append(arguments))
    settings = make_settings(tmp_path, rename, only="^a", launches=launches)
    monkeypatch.setenv(RUN, capture_environment(settings, {})[RUN])
    bootstrap._capture()
    ((config, front_end),) = begun
    assert (config, front_end) == (RunConfig(tmp_path, "^a", rename, (), launches), "triton")
    assert Settings.from_run_config(config) == settings


@pytest.mark.parametrize("text", ["", "{", "[]", "5", "{}", '{"out": 5}', '{"out": "x", "only": null, "rename": 5}'])
def test_a_damaged_variable_is_an_error_that_names_it(text):
    with pytest.raises(UsageError, match=RUN):
        RunConfig.from_environment({RUN: text})
    with pytest.raises(UsageError, match=RUN):
        RunConfig.from_environment({})


def test_a_child_that_cannot_begin_says_so_and_goes_on(monkeypatch, capsys):
    monkeypatch.setenv(RUN, "{")
    bootstrap._capture()
    assert f"tritonhook: not enabled in process {os.getpid()}: {RUN}" in capsys.readouterr().err


def test_the_rest_of_the_environment_stays(tmp_path):
    base = {"PYTHONPATH": f"/a{os.pathsep}/b", "TRITONHOOK_QUIET": "", "HOME": "/home"}
    environment = capture_environment(make_settings(tmp_path), base)
    assert environment["PYTHONPATH"].split(os.pathsep) == [str(SITE), "/a", "/b"]
    changed = {name for name in environment if environment[name] != base.get(name)}
    assert changed == {"PYTHONPATH", RUN, RUN_ID}
    assert capture_environment(make_settings(tmp_path), {})["PYTHONPATH"] == str(SITE)
    # and a run within a run adds the folder only once
    again = capture_environment(make_settings(tmp_path), environment)
    assert again["PYTHONPATH"] == environment["PYTHONPATH"]


class Other:
    """A rewrite that only this process knows."""

    key = "other"

    def apply(self, ptx: Ptx) -> Ptx:
        return ptx


def test_a_run_is_known_by_its_command_folder_and_architecture(tmp_path, monkeypatch):
    def program(command, dry_run=None):
        settings = make_settings(tmp_path, dry_run=dry_run)
        name, began = capture_environment(settings, {}, command)[RUN_ID].split("-")
        assert len(name) == 16 and int(began) > 0
        return name

    first = program(["python", "a.py"])
    assert first == program(["python", "a.py"]) != program(["python", "b.py"])
    dry = program(["python", "a.py"], DryRun(90))
    assert first != dry != program(["python", "a.py"], DryRun(100))
    monkeypatch.chdir(tmp_path)
    assert first != program(["python", "a.py"])


def test_a_python_is_asked_outside_the_run_and_must_answer(tmp_path, monkeypatch):
    monkeypatch.setenv(RUN, "{")
    assert site_folder() == Path(sysconfig.get_path("purelib"))
    asked = tmp_path / "python"
    for answer in ("exit 0", "echo /some/where; exit 3"):
        asked.write_text(f"#!/bin/sh\n{answer}\n")
        asked.chmod(0o755)
        with pytest.raises(StartupError, match="did not print its site-packages folder"):
            site_folder(str(asked))
    asked.write_text(f'#!/bin/sh\ntest -z "${RUN}" && echo "first line" && echo /some/where\n')
    assert site_folder(str(asked)) == Path("/some/where")


def test_a_python_that_hangs_is_given_up(monkeypatch):
    def hang(words, timeout, **options):
        raise subprocess.TimeoutExpired(words, timeout)

    monkeypatch.setattr(environment.subprocess, "run", hang)
    with pytest.raises(StartupError, match="/some/python: cannot be run: .* after 60 seconds"):
        site_folder("/some/python")


def test_a_watched_child_gets_the_folder_and_the_period(tmp_path):
    base = {"HOME": "/home"}
    watched = {WATCH: json.dumps({"folder": str(tmp_path), "period_ms": 2.5}), "PYTHONPATH": str(SITE)}
    assert watch_environment(tmp_path, 2.5, base) == base | watched


def test_a_startup_file_comes_and_goes(tmp_path):
    path = tmp_path / environment.PTH
    assert environment.pth_state(tmp_path) == "not installed"
    assert environment.install_pth(tmp_path) == path
    assert (path.read_text(), environment.pth_state(tmp_path)) == (environment.pth_text(), "installed")
    path.write_text("import os\n")
    assert environment.pth_state(tmp_path) == "of another tritonhook"
    assert [environment.uninstall_pth(tmp_path) for _ in range(2)] == [True, False]
    path.mkdir()
    for act in (environment.install_pth, environment.uninstall_pth):
        with pytest.raises(StartupError, match=re.escape(f"{path}: cannot be ")):
            act(tmp_path)


@pytest.mark.parametrize("under_a_run", [False, True])
def test_a_startup_file_runs_our_sitecustomize_under_a_run_only(monkeypatch, under_a_run):
    begun: list[Any] = []
    monkeypatch.setattr(bootstrap, "begin", lambda then_users=True: begun.append(then_users))
    monkeypatch.delenv(RUN, raising=False)
    if under_a_run:
        monkeypatch.setenv(RUN, "{}")
    (line,) = environment.pth_text().splitlines()
    assert line.startswith("import ")  # else site.py takes it for a folder
    exec(line)
    assert begun == ([False] if under_a_run else [])


@pytest.mark.parametrize("rewrites", [Other(), (Rename(prefix="a"), Rename(prefix="b")), (Rename(prefix="a"), Other())])
def test_rewrites_that_no_child_can_get_are_refused(tmp_path, rewrites):
    with pytest.raises(UsageError, match="child processes can take only a rename"):
        capture_environment(make_settings(tmp_path, rewrites=rewrites), {})


# --- a program that enables tritonhook itself ----------------------------------------------------

SCRIPT = """
import sys
sys.path.insert(0, {tests!r})
import tritonhook
from triton_kernels import compile_kernel, multiply_kernel
{body}
"""


@pytest.fixture
def run(tmp_path: Path, triton_cache: Path) -> Any:
    """Run a script under `tritonhook run`, with these options; gives its result."""
    pytest.importorskip("triton", minversion="3.6")

    def go(body: str, *options: str, **env: str) -> subprocess.CompletedProcess[str]:
        script = tmp_path / "script.py"
        script.write_text(SCRIPT.format(tests=str(SUPPORT), body=body))
        words = ("-m", "tritonhook", "run", *options, str(script))
        return python_ended(*words, folder=tmp_path, without=["TRITONHOOK"], **env)

    return go


def names_in(folder: Path) -> list[str]:
    """The kernels in the indexes of a folder."""
    lines = [json.loads(line) for path in (folder / "index").glob("*") for line in path.read_text().splitlines()]
    return sorted(line["kernel"] for line in lines if "record" in line)


def test_both_capture_and_the_scripts_rename_applies_inside(run, tmp_path):
    body = "tritonhook.enable('mine', rename='b_')\nprint(compile_kernel().name)\n"
    body += "tritonhook.disable()\nprint(compile_kernel(multiply_kernel).name)"
    done = run(body, "--out", "runs", "--prefix", "a_")
    assert done.stdout.split() == ["b_a_add_kernel", "a_multiply_kernel"]
    assert names_in(tmp_path / "mine") == ["b_a_add_kernel"]
    assert names_in(tmp_path / "runs") == ["a_multiply_kernel", "b_a_add_kernel"]
    assert "tritonhook: 2 kernels seen, 0 from cache" in done.stderr


def test_the_scripts_summary_is_printed(run, tmp_path):
    done = run("tritonhook.enable('mine')\ncompile_kernel()", "--out", "runs")
    for folder in (tmp_path / "mine", "runs"):
        said = f"tritonhook: 1 kernel seen, 0 from cache; captures in {folder}\n"
        assert done.stderr.count(said) == 1


def test_the_scripts_summary_is_not_printed_if_the_user_wants_quiet(run, tmp_path):
    done = run("tritonhook.enable('mine')\ncompile_kernel()", "--out", "runs", TRITONHOOK_QUIET="1")
    assert "mine" not in done.stderr
    assert names_in(tmp_path / "mine") == ["add_kernel"]


def test_a_script_that_enables_nothing_prints_no_summary(run, tmp_path):
    done = run("compile_kernel()", "--out", "runs")
    assert done.stderr.count("1 kernel seen") == 1


def test_the_same_folder_shows_each_kernel_once(run, tmp_path):
    # given a script that enables tritonhook under a run: both write to the default folder
    done = run("tritonhook.enable()\ncompile_kernel()")
    (line,) = [line for line in done.stderr.splitlines() if "add_kernel" in line]
    assert line.split()[1] == "add_kernel"  # behind its id
    assert done.stderr.count("tritonhook: 1 kernel seen, 0 from cache") == 2


def test_enabling_twice_under_a_run_ends_the_first_only(run, tmp_path):
    body = "tritonhook.enable('one')\ntritonhook.enable('two', rename='b_')\nprint(compile_kernel().name)"
    assert run(body, "--out", "runs").stdout.split() == ["b_add_kernel"]
    assert (names_in(tmp_path / "one"), names_in(tmp_path / "two")) == ([], ["b_add_kernel"])
    assert names_in(tmp_path / "runs") == ["b_add_kernel"]


def test_a_rename_of_one_entry_says_nothing_of_other_kernels(tmp_path, triton_cache):
    pytest.importorskip("triton", minversion="3.6")
    settings = make_settings(tmp_path / "runs", Rename(prefix="a_", entry="add_kernel"))
    body = "print(compile_kernel().name, compile_kernel(multiply_kernel).name)"
    environment = capture_environment(settings, dict(os.environ) | {"PYTHONPATH": str(ROOT)})
    command = [sys.executable, "-c", SCRIPT.format(tests=str(SUPPORT), body=body)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.split() == ["a_add_kernel", "multiply_kernel"]
    assert "tritonhook:" not in done.stderr
