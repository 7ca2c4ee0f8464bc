"""Rows that are written as they are made, so that a run that was stopped goes on."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

Row = dict[str, Any]


class Kept:
    """Rows by part and id. path: JSON lines; None keeps nothing."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        lines = path.read_text().splitlines() if path is not None and path.is_file() else []
        rows = [json.loads(line) for line in lines]
        self._rows: dict[tuple[str, str], Row] = {(part, key): row for part, key, row in rows}

    def row(self, part: str, key: str, make: Callable[[], Row], new: bool = True) -> Row | None:
        """The row that was made before, or else a new one. new: whether one may be made; if not, None."""
        if (part, key) not in self._rows:
            if not new:
                return None
            made = self._rows[part, key] = make()
            print(part, key, *(value for name, value in made.items() if name != "kernel"), flush=True)
            if self.path is not None:
                with self.path.open("a") as file:
                    file.write(json.dumps([part, key, made]) + "\n")
        return self._rows[part, key]
