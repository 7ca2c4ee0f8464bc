"""Fixtures for the tests of the ptxas wrapper."""

from __future__ import annotations

from pathlib import Path

import pytest
from wrapped_ptxas import WrappedPtxas


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache folder for each test, and none of the user's settings."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name in ("CUDA_HOME", "CUDA_PATH", "PTX_DUMP_DIR", "TRITONHOOK_RUN", "TRITONHOOK_PTXAS_WRAPPER"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def world(tmp_path: Path) -> WrappedPtxas:
    return WrappedPtxas(tmp_path)
