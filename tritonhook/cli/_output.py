"""What the verbs share in printing and writing: JSON or rich, and files that are whole or not there."""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from tritonhook.errors import UsageError


def add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print one JSON document instead of text")


def show(renderable: Any) -> None:
    """Print a report; where the output is no terminal, wide enough that nothing is folded."""
    from rich.console import Console

    console = Console(width=None if sys.stdout.isatty() else 160, highlight=False, soft_wrap=False)
    console.print(renderable)


def show_json(document: dict[str, Any]) -> None:
    print(json.dumps(document, indent=1, default=str))


def write_new(path: Path, data: str, force: bool) -> None:
    """Write a file beside its place and rename it there. Raises UsageError if it exists and not `force`."""
    if path.exists() and not force:
        raise UsageError(f"{path}: exists; pass --force to replace it")
    try:
        handle, name = tempfile.mkstemp(dir=path.parent or Path(), prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "w") as file:
                file.write(data)
            Path(name).chmod(0o644)
            Path(name).replace(path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise UsageError(f"{path}: cannot write: {error.strerror}") from None


def read_bytes(path: Path) -> bytes:
    """A file's bytes; UsageError with the reason if it cannot be read."""
    try:
        return path.read_bytes()
    except IsADirectoryError:
        raise UsageError(f"{path}: a folder; give a file or a capture (OUT/kernels/NAME-HASH)") from None
    except OSError as error:
        raise UsageError(f"{path}: cannot read: {error.strerror}") from None
