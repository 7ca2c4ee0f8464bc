"""Make foreign text (kernel names, notes, paths, messages) safe to print or to store as JSON. Standard library only."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping
from typing import Any


def visible(text: Any, keep: str = "") -> str:
    """Escape control characters such as "\\n", which could move the cursor, set colours, or hide or reverse text.
    Escape lone surrogates, too, as no stream can write them. keep: characters that are not escaped."""
    shown = str(text)
    if shown.isprintable():
        return shown
    return "".join(c if c.isprintable() or c in keep else c.encode("unicode_escape").decode() for c in shown)


def say(text: Any) -> None:
    """Print a message on standard error. Lines after the first are indented, so that foreign text in a message cannot
    imitate another message."""
    if sys.stderr is None:  # print would then use standard output
        return
    first, *rest = visible(text, keep="\n").split("\n")
    print("\n".join([first, *(line if line.startswith(" ") else f"  {line}" for line in rest)]), file=sys.stderr)


def to_json(document: Mapping[str, Any], indent: int | None = None) -> str:
    """Convert a document to strict JSON without control characters. Infinities, NaN, path bytes that are not UTF-8 and
    objects without a JSON form become text."""
    try:
        text = json.dumps(document, default=str, allow_nan=False, indent=indent)
        if "\\ud" in text:  # a surrogate; encode() raises if it is a lone one
            json.dumps(document, default=str, ensure_ascii=False).encode()
    except ValueError:  # also UnicodeEncodeError, its subclass
        text = json.dumps(_plain(document), default=str, indent=indent)
    return text.replace("\x7f", "\\u007f")


def encodable(text: str) -> str:
    """Escape lone surrogates, which Python uses for path bytes that are not UTF-8."""
    return text.encode("utf-8", "backslashreplace").decode()


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {_plain(key) if isinstance(key, str) else key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return encodable(value) if isinstance(value, str) else value


def file_line(path: str, line: int | str) -> str:
    """Format a source line as "kernel.py:12", without the file's folder."""
    return f"{path.rpartition('/')[2]}:{line}"
