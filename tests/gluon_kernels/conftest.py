"""What the tests of the attention kernels share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def compiled_before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache of Triton that all tests here share: each kernel is compiled once."""
    base = tmp_path_factory.getbasetemp()
    return (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "attention-kernels"


@pytest.fixture
def triton_cache(triton_cache: Path, compiled_before: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(compiled_before))
    return compiled_before
