"""Captures of a script that runs dry, for verbs that take a script in the place of a capture folder."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tritonhook.capture.dry_run.gpu import DryRun
from tritonhook.cli._programs import is_script, run_to_end
from tritonhook.errors import UsageError


@contextmanager
def dry_captures(place: str, archs: str | None) -> Iterator[str]:
    """The capture folder that was given; or, with architectures, one with what a script compiles for them, which goes
    away again. Raises UsageError if the one does not go with the other, or the script fails."""
    if archs is None:
        if is_script(place) and not Path(place).is_dir():
            raise UsageError(f"{place}: a script; give --arch sm_90a,... to run it dry, or a capture folder")
        yield place
        return
    if Path(place).is_dir():
        raise UsageError("--arch: for a script, which is run dry; a capture folder has its architectures")
    wanted = [DryRun.of(arch.strip()).arch for arch in archs.split(",")]
    with tempfile.TemporaryDirectory(prefix="tritonhook-dry-") as folder:
        for arch in wanted:
            command = [sys.executable, "-m", "tritonhook", "run", "--arch", arch, "--out", folder, place]
            if code := run_to_end(command, dict(os.environ), stdout_is_ours=True):
                raise UsageError(f"{place} ended with status {code} in its dry run for {arch}: nothing was compared")
        yield folder
