"""A fixture for the tests of capture folders."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """Where a compiler would leave its artifacts."""
    folder = tmp_path / "cache"
    folder.mkdir()
    return folder
