"""What the fixture `captured_kernels` needs during a run: captures of this process, and when each test began."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest

from tritonhook.testing.kernels import CapturedKernels
from tritonhook.testing.recording import Recording, is_recorded, sessions


class FixtureRun:
    """Captures into a temporary folder, unless this process is captured already."""

    def __init__(self) -> None:
        self.kernels = CapturedKernels(sessions)
        self._folder = None if is_recorded() else Path(tempfile.mkdtemp(prefix="tritonhook-"))
        self._recording = None if self._folder is None else Recording(self._folder)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self) -> None:
        """Begin before the test's own fixtures: they may compile the kernels that the test asserts about."""
        self.kernels = CapturedKernels(sessions)

    def pytest_unconfigure(self) -> None:
        if self._recording is not None:
            self._recording.end()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
