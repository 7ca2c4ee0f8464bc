"""What the fixture `captured_kernels` needs during a run: captures of this process, and when each test began."""

from __future__ import annotations

import pytest

from tritonhook.testing.kernels import CapturedKernels
from tritonhook.testing.recording import RecordedRun, is_recorded, sessions


class FixtureRun:
    """Captures into a temporary folder, unless this process is captured already."""

    def __init__(self) -> None:
        self.kernels = CapturedKernels(sessions)
        self._recorded = None if is_recorded() else RecordedRun()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self) -> None:
        """Begin before the test's own fixtures: they may compile the kernels that the test asserts about."""
        self.kernels = CapturedKernels(sessions)

    def pytest_unconfigure(self) -> None:
        if self._recorded is not None:
            self._recorded.pytest_unconfigure()
