"""A dry run of pytest whose kernels are verified on the CPU: `pytest --kernel-arch=sm_90a --kernel-verify`."""

from __future__ import annotations

import pytest

from tritonhook.errors import TritonHookError
from tritonhook.testing.dry_tests import DryCaptures
from tritonhook.testing.lock_run import LockRun
from tritonhook.verify.gate import verify_captures


class VerifyRun:
    """Verifies what the tests have compiled, when all have ended. Register it behind what captures."""

    def __init__(self, captures: DryCaptures | LockRun) -> None:
        self._captures, self._said, self._failed = captures, "", False

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int | pytest.ExitCode) -> None:
        if exitstatus not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
            return
        code = pytest.ExitCode.TESTS_FAILED
        try:
            self._failed, self._said = verify_captures(self._captures.out)
        except TritonHookError as error:
            self._failed, self._said, code = True, f"{error}\n", pytest.ExitCode.USAGE_ERROR
        if self._failed:
            session.exitstatus = session.exitstatus or code

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._said:
            title = f"kernels verified{' FAILED' if self._failed else ''}"
            terminalreporter.section(title, red=self._failed, bold=self._failed)
            terminalreporter.write(self._said)


def register(config: pytest.Config) -> None:
    """Add the plugin to the run itself, where workers of pytest-xdist only capture."""
    plugins = config.pluginmanager.get_plugins()
    captures = next((one for one in plugins if isinstance(one, (DryCaptures, LockRun))), None)
    if captures is not None:
        config.pluginmanager.register(VerifyRun(captures))
