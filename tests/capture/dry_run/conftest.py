"""Dry runs of programs start warm."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True, scope="module")
def _warm(warm_start: None) -> None:
    """Scripts start warm, also those of `run_dry`."""
