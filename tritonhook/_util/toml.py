"""Settings in TOML that people write, and values as TOML that people can review: msgspec cannot lay them out."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tritonhook._util.files import read_given
from tritonhook._util.text import encodable
from tritonhook.errors import UsageError

_MOST_BYTES = 1 << 20  # of a file of settings


def read_settings(path: Path, word: bytes = b"") -> dict[str, Any]:
    """Read a file of settings; empty if its text lacks `word`. Raises UsageError if the file cannot be read, also if it
    is too large."""
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        data = read_given(path, _MOST_BYTES)
        return tomllib.loads(data.decode()) if word in data else {}
    except OSError as error:
        raise UsageError(f"{path}: cannot read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path}: no TOML that can be read: {error}") from None


def toml_value(value: Any) -> str:
    """Write a TOML value. JSON strings are TOML strings, except DEL. Path bytes that are not UTF-8 are escaped."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{toml_value(name)} = {toml_value(item)}" for name, item in value.items()) + " }"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(toml_value, value))}]"
    value = encodable(value) if isinstance(value, str) else value
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def toml_block(name: str, values: Mapping[str, Any]) -> str:
    """Write one item of an array of tables, with a line for each value."""
    lines = [f"{key} = {toml_value(value)}" for key, value in values.items()]
    return "\n".join([f"[[{name}]]", *lines, ""])
