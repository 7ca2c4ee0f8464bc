"""Fixtures for the tests of the CuTe DSL, in an environment with or without it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tritonhook.capture.cute import state
from tritonhook.device.cuda_driver import Driver
from tritonhook.errors import DeviceError


def _arch() -> str:
    """The GPU's architecture, because other tests of this process may launch kernels; sm_120a without a GPU."""
    try:
        driver = Driver()
        driver.init()
        arch = driver.arch(driver.device(0))
    except DeviceError:
        return "sm_120a"
    return f"sm_{arch}{'a' * (arch >= 90)}"


os.environ.setdefault("CUTE_DSL_ARCH", _arch())  # read when cutlass is imported


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An empty working folder, caches of our own; check that both are empty and no session is left after the test."""
    folder = tmp_path / "cwd"
    folder.mkdir()
    monkeypatch.chdir(folder)
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    yield
    assert state.attached == ()
    assert list(folder.iterdir()) == []
    assert list((tmp_path / "tmp").iterdir()) == []


@pytest.fixture
def dsl_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Empty caches of the DSL, on disk (the returned folder) and in memory."""
    monkeypatch.setattr("cutlass.base_dsl.cache_helpers.default_generated_ir_path", str(tmp_path / "dsl"))
    monkeypatch.setenv("CUTE_DSL_CACHE_DIR", str(tmp_path / "dsl"))
    from cute_sessions import forget_in_memory

    (tmp_path / "dsl").mkdir()
    forget_in_memory()
    return tmp_path / "dsl"
