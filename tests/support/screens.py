"""Golden screens: what a command prints in a terminal of 80 columns, held to tests/golden/screens/.

`pytest --update` writes them again; read the difference before you commit it.
"""

from __future__ import annotations

import difflib
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from repository import GOLDEN, ROOT

from tritonhook.cli import main

WIDTH = 80


class Screens:
    """Compares texts with golden files; with `update` it writes the files instead.

    The texts must be the same on every machine: change into a folder of the test's own and give relative paths.
    """

    def __init__(self, update: bool, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture):
        self._update, self._folder, self._environment, self._capsys = update, folder, monkeypatch, capsys

    def check(self, name: str, draw: Callable[[], str]) -> None:
        """Compare the text that `draw` makes with screens/NAME.txt. No line may exceed the width."""
        for variable, value in {"TERM": "dumb", "LINES": "10000", "COLUMNS": str(WIDTH)}.items():
            self._environment.setenv(variable, value)  # no colours, no pager
        self._compare(self._folder / f"{name}.txt", draw(), WIDTH)

    def check_command(self, name: str, *words: str) -> None:
        """Run a verb and compare what it prints on standard output."""

        def draw() -> str:
            self._capsys.readouterr()
            self._environment.setattr(sys.stdout, "isatty", lambda: True)
            assert main(list(words)) == 0
            return "".join(f"{line.rstrip()}\n" for line in str(self._capsys.readouterr().out).splitlines())

        self.check(name, draw)

    def check_page(self, name: str, text: str) -> None:
        """Compare the text of a page with pages/NAME.txt."""
        self._compare(self._folder.parent / "pages" / f"{name}.txt", text, sys.maxsize)

    def _compare(self, path: Path, text: str, width: int) -> None:
        too_long = [line for line in text.splitlines() if len(line) > width]
        assert not too_long, f"wider than {width} columns: {too_long[0]}"
        if self._update:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            return
        where = path.relative_to(ROOT) if path.is_relative_to(ROOT) else path
        assert path.exists(), f"{where}: no such golden screen; `pytest --update` writes it"
        changed = difflib.unified_diff(path.read_text().splitlines(), text.splitlines(), str(where), "now", lineterm="")
        assert path.read_text() == text, "\n".join([*changed, "if this is as it should be: `pytest --update`"])


def golden_screens(update: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> Screens:
    return Screens(update, GOLDEN / "screens", monkeypatch, capsys)
