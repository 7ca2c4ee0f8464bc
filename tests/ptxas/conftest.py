"""Fixtures: tools that are shell scripts, and a machine without the user's tools."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tritonhook.ptxas import tool
from tritonhook.ptxas.tool import Tool


@pytest.fixture(autouse=True)
def none_of_the_users_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("TRITONHOOK_PTXAS", "TRITONHOOK_NVDISASM"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TRITONHOOK_CACHE", str(tmp_path / "cache"))
    tool.inspect_tool.cache_clear()


@pytest.fixture
def scratch(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Where temporary folders are made."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.fixture
def make_tool(tmp_path: Path) -> Callable[..., Tool]:
    def make(body: str, version: str = "9.8.7", name: str = "ptxas") -> Tool:
        path = tmp_path / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f'#!/bin/sh\n[ "$1" = --version ] && echo "release 9.8, V{version}" && exit 0\n{body}\n')
        path.chmod(0o755)
        return Tool(path, version, "test")

    return make


@pytest.fixture
def only_these(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine that has no tools but those in the folder returned."""
    folder = tmp_path / "bin"
    folder.mkdir(exist_ok=True)
    for name in ("_wheel_folders", "_triton_folders"):
        monkeypatch.setattr(tool, name, lambda: iter(()))
    monkeypatch.setattr(tool, "_toolkit_folders", lambda: iter([(folder, "CUDA toolkit")]))
    monkeypatch.setattr(tool.shutil, "which", lambda program: None)
    return folder
