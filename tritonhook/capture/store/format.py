"""The JSON that is written into capture folders; `schema` reads it.

It imports only the standard library and small modules, because the writer also runs in the ptxas wrapper and in other
Python installations.
"""

from __future__ import annotations

import os
from typing import Any

from tritonhook.capture.model import Capture, Stage

FORMAT = 1
STAGES = {stage.value: stage for stage in Stage}
SOURCES_FOLDER = "sources"  # subfolder for texts of source files; file names are hashes of their contents
MOST_SOURCE = 1 << 23  # limit for one source file, in bytes
# Only files of these types are kept or shown: an untrusted kernel could name a private file as its source, and a report
# with its text could be shared.
_SOURCES = (".py", ".ptx", ".cu", ".cuh", ".h", ".hpp", ".hxx", ".c", ".cc", ".cpp", ".cxx", ".inl")


def is_source(path: str) -> bool:
    """Check whether an absolute path leads to source code, by its file extension after resolving links."""
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
