"""The JSON that is written into capture folders; `schema` reads it.

Used by the writer, which runs in foreign Pythons and in the ptxas wrapper: standard library and small values only.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from tritonhook.capture.model import Capture, Stage

FORMAT = 1
STAGES = {stage.value: stage for stage in Stage}


def describe(capture: Capture) -> dict[str, Any]:
    """A capture as JSON values, without its artifacts."""
    return {
        "kernel": capture.kernel,
        "hash": capture.hash,
        "arch": capture.arch,
        "stages": [stage.value for stage in capture.artifacts],
        "ptxas": {
            "path": capture.assembler.path,
            "version": capture.assembler.version,
            "arguments": capture.assembler.arguments,
        },
        "options": dict(capture.options),
        "metadata": dict(capture.metadata),
        "cache_hit": capture.cache_hit,
        "rewritten_from": capture.rewritten_from,
        "note": capture.note,
    }


def to_json(document: Mapping[str, Any]) -> bytes:
    """A document as strict JSON in one line. What JSON has no form for becomes text: infinities and NaN, bytes of a
    path that are no UTF-8, other objects."""
    try:
        return json.dumps(document, default=str, allow_nan=False, ensure_ascii=False).encode()
    except ValueError:  # UnicodeEncodeError is one
        return json.dumps(_plain(document), default=str, ensure_ascii=False).encode()


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {_plain(key) if isinstance(key, str) else key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value.encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else value
