"""Values as TOML that people can review. msgspec reads TOML files, but cannot lay them out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tritonhook._util.text import encodable


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
