"""Kernels named on the command line: a path, or the short id that `tritonhook show` prints."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from tritonhook.capture.settings import default_out
from tritonhook.capture.store import CaptureFolder
from tritonhook.capture.store.ids import FEWEST, is_id, is_short_of_id
from tritonhook.errors import CaptureError, UsageError

_PLACES = "places"  # in the parsed arguments: the names of those that can be an id


def add_place(parser: argparse.ArgumentParser, name: str, **options: Any) -> None:
    """Add a positional argument that names a kernel or several."""
    parser.add_argument(name, **options)
    parser.set_defaults(**{_PLACES: (*(parser.get_default(_PLACES) or ()), name)})


def resolve_places(arguments: argparse.Namespace) -> None:
    """Put the kernels' folders in place of ids. Raises UsageError for an id that no kernel has, or several."""
    for name in getattr(arguments, _PLACES, ()):
        given = getattr(arguments, name)
        setattr(arguments, name, [_place(text) for text in given] if isinstance(given, list) else _place(given))


def _place(text: str | None) -> str | None:
    """The folder of the kernel that an id means, `a1b2c3` or `FOLDER/a1b2c3`; other texts as they are.

    An id without a folder is looked up in the folder that `tritonhook run` writes to by default.
    """
    if text is None or Path(text).exists():
        return text
    path = Path(text)
    if is_short_of_id(path.name):
        raise UsageError(f"{text}: no such file or folder, and too short for an id: give {FEWEST} digits or more")
    if not is_id(path.name):
        return text
    folder = path.parent if len(path.parts) > 1 else Path(default_out())
    try:
        record = CaptureFolder.open(folder).find(path.name)
    except CaptureError as error:
        raise UsageError(f"{text}: no such file or folder; as an id: {error}") from None
    if record is None:
        raise UsageError(
            f"{text}: no such file or folder, and no kernel in {folder} has an id that begins so; "
            f"`tritonhook show {folder}` lists them"
        )
    return str(folder / "kernels" / record)
