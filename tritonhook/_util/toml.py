"""Read settings from TOML files, and write values as TOML for people to review; msgspec has no layout for that."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tritonhook._util.files import read_given
from tritonhook._util.text import encodable
from tritonhook.errors import UsageError

_MOST_BYTES = 1 << 20  # size limit of a settings file


def read_settings(path: Path, word: bytes = b"") -> dict[str, Any]:
    """Read a settings file. word: if the file does not contain it, the result is empty and the file is not parsed.
    Raises UsageError if the file cannot be read or is too large."""
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
    """Format a TOML value. Strings are written as JSON, which TOML reads except for DEL. Path bytes that are not UTF-8
    are escaped."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{toml_value(name)} = {toml_value(item)}" for name, item in value.items()) + " }"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(toml_value, value))}]"
    value = encodable(value) if isinstance(value, str) else value
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def toml_block(name: str, values: Mapping[str, Any]) -> str:
    """Format one item of an array of tables, `[[name]]`, with a line for each value."""
    lines = [f"{key} = {toml_value(value)}" for key, value in values.items()]
    return "\n".join([f"[[{name}]]", *lines, ""])
