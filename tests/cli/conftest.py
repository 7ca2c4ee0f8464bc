"""PTX files that verbs are tried on."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_line import EXP, TARGET

from tritonhook.lab.published_table import condition


@pytest.fixture(autouse=True)
def no_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    """Verbs, also those in other processes, do not say what they are doing: on a busy machine a quick one might."""
    monkeypatch.setenv("TRITONHOOK_QUIET", "1")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with an empty cache of results."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TRITONHOOK_CACHE", str(tmp_path / "cache of results"))
    return tmp_path


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    path = tmp_path / "plain.ptx"
    path.write_text(EXP.ptx("work", **TARGET).text)
    return path


@pytest.fixture
def two_entries(tmp_path: Path) -> Path:
    a = EXP.ptx("first", **TARGET).text
    b = condition("none").ptx("second", **TARGET).text
    path = tmp_path / "two.ptx"
    path.write_text(a + b[b.index(".visible") :])
    return path


@pytest.fixture(autouse=True, scope="module")
def _warm(warm_start: None) -> None:
    """Scripts start warm in tests of verbs; tests that ask for cold_start keep the start that users have."""
