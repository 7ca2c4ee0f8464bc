"""The settings that `tritonhook run` gives to child processes, and programs under it that enable tritonhook."""

from __future__ import annotations

import json
import os
import re
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest
from ended import Done, python_ended
from repository import SUPPORT

from tritonhook._util.variables import RUN, RUN_ID, WATCH
from tritonhook.capture.dry_run.gpu import DryRun
from tritonhook.capture.run_config import RunConfig
from tritonhook.capture.settings import Settings, make_settings
from tritonhook.capture.store.reader import Run
from tritonhook.children import SITE, bootstrap, environment
from tritonhook.children.environment import capture_environment, site_folder, watch_environment
from tritonhook.errors import StartupError, UsageError
from tritonhook.ptx.module import Ptx
from tritonhook.rename import Rename

SETTINGS: list[dict[str, Any]] = [
    {},
    {"rename": Rename(prefix="cutlass_"), "only": "^a", "launches": "shapes"},
    {"rename": Rename(strip="cutlass"), "rewrites": "tma-cta", "launches": "values"},
    {"rename": Rename(mapping=(("a", "b"), ("c", "d"))), "dry_run": DryRun(90)},
    {"rename": Rename(prefix="cutlass_", strip="fast", mapping=(("a", "b"),), entry="add"), "options": "-O1 -v"},
    {"rewrites": ["tma-cta", "mma-throughput"], "ptxas": "13.5.37"},
]


@pytest.mark.parametrize("given", SETTINGS)
def test_a_child_gets_all_settings(tmp_path: Path, given: dict[str, Any]) -> None:
    if "ptxas" in given:
        from at_hand import ptxas_at_hand

        ptxas_at_hand(given["ptxas"])
    settings = make_settings(tmp_path, **given)
    found = Settings.from_run_config(RunConfig.from_environment(capture_environment(settings, {})))
    assert found == settings and found.key == settings.key


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
    watched = {WATCH: json.dumps({"folder": str(tmp_path), "period_ms": 2.5}), "PYTHONPATH": str(SITE)}
    assert watch_environment(tmp_path, 2.5, {"HOME": "/home"}) == {"HOME": "/home"} | watched


class Other:
    """A rewrite that only this process knows."""

    key = "other"

    def apply(self, ptx: Ptx) -> Ptx:
        return ptx


def test_a_run_is_known_by_its_command_folder_and_architecture(tmp_path, monkeypatch):
    def program(command, dry_run=None):
        settings = make_settings(tmp_path, dry_run=dry_run)
        run = Run.of(capture_environment(settings, {}, command)[RUN_ID])
        assert run is not None and len(run.command) == 16 and run.started_ns > 0
        names.append(run.name)
        return run.command

    names = []
    monkeypatch.chdir(tmp_path)
    for command in (["./k.py", "-x"], [str(tmp_path / "k.py")], ["/opt/k.py"], ["-m", "k.bench", "1"], ["sub/k.py"]):
        program([sys.executable, *command])
    program(["torchrun", "k.py"])
    assert names == ["k.py", "k.py", "k.py", "-m k.bench", "sub/k.py", "torchrun"]
    first = program(["python", "a.py"])
    assert first == program(["python", "a.py"]) != program(["python", "b.py"])
    dry = program(["python", "a.py"], DryRun(90))
    assert first != dry != program(["python", "a.py"], DryRun(100))
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
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
    with pytest.raises(StartupError, match="cannot be run"):
        site_folder("/nowhere/python")


def test_a_startup_file_comes_and_goes(tmp_path):
    path = tmp_path / environment.PTH
    assert environment.pth_state(tmp_path) == "not installed"
    assert environment.install_pth(tmp_path) == path
    assert (path.read_text(), environment.pth_state(tmp_path)) == (environment.pth_text(), "installed")
    (line,) = environment.pth_text().splitlines()
    assert line.startswith("import ")  # else site.py takes it for a folder
    path.write_text("import os\n")
    assert environment.pth_state(tmp_path) == "of another tritonhook"
    assert [environment.uninstall_pth(tmp_path) for _ in range(2)] == [True, False]
    path.mkdir()
    for act in (environment.install_pth, environment.uninstall_pth):
        with pytest.raises(StartupError, match=re.escape(f"{path}: cannot be ")):
            act(tmp_path)


@pytest.mark.parametrize("rewrites", [Other(), (Rename(prefix="a"), Rename(prefix="b")), (Rename(prefix="a"), Other())])
def test_rewrites_that_no_child_can_get_are_refused(tmp_path, rewrites):
    with pytest.raises(UsageError, match="child processes support only a rename"):
        capture_environment(make_settings(tmp_path, rewrites=rewrites), {})


# --- a program that enables tritonhook itself ----------------------------------------------------


@pytest.fixture
def run(tmp_path: Path, triton_cache: Path, warm_start: None) -> Any:
    """Run a script under `tritonhook run`, with these options; gives its result."""
    pytest.importorskip("triton", minversion="3.6")

    def go(body: str, *options: str, **env: str) -> Done:
        (tmp_path / "script.py").write_text(
            f"import sys\nsys.path.insert(0, {str(SUPPORT)!r})\nimport tritonhook\n"
            f"from triton_kernels import compile_kernel, multiply_kernel\n{body}"
        )
        words = ("-m", "tritonhook", "run", *options, "script.py")
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


def test_the_same_folder_shows_each_kernel_once(run):
    """A script that enables tritonhook under a run: both write to the default folder, and both print a summary."""
    done = run("tritonhook.enable()\ncompile_kernel()")
    (line,) = [line for line in done.stderr.splitlines() if "add_kernel" in line]
    assert line.split()[1] == "add_kernel"  # behind its id
    assert done.stderr.count("tritonhook: 1 kernel seen, 0 from cache") == 2


def test_enabling_twice_under_a_run_ends_the_first_only(run, tmp_path):
    body = "tritonhook.enable('one')\ntritonhook.enable('two', rename='b_')\nprint(compile_kernel().name)"
    done = run(body, "--out", "runs", TRITONHOOK_QUIET="1")
    assert done.stdout.split() == ["b_add_kernel"]
    assert (names_in(tmp_path / "one"), names_in(tmp_path / "two")) == ([], ["b_add_kernel"])
    assert names_in(tmp_path / "runs") == ["b_add_kernel"]
    assert "two" not in done.stderr, "the script's summary is not printed"
