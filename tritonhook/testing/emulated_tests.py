"""A run of pytest without a GPU, whose launches are executed on the CPU: `pytest --kernel-arch=sm_90a
--kernel-emulate`. Tensors have real values, so that all assertions of the tests count. This module needs numpy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator
from typing import Any

import pytest

from tritonhook.capture.dry_run.gpu import Emulation
from tritonhook.capture.dry_run.suppressions import Found, Suppression, found
from tritonhook.children.dry_launches import begin_test, end_at_the_launch, launches
from tritonhook.emulate.errors import NotExecuted
from tritonhook.errors import KernelFault
from tritonhook.report.result import count
from tritonhook.testing.dry_tests import DryTests


class EmulatedTests(DryTests):
    """Skips a test if one of its launches could not be executed, fails a test if a kernel has a fault, and counts both.
    With pytest-xdist, the workers skip and fail tests, and the controller counts."""

    def __init__(self, arch: str, emulation: Emulation) -> None:
        super().__init__(arch)
        self._emulation = emulation
        self._tests: Counter[str] = Counter()
        self._launches, self._seconds = 0, 0.0
        self._suppressed = Found([Suppression(*one) for one in emulation.suppressions])

    def pytest_report_header(self) -> str:
        faults = ", with a search for faults" if self._emulation.sanitize else ""
        return f"tritonhook: emulated {self.arch}: launches are executed on the CPU, from their PTX{faults}"

    def is_dry(self) -> bool:
        return bool(launches.dry)

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None, Any, None]:  # type: ignore[override]
        super().pytest_runtest_setup()
        begin_test()
        _judge(item, (yield))

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, Any, None]:
        _judge(item, (yield))

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Generator[None, Any, None]:
        yield
        item.user_properties.append(("emulated", [launches.executed, round(launches.seconds, 3), *_kinds()]))
        if found.used:
            item.user_properties.append(("suppressed", sorted(found.used)))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add the counts of a test; with pytest-xdist, those that a worker sent in the report."""
        properties: dict[str, Any] = dict(report.user_properties)
        if report.when == "teardown" and "emulated" in properties:
            executed, seconds, *kinds = properties["emulated"]
            self._launches, self._seconds = self._launches + executed, self._seconds + seconds
            self._tests.update(kinds)
            self._suppressed.used.update(properties.get("suppressed", ()))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        terminalreporter.section(f"emulated {self.arch}")
        terminalreporter.line(f"{count(self._launches, 'launch', 'launches')} executed in {self._seconds:.1f} s")
        for kind, tests in sorted(self._tests.items()):
            terminalreporter.line(f"{count(tests, 'test')} {kind}")
        for text in self._suppressed.unused():
            terminalreporter.line(text)


def _kinds() -> list[str]:
    """Return how the present test is counted: with a fault, skipped or dry; empty for any other test."""
    if launches.findings:
        return ["with a finding of the sanitizer"]
    if launches.left:
        return [f"skipped, as a launch was {launches.left[0][0]}"]
    return ["dry, as tensors were larger than --kernel-shrink"] if launches.dry else []


def _judge(item: pytest.Item, outcome: Any) -> None:
    """Fail a test if one of its kernels has a fault. Skip it if one of its launches could not be executed, even if the
    test caught the error."""
    kept = getattr(item, "_excinfo", None) or []  # unittest.TestCase stores its errors here instead of raising them
    error = kept[0].value if kept else outcome.excinfo[1] if outcome.excinfo else None
    if launches.findings:
        text = "\n".join(dict.fromkeys(launches.findings))
        if error is None or isinstance(error, pytest.skip.Exception) or _not_executed(error):
            kept.clear()
            outcome.force_exception(pytest.fail.Exception(f"emulated kernels have faults:\n{text}", pytrace=False))
        else:
            item.add_report_section("call", "faults of emulated kernels", text)
        return
    if isinstance(error, KernelFault):
        end_at_the_launch(error.__traceback__)
    if not launches.left and (cause := _not_executed(error)) is not None:
        launches.left.append((cause.kind, str(cause)))  # the launch was in a fixture that an earlier test made
    if launches.left:
        kept.clear()
        outcome.force_exception(pytest.skip.Exception(launches.left[0][1], _use_item_location=True))


def _not_executed(error: BaseException | None) -> NotExecuted | None:
    """Find a NotExecuted error among an error and its causes."""
    while error is not None and not isinstance(error, NotExecuted):
        error = error.__cause__ or error.__context__
    return error
