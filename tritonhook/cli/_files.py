"""Files named on the command line: read with a clear error, written whole, replaced only with --force."""

from __future__ import annotations

import os
from pathlib import Path

from tritonhook._util.files import write_whole
from tritonhook.errors import UsageError
from tritonhook.snapshot.lockfile import is_lock


def near(path: Path) -> Path:
    """A path as a reader would write it: relative where it lies in the current folder."""
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) and path != here else path


def check_new(path: Path, force: bool) -> None:
    """Raises UsageError if `write_new` would: for verbs that work for long before they write."""
    if path.is_dir():
        raise UsageError(f"{path}: a folder; name a file in it")
    if (path.is_file() or path.is_block_device()) and not force:
        raise UsageError(f"{path}: exists; pass --force to replace it")
    if not path.exists() and not _place(path).parent.is_dir():
        raise UsageError(f"{path}: cannot write: the folder {_place(path).parent} does not exist; make it first")
    if not path.exists() and not os.access(_place(path).parent, os.W_OK):
        raise UsageError(f"{path}: cannot write: you may not write to the folder {_place(path).parent}")


def write_new(path: Path, data: str, force: bool) -> None:
    """Write a file whole or not at all. Raises UsageError if it exists and not `force`, or if it cannot be written.

    A link is followed, and stays. A device or a pipe is written to, not replaced.
    """
    check_new(path, force)
    try:
        if path.exists() and not path.is_file():
            path.write_text(data)
        else:
            write_whole(_place(path), data)
    except OSError as error:
        raise UsageError(f"{path}: cannot write: {error.strerror}") from None


def _place(path: Path) -> Path:
    """Where a write to `path` ends, with all links followed."""
    return Path(os.path.realpath(path))


def read_bytes(path: Path) -> bytes:
    """Read a file with code or a result. Raises UsageError with the reason if it cannot be read, or is a lock."""
    try:
        data = path.read_bytes()
    except IsADirectoryError:
        raise UsageError(f"{path}: a folder; give a file or a capture (OUT/kernels/NAME-HASH)") from None
    except OSError as error:
        raise UsageError(f"{path}: cannot read: {error.strerror}") from None
    if is_lock(path):
        raise UsageError(
            f"{path}: a lock; `tritonhook show {path}` lists its kernels, `tritonhook check {path} CAPTURES` compares "
            "captures with it"
        )
    return data
