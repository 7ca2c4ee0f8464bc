"""Run one of NVIDIA's tools to its end with a time limit, on files in a private folder."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tritonhook._util.variables import WRAPPER
from tritonhook.errors import ToolError

TIMEOUT_S = 600.0
_PATH_CHARACTERS = 256
_ROOM_BYTES = 1 << 16


class Finished(NamedTuple):
    """How a run ended. returncode: negative for a signal, as in subprocess."""

    returncode: int
    stdout: bytes
    stderr: bytes
    timed_out: bool = False


def run_tool(command: Sequence[str], timeout_s: float = TIMEOUT_S) -> Finished:
    """Run a command; kill it when its time is over. Raises ToolError if it cannot be started, and KeyboardInterrupt if
    the user interrupts it: Ctrl-C reaches it too."""
    # If this ptxas is our wrapper, it must not record the calls that tritonhook makes itself.
    environment = {**os.environ, WRAPPER: "off"}
    try:
        done = subprocess.run(command, capture_output=True, timeout=timeout_s, check=False, env=environment)
    except subprocess.TimeoutExpired as late:
        return Finished(-signal.SIGKILL, late.stdout or b"", late.stderr or b"", timed_out=True)
    except OSError as error:
        raise ToolError(f"{command[0]}: cannot run: {error.strerror}") from None
    if done.returncode == -signal.SIGINT:
        raise KeyboardInterrupt
    return Finished(done.returncode, done.stdout, done.stderr)


@contextmanager
def temporary_file(name: str, data: bytes) -> Iterator[Path]:
    """Write a file in a temporary folder of its own, which is deleted afterwards. Raises ToolError."""
    try:
        made = tempfile.TemporaryDirectory(prefix="tritonhook-")
    except OSError as error:
        raise _no_room(Path(name), error) from None
    with made as folder:
        path = Path(folder, name)
        try:
            path.write_bytes(data)
        except OSError as error:
            raise _no_room(path, error) from None
        yield path


def fixed_length(path: Path) -> str:
    """The path with as many slashes before its name as make it 256 characters long, which leads to the same file.

    What ptxas gives for some sm_100 kernels follows the length of its arguments: 12.9.86 gave one of two codes by the
    length of $TMPDIR.
    """
    folder = str(path.parent)
    return folder + "/" * max(1, _PATH_CHARACTERS - len(folder) - len(path.name)) + path.name


def _no_room(path: Path, error: OSError) -> ToolError:
    return ToolError(f"{path}: cannot write a temporary file: {error.strerror}; set TMPDIR to a folder with room")


def check_room(path: Path) -> None:
    """Raises ToolError if the disk of this file is full: ptxas then writes a part of its output, without an error."""
    if shutil.disk_usage(path.parent).free < _ROOM_BYTES:
        raise ToolError(f"{path.parent}: the disk is full, so the output is cut off; set TMPDIR to one with room")
