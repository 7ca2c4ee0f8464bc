"""Kernels named on the command line: a path, or the short id that `tritonhook show` prints."""

from __future__ import annotations

import argparse
from pathlib import Path

from tritonhook.capture.settings import default_out
from tritonhook.capture.store import CaptureFolder
from tritonhook.capture.store.ids import is_id
from tritonhook.errors import CaptureError

ID_HELP = "its id in `tritonhook show`"


def place(text: str) -> str:
    """For argparse: the folder of the kernel that an id means, `a1b2c3` or `FOLDER/a1b2c3`; other texts as they are.

    An id without a folder is looked up in the folder that `tritonhook run` writes to by default.
    """
    path = Path(text)
    if path.exists() or not is_id(path.name):
        return text
    folder = path.parent if len(path.parts) > 1 else Path(default_out())
    try:
        captures = CaptureFolder.open(folder)
        record = captures.find(path.name)
    except CaptureError as error:
        raise argparse.ArgumentTypeError(f"{text}: no such file or folder; as an id: {error}") from None
    if record is None:
        raise argparse.ArgumentTypeError(
            f"{text}: no such file or folder, and no kernel in {folder} has an id that begins so; "
            f"`tritonhook show {folder}` lists them"
        )
    return str(folder / "kernels" / record)
