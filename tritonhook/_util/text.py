"""Text of foreign origin (kernel names, notes, paths, messages) made safe to print. Standard library only."""

from __future__ import annotations

import sys
from typing import Any


def visible(text: Any, keep: str = "") -> str:
    """A text with control characters written out: "\\n". They could move the cursor, colour or hide a part of a name,
    or turn its direction round. Lone surrogates, which no stream can write, too. keep: characters that stay."""
    shown = str(text)
    if shown.isprintable():
        return shown
    return "".join(c if c.isprintable() or c in keep else c.encode("unicode_escape").decode() for c in shown)


def say(text: Any) -> None:
    """Print a line of tritonhook's on standard error, in whatever program this is. Further lines are indented, so that
    no foreign text can look like a line of its own."""
    if sys.stderr is None:  # print would take standard output
        return
    first, *rest = visible(text, keep="\n").split("\n")
    print("\n".join([first, *(line if line.startswith(" ") else f"  {line}" for line in rest)]), file=sys.stderr)
