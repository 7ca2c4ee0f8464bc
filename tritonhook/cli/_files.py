"""Files that a verb writes."""

from __future__ import annotations

import os
from pathlib import Path

from tritonhook._util.files import write_given
from tritonhook.errors import UsageError


def near(path: Path) -> Path:
    """Shorten a path: relative if it lies in the current folder."""
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) and path != here else path


def check_new(path: Path, force: bool) -> None:
    """Raise UsageError if `write_new` would fail: for verbs that work for long before they write."""
    if path.is_dir():
        raise UsageError(f"{path}: a folder; name a file in it")
    if str(path) == "-":
        raise UsageError("-: standard output has the verb's own text; name a file, or ./-")
    if (path.is_file() or path.is_block_device()) and not force:
        raise UsageError(f"{path}: exists; pass --force to replace it")
    if not path.exists() and not _place(path).parent.is_dir():
        raise UsageError(f"{path}: cannot write: the folder {_place(path).parent} does not exist; make it first")
    if not path.exists() and not os.access(_place(path).parent, os.W_OK):
        raise UsageError(f"{path}: cannot write: you may not write to the folder {_place(path).parent}")


def write_new(path: Path, data: str | bytes, force: bool) -> None:
    """Write a file whole or not at all. Raises UsageError if it exists without `force`, or if it cannot be written.

    A link is followed, and stays. A device or a pipe is written to, not replaced.
    """
    check_new(path, force)
    try:
        write_given(path, data)
    except OSError as error:
        raise UsageError(f"{path}: cannot write: {error.strerror}") from None


def _place(path: Path) -> Path:
    """Return the path that a write ends at, with all links followed."""
    return Path(os.path.realpath(path))
