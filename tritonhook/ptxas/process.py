"""Run one of NVIDIA's tools to its end with a time limit, on files in a private folder."""

from __future__ import annotations

import os
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


class Finished(NamedTuple):
    """How a run ended. returncode: negative for a signal, as in subprocess."""

    returncode: int
    stdout: bytes
    stderr: bytes
    timed_out: bool = False


def run_tool(command: Sequence[str], timeout_s: float = TIMEOUT_S) -> Finished:
    """Run a command; kill it when its time is over. Raises ToolError if it cannot be started."""
    # If this ptxas is our wrapper, it must not record the calls that tritonhook makes itself.
    environment = {**os.environ, WRAPPER: "off"}
    try:
        done = subprocess.run(command, capture_output=True, timeout=timeout_s, check=False, env=environment)
    except subprocess.TimeoutExpired as late:
        return Finished(-signal.SIGKILL, late.stdout or b"", late.stderr or b"", timed_out=True)
    except OSError as error:
        raise ToolError(f"{command[0]}: cannot run: {error.strerror}") from None
    return Finished(done.returncode, done.stdout, done.stderr)


@contextmanager
def temporary_file(name: str, data: bytes) -> Iterator[Path]:
    """Write a file in a temporary folder of its own, which is deleted afterwards. Raises ToolError."""
    with tempfile.TemporaryDirectory(prefix="tritonhook-") as folder:
        path = Path(folder, name)
        try:
            path.write_bytes(data)
        except OSError as error:
            raise ToolError(
                f"{path}: cannot write a temporary file: {error.strerror}; set TMPDIR to a folder with room"
            ) from None
        yield path
