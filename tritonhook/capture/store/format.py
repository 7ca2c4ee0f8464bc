"""The JSON that is written into capture folders; `schema` reads it.

Used by the writer, which runs in foreign Pythons and in the ptxas wrapper: standard library and small values only.
"""

from __future__ import annotations

import os
from typing import Any

from tritonhook.capture.model import Capture, Stage

FORMAT = 1
STAGES = {stage.value: stage for stage in Stage}
SOURCES_FOLDER = "sources"  # in a capture folder: texts of source files, named by their content
MOST_SOURCE = 1 << 23  # bytes of one source file
# Files whose text is kept or shown: a stranger's kernel may name any file, and a page of it may be shared.
_SOURCES = (".py", ".ptx", ".cu", ".cuh", ".h", ".hpp", ".hxx", ".c", ".cc", ".cpp", ".cxx", ".inl")


def is_source(path: str) -> bool:
    """Check whether a path leads to source code, by the ending of its real name."""
    return path.startswith("/") and os.path.realpath(path).endswith(_SOURCES)


def describe(capture: Capture) -> dict[str, Any]:
    """Convert a capture to JSON values, without its artifacts."""
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
