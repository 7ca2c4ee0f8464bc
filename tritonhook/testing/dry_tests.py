"""A run of pytest without a GPU: `pytest --kernel-arch=sm_90a`. Kernels are compiled and not launched, so that what a
test asserts about values is not judged."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from tritonhook.capture.dry_run.gpu import ALL, DryRun
from tritonhook.capture.dry_run.process import check_assembled
from tritonhook.capture.store.reader import CaptureFolder
from tritonhook.errors import TritonHookError, UsageError
from tritonhook.report.result import count
from tritonhook.testing.recording import RecordedRun, is_recorded

_NOT_JUDGED = (AssertionError, pytest.fail.Exception)
_GATE = "captured_kernels"  # the fixture whose tests assert about machine code: they are judged


def dry_run_of(config: pytest.Config) -> DryRun | None:
    """Make the dry run for the architecture of --kernel-arch; None without that option. Raises TritonHookError."""
    if not (arch := config.getoption("kernel_arch")):
        return None
    dry = DryRun.of(arch, autotune=ALL)
    check_assembled(dry)
    return dry


def register(config: pytest.Config) -> None:
    """Add the plugins of this process. Raises pytest.UsageError."""
    try:
        dry = dry_run_of(config)
        assert dry is not None
        config.pluginmanager.register(DryTests(dry.arch))
        if not hasattr(config, "workerinput") and config.getoption("kernel_lock") is None:
            config.pluginmanager.register(DryCaptures(config, dry))
    except TritonHookError as error:
        raise pytest.UsageError(str(error)) from None


class DryTests:
    """Reports tests as dry. In workers of pytest-xdist too."""

    def __init__(self, arch: str) -> None:
        self._arch = arch

    def pytest_report_header(self) -> str:
        return f"tritonhook: dry run for {self._arch}: kernels are compiled, and not launched; values are not judged"

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, None]:
        report = (yield).get_result()
        judged = _GATE in getattr(item, "fixturenames", ()) or hasattr(report, "wasxfail")
        if call.when != "call" or judged or report.skipped:
            return
        if report.failed and call.excinfo is not None and call.excinfo.errisinstance(_NOT_JUDGED):
            report.outcome, report.longrepr = "passed", None
        report.dry = report.passed

    @pytest.hookimpl(tryfirst=True)
    def pytest_report_teststatus(
        self, report: pytest.TestReport
    ) -> tuple[str, str, tuple[str, dict[str, bool]]] | None:
        if report.when == "call" and getattr(report, "dry", False):
            return "dry", "d", ("DRY", {"yellow": True})
        return None


class DryCaptures(RecordedRun):
    """Captures what the tests compile, if no lock does."""

    def __init__(self, config: pytest.Config, dry: DryRun) -> None:
        if is_recorded():
            raise UsageError("--kernel-arch: captures by itself; start pytest without `tritonhook run`")
        kept = config.getoption("kernel_captures")
        super().__init__(config.invocation_params.dir / kept if kept else None, dry)
        self._arch = dry.arch

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self) -> None:
        self.recording.end()

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        folder = CaptureFolder.open(self.out)
        kept = f"; captures in {self.out}" if self._temporary is None else ""
        terminalreporter.section(f"dry run for {self._arch}")
        terminalreporter.line(f"{count(len(folder.records), 'kernel')} compiled, not launched{kept}")
        for note in folder.notes:
            terminalreporter.line(f"- {note}")
