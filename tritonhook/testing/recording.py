"""Capture the kernels that this process and its child processes compile, as `tritonhook run` does."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path

from tritonhook._util.variables import RUN
from tritonhook.capture.dry_run.gpu import DryRun, Emulation
from tritonhook.capture.session import Session
from tritonhook.capture.settings import make_settings
from tritonhook.children import SITE, bootstrap
from tritonhook.children.environment import run_environment


def is_recorded() -> bool:
    """Check whether this process is captured already: under `tritonhook run`, or as a worker of pytest-xdist."""
    return RUN in os.environ


def hand_on() -> None:
    """Make torch.compile's worker processes capture, too. They get this process's sys.path instead of PYTHONPATH."""
    if str(SITE) not in sys.path:
        sys.path.insert(0, str(SITE))


def sessions() -> list[Session]:
    """Return the sessions that capture in this process; empty until the process imports a compiler."""
    return bootstrap.sessions


class Recording:
    """A capture of this process, from its construction until `end`. Child processes read its settings from their
    environment."""

    def __init__(self, out: Path, dry_run: DryRun | None = None, emulation: Emulation | None = None) -> None:
        """Begin to capture into `out`. Raises CaptureError if the folder cannot be written. dry_run: compile for this
        target, launch nothing. emulation: execute the launches of the dry run on the CPU."""
        settings = make_settings(out, launches=dry_run is not None, dry_run=dry_run)
        self._before = dict(os.environ)
        self._set, _ = run_environment(settings, sys.argv)
        self._set |= {} if emulation is None else emulation.to_environment()
        self._ended = False
        os.environ.update(self._set)
        hand_on()
        bootstrap.begin(then_users=False)

    def end(self) -> None:
        """End the capture, and restore the environment. A second call does nothing."""
        if self._ended:
            return
        self._ended = True
        bootstrap.end()
        if str(SITE) in sys.path:
            sys.path.remove(str(SITE))
        for name, value in self._set.items():
            if os.environ.get(name) != value or self._before.get(name) == value:
                continue  # changed by the program since, or not changed by us
            if name in self._before:
                os.environ[name] = self._before[name]
            else:
                del os.environ[name]


class RecordedRun:
    """A plugin of pytest that captures a whole run. out: the folder of the captures."""

    def __init__(
        self, kept: Path | None = None, dry_run: DryRun | None = None, emulation: Emulation | None = None
    ) -> None:
        """Begin to capture. kept: folder for captures; None for a temporary folder, which is removed at the end. Raises
        as Recording."""
        self._temporary = None if kept else Path(tempfile.mkdtemp(prefix="tritonhook-"))
        self.out = kept or self._temporary or Path()
        self.recording = Recording(self.out, dry_run, emulation)

    def pytest_unconfigure(self) -> None:
        self.recording.end()
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)
