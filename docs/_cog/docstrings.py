"""Show the `name: meaning` lines of docstrings as lists in the Python reference (a Griffe extension)."""

from __future__ import annotations

import re
from typing import Any

import griffe  # type: ignore[import-not-found, unused-ignore]

_ENTRY = re.compile(r"^(\w+): (?=\S)")


def as_lists(text: str, names: set[str]) -> str:
    """Make list items of the lines in `text` that begin with one of `names` and a colon."""
    lines, inside = [], False
    for line in text.splitlines():
        entry = _ENTRY.match(line)
        if entry and entry[1] in names:
            if not inside:
                lines.append("")
            line, inside = f"- `{entry[1]}`: {line[entry.end() :]}", True
        elif not line.strip():
            inside = False
        elif inside:
            line = f"  {line.strip()}"
        lines.append(line)
    return "\n".join(lines)


class Lists(griffe.Extension):  # type: ignore[misc, unused-ignore]
    """Make lists of the lines about parameters and attributes in docstrings of functions and classes."""

    def on_function(self, *, func: Any, **_: Any) -> None:
        if func.docstring:
            func.docstring.value = as_lists(func.docstring.value, {one.name for one in func.parameters})

    def on_class(self, *, cls: Any, **_: Any) -> None:
        if cls.docstring:
            cls.docstring.value = as_lists(cls.docstring.value, set(cls.members))
