"""A dry run of pytest, without a GPU: `pytest --kernel-arch=sm_90a`. Kernels are compiled but not launched, so that a
failed assertion about values does not fail a test. In the runs of emulated_tests.py, launches are executed on the
CPU."""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any

import pytest

from tritonhook._util.imports import check_numpy
from tritonhook.capture.dry_run.gpu import ALL, FIRST, DryRun, Emulation, notes
from tritonhook.capture.dry_run.process import assembled
from tritonhook.capture.dry_run.suppressions import Found, read_suppressions
from tritonhook.capture.launches.views import BOUNDS, STORAGE
from tritonhook.capture.project import read_project
from tritonhook.capture.store.reader import CaptureFolder
from tritonhook.errors import TritonHookError, UsageError
from tritonhook.report.result import count
from tritonhook.testing import NEED_EMULATE
from tritonhook.testing.recording import RecordedRun, is_recorded

_NOT_JUDGED = (AssertionError, pytest.fail.Exception)
_GATE = "captured_kernels"  # tests with this fixture assert about machine code: their assertions count
_LIMIT_S = 60.0  # default of --kernel-limit: seconds for all launches of a test
# Assertions of these modules count as assertions of the test. Those of libraries do not.
_HELPERS = ("torch.testing", "numpy.testing", "triton.testing", "unittest", "_pytest")
_LIBRARIES = {"torch", "numpy", "triton", "cutlass", "tritonhook"}


@dataclass(frozen=True, slots=True)
class Target:
    """Settings of a dry run of tests. emulation: how launches are executed on the CPU; None if they are not
    executed."""

    dry: DryRun
    emulation: Emulation | None = None

    @classmethod
    def of(cls, config: pytest.Config) -> Target | None:
        """Make the target from pytest's options, and from the project's settings where an option is missing; None if no
        option asks for a dry run. Raises TritonHookError."""
        if not (config.getoption("kernel_arch") or config.getoption("kernel_emulate")):
            return None
        settings = read_project(config.invocation_params.dir).tests

        def option(name: str) -> Any:
            asked = config.getoption(name)
            return settings.get(name) if asked is None or asked is False else asked

        if not (arch := option("kernel_arch")):
            raise UsageError("--kernel-emulate: give --kernel-arch too, such as sm_90a")
        emulates = option("kernel_emulate")
        dry = assembled(DryRun.of(arch, autotune=FIRST if emulates else ALL))
        if not emulates:
            if needs := [name for name in NEED_EMULATE if config.getoption(f"kernel_{name}")]:
                raise UsageError(f"--kernel-{needs[0]}: only with --kernel-emulate, which executes launches")
            return cls(dry)
        check_numpy("--kernel-emulate")
        limit_s, shrink = option("kernel_limit"), option("kernel_shrink")
        if any(value is not None and not value > 0 for value in (limit_s, shrink)):
            raise UsageError("--kernel-limit, --kernel-shrink: give numbers above 0")
        limit_s, most = limit_s or _LIMIT_S, math.inf if shrink is None else shrink * (1 << 20)
        sanitizes, path = bool(option("kernel_sanitize")), option("kernel_suppress")
        needs = [name for name in ("suppress", "bounds") if config.getoption(f"kernel_{name}")]
        if needs and not sanitizes:
            raise UsageError(f"--kernel-{needs[0]}: only with --kernel-sanitize")
        if (bounds := option("kernel_bounds") or STORAGE) not in BOUNDS:
            raise UsageError(f"kernel_bounds = {bounds!r}: give {' or '.join(BOUNDS)}")
        suppressed = read_suppressions(config.invocation_params.dir / path) if path and sanitizes else ()
        emulation = replace(Found(suppressed).emulation, sanitize=sanitizes, bounds=bounds)
        return cls(dry, replace(emulation, limit_s=limit_s, most_bytes=most))


def register(config: pytest.Config) -> None:
    """Register the plugins of a dry run in this process. Raises pytest.UsageError."""
    try:
        target = Target.of(config)
        assert target is not None
        if target.emulation is None:
            config.pluginmanager.register(DryTests(target.dry.arch))
        else:
            from tritonhook.testing.emulated_tests import EmulatedTests

            config.pluginmanager.register(EmulatedTests(target.dry.arch, target.emulation))
        if not hasattr(config, "workerinput") and config.getoption("kernel_lock") is None:
            config.pluginmanager.register(DryCaptures(config, target))
    except TritonHookError as error:
        raise pytest.UsageError(str(error)) from None


def is_about_values(error: BaseException | None, reads: bool) -> bool:
    """Check whether an error, or one of its causes, is a failed assertion of a test. A compiler, or a library
    that got a wrong argument, may raise AssertionError, too; these are distinguished by the modules in the traceback.
    reads: whether the test has read values of tensors."""
    while error is not None:
        if isinstance(error, _NOT_JUDGED) and _is_of_a_test(error.__traceback__, reads):
            return True
        error = error.__cause__ or error.__context__
    return False


def _is_of_a_test(traceback: TracebackType | None, reads: bool) -> bool:
    """Check whether an assertion was raised by a test or its helpers. reads: as in is_about_values."""
    names, last = [], dict[str, Any]()
    while traceback is not None:
        last = traceback.tb_frame.f_globals
        names.append(str(last.get("__name__")))
        traceback = traceback.tb_next
    if any(name.startswith("triton.") and not name.startswith("triton.testing") for name in names):
        return False  # raised inside Triton, e.g. by its compiler
    if not names or names[-1].startswith(_HELPERS):
        return True
    of_pytest = "@pytest_ar" in last  # pytest rewrites the assertions of tests, conftests and its plugins
    return names[-1].partition(".")[0] not in _LIBRARIES and (of_pytest or reads)


class DryTests:
    """Reports tests as DRY: passed, but without their assertions about values. Also used in workers of pytest-xdist."""

    def __init__(self, arch: str) -> None:
        self.arch, self._reads = arch, 0

    def pytest_report_header(self) -> str:
        return f"tritonhook: dry run for {self.arch}: kernels are not launched; assertions about values do not count"

    def is_dry(self) -> bool:
        """Check whether assertions about values do not count in the present test."""
        return True

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self) -> None:
        self._reads = notes.reads

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, None]:
        report = (yield).get_result()
        judged = _GATE in getattr(item, "fixturenames", ()) or hasattr(report, "wasxfail") or not self.is_dry()
        if call.when != "call" or judged or report.skipped:
            return
        if report.failed and call.excinfo and is_about_values(call.excinfo.value, notes.reads > self._reads):
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
    """Captures the kernels of a dry run; used without --kernel-lock, which captures itself."""

    def __init__(self, config: pytest.Config, target: Target) -> None:
        if is_recorded():
            raise UsageError("--kernel-arch: captures by itself; start pytest without `tritonhook run`")
        kept = config.getoption("kernel_captures")
        super().__init__(config.invocation_params.dir / kept if kept else None, target.dry, target.emulation)
        self._target = target

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self) -> None:
        self.recording.end()

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        folder = CaptureFolder.open(self.out)
        kept = f"; captures in {self.out}" if self._temporary is None else ""
        compiled = "compiled" if self._target.emulation else "compiled, not launched"
        terminalreporter.section(f"dry run for {self._target.dry.arch}")
        terminalreporter.line(f"{count(len(folder.records), 'kernel')} {compiled}{kept}")
        for note in folder.notes:
            terminalreporter.line(f"- {note}")
