"""Golden screens notice a change, and `--update` accepts it."""

from __future__ import annotations

from pathlib import Path

import pytest
from screens import Screens


def test_a_changed_screen_is_noticed_until_it_is_updated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    held, updating = (Screens(update, tmp_path, monkeypatch, capsys) for update in (False, True))
    with pytest.raises(AssertionError, match=r"verb\.txt: no such golden screen"):
        held.check("verb", lambda: "before\n")
    updating.check("verb", lambda: "before\n")
    held.check("verb", lambda: "before\n")
    with pytest.raises(AssertionError, match=r"-before\n\+after\n.*pytest --update"):
        held.check("verb", lambda: "after\n")
    with pytest.raises(AssertionError, match="wider than 80 columns"):
        updating.check("verb", lambda: "x" * 81)
