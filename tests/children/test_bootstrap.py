"""What runs at the start of each process of a run, here in this process: what it waits for, begins and ends."""

from __future__ import annotations

import atexit
import importlib.util
import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import tritonhook
from tritonhook._util.variables import DRY_RUN, EMULATE, RUN, WATCH
from tritonhook.capture.dry_run.gpu import DryRun
from tritonhook.children import SITE, bootstrap

AWAITED = ("torch", "triton", "cutlass", "cuda.tile")


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """A process that has begun nothing and imported none of AWAITED, outside a run; and what the test notes."""
    state: dict[str, Any] = {"_begun": False, "_watch_begun": False, "_waiting": [], "sessions": [], "dry_runs": []}
    for name, value in (state | {"_ours": {SITE.resolve()}}).items():
        monkeypatch.setattr(bootstrap, name, value)
    for variable in (RUN, DRY_RUN, EMULATE, WATCH):
        monkeypatch.delenv(variable, raising=False)
    for name in (*AWAITED, "sitecustomize"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))  # so that it is as before after the test
        del sys.modules[name]
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    yield []


@pytest.fixture
def noted(monkeypatch: pytest.MonkeyPatch, calls: list[Any]) -> list[Any]:
    """The calls of what `begin` begins, instead of their effects."""
    note = calls.append
    monkeypatch.setattr(bootstrap, "_capture", lambda front_end="triton": note(front_end))
    monkeypatch.setattr(bootstrap, "_capture_tile", lambda: note("tile"))
    monkeypatch.setattr(bootstrap, "_begin_dry_run", note)
    monkeypatch.setattr(bootstrap, "_watch", lambda: note("watch"))
    monkeypatch.setattr(bootstrap, "_run_users_sitecustomize", lambda: note("user's"))
    monkeypatch.setattr(bootstrap, "inductor", SimpleNamespace(await_modules=lambda: note("inductor")))
    return calls


# --- begin and end -------------------------------------------------------------------------------

OF_A_RUN = [("triton", "triton"), ("cutlass", "cute"), ("cuda.tile", "tile")]
OF_A_DRY_RUN = [("torch", "begin_torch"), *OF_A_RUN]


@pytest.mark.parametrize("loaded", [(), ("triton",), AWAITED])
@pytest.mark.parametrize(
    ("variables", "begun"),
    [
        ((), []),
        ((DRY_RUN,), []),
        ((RUN,), OF_A_RUN),
        ((RUN, DRY_RUN), OF_A_DRY_RUN),
        ((WATCH,), [("triton", "watch")]),
        ((RUN, WATCH), [*OF_A_RUN, ("triton", "watch")]),
    ],
)
def test_begin_awaits_imports_once_and_acts_at_once_for_what_is_loaded(noted, monkeypatch, variables, begun, loaded):
    for variable in variables:
        monkeypatch.setenv(variable, "")
    for name in loaded:
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    before = list(sys.meta_path)
    bootstrap.begin(then_users=False)
    at_once = [what for name, what in begun if name in loaded]
    assert sorted(noted) == sorted(at_once + ["inductor"] * (RUN in variables))
    waiting = list(bootstrap._waiting)
    assert [one.name for one in waiting] == [name for name, _ in begun if name not in loaded]
    assert sorted(map(id, sys.meta_path)) == sorted(map(id, [*waiting, *before]))
    noted.clear()
    for one in waiting:
        one.callback()
    assert noted == [what for name, what in begun if name not in loaded]
    noted.clear()
    bootstrap.begin()  # again: only the user's own sitecustomize
    assert noted == ["user's"] and bootstrap._waiting == waiting


def test_end_ends_sessions_then_dry_runs_and_waits_no_more(noted, monkeypatch):
    monkeypatch.setenv(RUN, "{}")
    before = list(sys.meta_path)
    bootstrap.begin(then_users=False)
    noted.clear()
    stacks = [ExitStack(), ExitStack()]
    for number, stack in enumerate(stacks):
        stack.callback(noted.append, number)
    bootstrap.dry_runs += stacks
    session: Any = SimpleNamespace(uninstall=lambda: noted.append("uninstalled"))
    bootstrap.sessions.append(session)
    monkeypatch.setattr(atexit, "unregister", lambda call: noted.append(call))
    bootstrap.end()
    assert noted == [session.uninstall, "uninstalled", 1, 0]
    assert (bootstrap._waiting, bootstrap.sessions, bootstrap.dry_runs, sys.meta_path) == ([], [], [], before)
    bootstrap.begin(then_users=False)  # it can begin again
    assert [one.name for one in bootstrap._waiting] == [name for name, _ in OF_A_RUN]


# --- what it begins ------------------------------------------------------------------------------


@pytest.fixture
def begins(monkeypatch: pytest.MonkeyPatch, calls: list[Any]) -> list[Any]:
    """The calls of what begins a session, a dry run and its launches, a capture of cuda.tile, and a watch."""

    def noting(name: str) -> Callable[..., Any]:
        def call(*arguments: Any) -> str:
            calls.append((name, *arguments))
            return f"begun by {name}"

        return call

    for target, names in {
        "tritonhook.capture.front_ends": ["begin_run"],
        "tritonhook.capture.dry_run.process": ["begin_triton", "begin_cute", "begin_torch"],
        "tritonhook.emulate.dry_launches": ["begin_triton", "begin_cute"],
        "tritonhook.capture.ptxas_wrapper.cuda_tile": ["begin_tile"],
        "tritonhook.memwatch": ["begin_run"],
    }.items():
        for name in names:
            monkeypatch.setattr(f"{target}.{name}", noting(f"{target.rpartition('.')[2]}.{name}"))
    return calls


@pytest.mark.parametrize("front_end", ["triton", "cute"])
@pytest.mark.parametrize("how", ["run", "dry run", "emulated"])
def test_a_capture_begins_the_dry_run_and_its_launches_first(begins, monkeypatch, front_end, how):
    monkeypatch.setenv(RUN, '{"out": "captures", "only": "^a", "rename": null}')
    dry = DryRun(90) if how != "run" else None
    if dry is not None:
        for name, value in dry.to_environment().items():
            monkeypatch.setenv(name, value)
    if how == "emulated":
        monkeypatch.setenv(EMULATE, "")
    bootstrap._capture(*([] if front_end == "triton" else [front_end]))
    *first, (name, config, asked) = begins
    expected: list[Any] = [] if dry is None else [(f"process.begin_{front_end}", dry)]
    expected += [(f"dry_launches.begin_{front_end}",)] if how == "emulated" else []
    assert first == expected
    assert (name, config.out, config.only, config.dry_run, asked) == (
        "front_ends.begin_run",
        Path("captures"),
        "^a",
        dry,
        front_end,
    )
    kept: list[Any] = [*bootstrap.dry_runs, *bootstrap.sessions]
    assert kept == [f"begun by {call[0]}" for call in begins]


def test_a_dry_run_that_the_environment_does_not_have_replaces_nothing(begins):
    bootstrap._begin_dry_run("begin_torch")
    assert (begins, bootstrap.dry_runs) == ([], [])


def test_a_watch_and_cuda_tile_begin_with_what_the_parent_said(begins, monkeypatch):
    monkeypatch.setenv(WATCH, json.dumps({"folder": "/w", "period_ms": 2.5}))
    bootstrap._watch()
    bootstrap._capture_tile()
    assert begins == [("memwatch.begin_run", "/w", 2.5), ("cuda_tile.begin_tile",)]


@pytest.mark.parametrize(
    ("begin", "fails", "what"),
    [
        ("_capture", "tritonhook.capture.front_ends.begin_run", "not enabled"),
        ("_capture_tile", "tritonhook.capture.ptxas_wrapper.cuda_tile.begin_tile", "cuda.tile not captured"),
        ("_watch", "tritonhook.memwatch.begin_run", "memory not watched"),
    ],
)
def test_what_cannot_begin_is_one_line_and_the_program_goes_on(begins, monkeypatch, capsys, begin, fails, what):
    monkeypatch.setenv(RUN, '{"out": "captures", "only": null, "rename": null}')
    monkeypatch.setenv(WATCH, '{"folder": "w", "period_ms": 1}')

    def fail(*_: Any) -> None:
        raise OSError("no room")

    monkeypatch.setattr(fails, fail)
    getattr(bootstrap, begin)()
    assert capsys.readouterr().err == f"tritonhook: {what} in process {os.getpid()}: no room\n"


# --- the sitecustomize, ours and the user's ------------------------------------------------------


@pytest.mark.parametrize("running", [False, True])
def test_the_users_sitecustomize_is_the_first_that_is_not_of_a_tritonhook(calls, monkeypatch, tmp_path, running):
    names = ["one", "two", "last"]
    for name in names:
        (tmp_path / name).mkdir()
        (tmp_path / name / "sitecustomize.py").write_text(f"name = {name!r}\n")
    if running:  # another tritonhook's, which has called begin
        module = ModuleType("sitecustomize")
        module.__file__ = str(tmp_path / "one" / "sitecustomize.py")
        monkeypatch.setitem(sys.modules, "sitecustomize", module)
    (tmp_path / "link").symlink_to(SITE)
    monkeypatch.chdir(tmp_path / "one")
    monkeypatch.setattr(sys, "path", [str(SITE), str(tmp_path / "link"), "", *(str(tmp_path / n) for n in names[1:])])
    bootstrap._run_users_sitecustomize()
    assert sys.modules["sitecustomize"].name == ("two" if running else "one")
    assert sys.modules["sitecustomize"].__spec__ is not None


def test_no_sitecustomize_of_the_user_is_no_error(calls, monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "path", [str(SITE), str(tmp_path)])
    bootstrap._run_users_sitecustomize()
    assert "sitecustomize" not in sys.modules


@pytest.fixture
def ours(calls: list[Any], monkeypatch: pytest.MonkeyPatch) -> Any:
    """Our sitecustomize, as a module that has been run; what `begin` was told is in the calls."""
    monkeypatch.setattr(bootstrap, "begin", lambda then_users=True: calls.append(then_users))
    name = "tritonhook.children._site.sitecustomize"
    monkeypatch.delitem(sys.modules, name, raising=False)
    module = importlib.import_module(name)
    assert calls == [False]  # under another name, as a .pth file runs it, the user's runs by itself
    calls.clear()
    return module


def test_our_sitecustomize_runs_the_users_in_its_place(ours, calls, monkeypatch):
    monkeypatch.setattr(ours, "__name__", "sitecustomize")
    ours._begin()
    assert calls == [True]
    assert sys.modules["tritonhook"] is tritonhook


def test_our_sitecustomize_loads_the_package_of_its_own_folder(ours, calls, monkeypatch):
    """Given a Python that does not find a tritonhook; sys.path stays as it is."""
    monkeypatch.setitem(sys.modules, "tritonhook", tritonhook)
    del sys.modules["tritonhook"]
    asked: list[str] = []
    monkeypatch.setattr(importlib.util, "find_spec", asked.append)
    before = list(sys.path)
    ours._begin()
    loaded = sys.modules["tritonhook"]
    folder = SITE.parents[1]
    assert loaded is not tritonhook and loaded.__version__ == tritonhook.__version__ and loaded.__name__ == "tritonhook"
    assert (loaded.__file__, list(loaded.__path__)) == (str(folder / "__init__.py"), [str(folder)])
    assert (asked, calls, sys.path) == (["tritonhook"], [False], before)


@pytest.mark.parametrize("spec", [None, SimpleNamespace(loader=None)])
def test_our_sitecustomize_does_nothing_where_its_package_cannot_be_loaded(ours, calls, monkeypatch, spec):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(importlib.util, "spec_from_file_location", lambda *_, **__: spec)
    ours._begin()
    assert calls == [] and sys.modules["tritonhook"] is tritonhook
