"""Which front ends a session is for, and the session of `tritonhook run`."""

from __future__ import annotations

import atexit
import importlib.util
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tritonhook.capture import front_ends as module
from tritonhook.capture.run_config import RunConfig
from tritonhook.capture.settings import Settings, make_settings
from tritonhook.errors import CaptureError
from tritonhook.rename import Rewrites


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Say what is installed: Triton, the CuTe DSL, and whether a Triton that is too old can be imported."""

    def say(triton: bool, cute: bool, old: bool = False) -> None:
        def check() -> None:
            if not triton:
                raise CaptureError("no Triton")

        monkeypatch.setattr(module, "check_triton", check)
        monkeypatch.setattr(module.cute, "is_installed", lambda: cute)
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: name if triton or old else None)

    return say


class Begun:
    """As a Session: what it was made with, and told."""

    def __init__(self, settings: Settings, front_ends: Any) -> None:
        self.settings, self.front_ends = settings, front_ends
        self.told: list[Any] = []
        self.reaches_children = False

    def contain(self, doing: str, error: Exception) -> None:
        self.told.append((doing, str(error)))

    def install(self) -> None:
        self.told.append(("installed", self.reaches_children))

    def uninstall(self) -> None: ...


def test_the_compilers_that_are_there_are_captured(installed) -> None:
    for triton, cute, found in ((1, 1, ("triton", "cute")), (1, 0, ("triton", "cute")), (0, 1, ("cute",))):
        installed(bool(triton), bool(cute))
        assert module.front_ends() == found
    installed(False, False)
    with pytest.raises(CaptureError, match="no Triton"):
        module.front_ends()


def test_a_triton_that_cannot_be_used_is_told_where_kernels_of_cute_are_captured(installed, monkeypatch, out) -> None:
    monkeypatch.setattr(module, "Session", Begun)
    settings = make_settings(out)
    for triton, old, told in ((True, False, []), (False, False, []), (False, True, ["no Triton"])):
        installed(triton, True, old)
        session: Any = module.new_session(settings)
        assert session.settings is settings and session.front_ends == (("triton", "cute") if triton else ("cute",))
        assert [why for _, why in session.told] == told


@pytest.mark.parametrize("cute", [False, True])
def test_a_rewrite_that_no_ptxas_of_triton_can_assemble_is_refused(installed, monkeypatch, out, cute) -> None:
    monkeypatch.setattr(module, "Session", Begun)
    installed(True, cute)
    step: Any = SimpleNamespace(key="k", why_not=lambda version: None if version >= "13" else f"not with {version}")
    settings = Settings(Path(out), Rewrites((step,)))
    for versions, refused in (
        (["12.8", "13.3"], False),
        (["12.0", "12.8"], True),
        ([None, "12.8"], False),
        ([], False),
    ):
        monkeypatch.setattr(module, "ptxas_versions", lambda versions=versions: versions)
        if refused and not cute:
            with pytest.raises(CaptureError, match=r"not with 12\.8"):
                module.new_session(settings)
        else:
            module.new_session(settings)
    monkeypatch.setattr(module, "ptxas_versions", lambda: ["12.0"])
    own: Any = SimpleNamespace(version="13.3")
    for other in (Settings(Path(out), Rewrites((step,)), assembling=own), Settings(Path(out))):
        assert module._why_no_ptxas(other) is None
    own.version = None  # further options for Triton's ptxas
    assert module._why_no_ptxas(Settings(Path(out), Rewrites((step,)), assembling=own)) == "not with 12.0"


@pytest.mark.parametrize("given", [(), ("triton",), ("cute",)])
def test_the_session_of_a_run_lasts_until_the_process_ends(installed, monkeypatch, tmp_path, given) -> None:
    at_exit: list[Any] = []
    monkeypatch.setattr(module, "Session", Begun)
    monkeypatch.setattr(atexit, "register", at_exit.append)
    installed(True, False)
    session: Any = module.begin_run(RunConfig(tmp_path, only="^a"), *given)
    assert session.settings == make_settings(tmp_path, only="^a") and session.front_ends == (given or ("triton",))
    assert session.told == [("installed", True)] and at_exit == [session.uninstall]
    installed(False, False)
    if given == ("cute",):
        assert module.begin_run(RunConfig(tmp_path), *given).front_ends == given
    else:
        with pytest.raises(CaptureError):
            module.begin_run(RunConfig(tmp_path), *given)
        assert len(at_exit) == 1
