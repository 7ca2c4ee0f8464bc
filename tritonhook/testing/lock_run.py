"""A run of pytest that compares its kernels with a lock: `pytest --kernel-lock=FILE [--kernel-update]`.
VerifyRun: a dry run that verifies its kernels on the CPU: `pytest --kernel-arch=sm_90a --kernel-verify`.

With pytest-xdist all workers capture into one folder, and the controller compares when they have ended.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from tritonhook._util.locks import changing
from tritonhook.capture.project import lock_path, read_project
from tritonhook.capture.store.reader import CaptureFolder
from tritonhook.children import bootstrap
from tritonhook.errors import TritonHookError, UsageError, listed
from tritonhook.report.render.terminal import render_terminal
from tritonhook.report.result import count
from tritonhook.snapshot.changes import compare, renumbered
from tritonhook.snapshot.crossed import crossed
from tritonhook.snapshot.facts import Budgets, Identity, KernelFacts
from tritonhook.snapshot.folders import read_folders
from tritonhook.snapshot.lockable import lockable, settled
from tritonhook.snapshot.lockfile import WholeLock, is_lock, kept_ptx, read_whole_lock, write_lock
from tritonhook.snapshot.rules import COMPILE_TIME, failures, fewer_configurations, nothing_compared, rules
from tritonhook.testing.dry_tests import DryCaptures, Target
from tritonhook.testing.recording import RecordedRun, is_recorded
from tritonhook.verify.model import verify_captures

Kernels = list[tuple[KernelFacts, str | None]]  # facts and PTX of each kernel


def register(config: pytest.Config) -> None:
    """Register the plugins of this process, which is the test run or a worker of pytest-xdist. Raises
    pytest.UsageError."""
    if hasattr(config, "workerinput"):
        config.pluginmanager.register(LockWorker(config))
        return
    try:
        run = LockRun(config)
    except TritonHookError as error:
        raise pytest.UsageError(str(error)) from None
    config.pluginmanager.register(run.scope)
    config.pluginmanager.register(run)


class LockWorker:
    """The plugin in a worker of pytest-xdist, which counts deselected tests. The worker captures from its start, by the
    settings in its environment."""

    def __init__(self, config: pytest.Config) -> None:
        self._output: dict[str, Any] = config.workeroutput  # type: ignore[attr-defined]
        self._output[DESELECTED] = 0

    def pytest_deselected(self, items: Sequence[pytest.Item]) -> None:
        self._output[DESELECTED] += len(items)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self) -> None:
        bootstrap.end()


class LockRun(RecordedRun):
    """The plugin in the test run, or in the controller of pytest-xdist."""

    def __init__(self, config: pytest.Config) -> None:
        """Begin to capture. Raises UsageError, or SnapshotError for a lock that cannot be used."""
        if is_recorded():
            raise UsageError("--kernel-lock: captures by itself; start pytest without `tritonhook run`")
        option = config.getoption
        self.scope = RunScope(config)
        here = config.invocation_params.dir
        self.name = option("kernel_lock") or str(lock_path(here))
        self.path = here / self.name
        if self.path.suffix == ".py" or "::" in self.name or (self.path.exists() and not is_lock(self.path)):
            what = "a folder" if self.path.is_dir() else "not a lock"
            raise UsageError(
                f"--kernel-lock={self.name}: {what}; give --kernel-lock=FILE, or --kernel-lock as the last argument"
            )
        self.update = bool(option("kernel_update"))
        self.rules = rules(option("kernel_fail_on")) if option("kernel_fail_on") else ()
        exists = self.path.exists()
        if not exists and not self.update:
            raise UsageError(f"--kernel-lock={self.name}: no such file; --kernel-update writes it")
        self.old, self.tests, budgets = read_whole_lock(self.path) if exists else WholeLock([], None, Budgets())
        if any(rule.what == COMPILE_TIME for rule in self.rules):
            raise UsageError(
                "--kernel-fail-on compile-time: a lock has no times; compare captures by `tritonhook diff`"
            )
        project = read_project(here)
        held = Budgets.of(project.max_registers, project.allow_spills).before(budgets)
        self.rules = tuple(replace(rule, budgets=held) for rule in self.rules)
        self.budgets = budgets
        self.said, self.failed = "", False
        self._started = time.time_ns()
        kept = option("kernel_captures")
        target = Target.of(config)
        runs = (target.dry, target.emulation) if target else (None, None)
        super().__init__(here / kept if kept else None, *runs)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int | pytest.ExitCode) -> None:
        """Compare the kernels with the lock. If they differ, the run fails, even if all tests passed."""
        self.recording.end()
        if exitstatus not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
            self.said = "not compared: the run did not finish\n"
            return
        try:
            self.failed = self._compare(bool(exitstatus))
            code = pytest.ExitCode.TESTS_FAILED if self.failed else pytest.ExitCode.OK
        except TritonHookError as error:
            self.said, self.failed, code = f"{error}\n", True, pytest.ExitCode.USAGE_ERROR
        session.exitstatus = exitstatus or code

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        _show(terminalreporter, f"kernels of {self.name}", self.said, self.failed)

    def _compare(self, tests_failed: bool) -> bool:
        """Compare the kernels with the lock, and update it with --kernel-update. Returns whether the run fails; the
        text for the terminal is stored in `said`."""
        old, folder = self.old, CaptureFolder.open(self.out).since(self._started)
        found = lockable(read_folders(folder)[0].kernels, () if self.update else old)
        kernels = renumbered(old, [locked for locked, _ in found])
        now: Kernels = [(kernel, ptx) for (_, ptx), kernel in zip(found, kernels, strict=True)]
        left, notes = self._left(old, kernels)
        notes += folder.notes
        changes = compare([facts for facts in old if facts.identity not in left], kernels)
        texts = {facts.ptx_sha256: text for facts, text in now}
        changes, further = crossed(changes, lambda it: texts.get(it.ptx_sha256) or kept_ptx(self.path, it))
        notes += further
        broken = failures(changes, self.rules)
        notes += fewer_configurations(changes)
        if blind := nothing_compared(changes):
            notes.append("no kernel of the lock was compiled: nothing was compared")
        fails = blind or bool(broken) if self.rules else any(change.is_different for change in changes)
        if self.update:
            notes.append(f"{self.name} stays as it was: tests failed" if tests_failed else self._update(now, left))
            fails = False
        elif fails:
            notes.append("--kernel-update accepts the present kernels")
        from tritonhook.report.results.snapshot import KernelChanges

        result = KernelChanges.of(self.name, "what the tests compiled", changes, broken, notes)
        self.said = render_terminal(result.summary(), sys.__stdout__ or sys.stdout)
        return fails

    def _left(self, old: Sequence[KernelFacts], now: Sequence[KernelFacts]) -> tuple[set[Identity], list[str]]:
        """Find the kernels of the lock that this run did not compile, because not all tests ran or another architecture
        was used. They are not compared. Also return a note on them."""
        archs = {facts.identity.arch for facts in now}
        missing = {facts.identity for facts in old} - {facts.identity for facts in now}
        why = self.scope.why_part
        if why is None and self.tests is None:
            why = "the lock does not list its tests"
        elif why is None and self.tests is not None and not self.scope.covers(self.tests):
            why = f"the tests of the lock are in {' '.join(self.tests)}"
        if why is None:
            why = f"these tests compiled for {', '.join(sorted(archs))} only"
            missing = {identity for identity in missing if archs and identity.arch not in archs}
        shown = listed(dict.fromkeys(f"{identity.kernel} {identity.arch}" for identity in sorted(missing)))
        note = f"{count(len(missing), 'kernel')} not compiled, so neither compared nor removed, because {why}: {shown}"
        return missing, [note] if missing else []

    def _update(self, now: Kernels, left: set[Identity]) -> str:
        """Write the lock. Kernels in `left`, and kernels that another run has locked meanwhile, stay in it unchanged.
        Returns a note."""
        with changing(self.path):
            there = read_whole_lock(self.path) if self.path.exists() else WholeLock([], None, self.budgets)
            others = {it.identity for it in there.kernels} - {it.identity for it in self.old}
            done = settled(self.path, there.kernels, now)
            stay = (left | others) - {kernel.identity for kernel, _ in done}
            kept: Kernels = [
                (it, None if it.ptx_sha256 is None else kept_ptx(self.path, it))
                for it in there.kernels
                if it.identity in stay
            ]
            if not done and not kept:
                return f"{self.name} is not written: the tests compiled no kernel"
            tests = there.tests
            if self.scope.why_part is None and not left:
                if not stay:
                    tests = self.scope.tests
                elif tests is not None:
                    tests = tuple(sorted({*tests, *self.scope.tests}))
            write_lock(self.path, [*done, *kept], tests, there.budgets)
        return f"wrote {self.name}: {count(len(done) + len(kept), 'kernel')}"


# --- tests of a lock --------------------------------------------------------------------------
# A kernel of the lock counts as removed only if all tests of the lock ran and none compiled it.

# Options that select tests: name in pytest's configuration, name on the command line.
_CHOOSING = {"keyword": "-k", "markexpr": "-m", "deselect": "--deselect", "lf": "--lf", "stepwise": "--stepwise"}
_CHOOSING |= {"ignore": "--ignore", "ignore_glob": "--ignore-glob"}
DESELECTED = "tritonhook_deselected"  # workers of pytest-xdist send their number of deselected tests under this key


class RunScope:
    """A plugin that counts tests that were deselected, were skipped or failed.

    tests: pytest's file and folder arguments, relative to its root folder.
    """

    def __init__(self, config: pytest.Config) -> None:
        self.tests = _given(config)
        self._chosen = next((name for option, name in _CHOOSING.items() if config.getoption(option, None)), None)
        if any("::" in argument for argument in config.args):
            self._chosen = "single tests"
        self._deselected = self._skipped = self._failed = 0

    def pytest_deselected(self, items: Sequence[pytest.Item]) -> None:
        self._deselected += len(items)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object) -> None:
        """Add the counts of a pytest-xdist worker that ended; a worker that crashed counts as failed."""
        self._deselected += getattr(node, "workeroutput", {}).get(DESELECTED, 0)
        self._failed += bool(error)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self._failed += report.failed
        self._skipped += report.skipped

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._failed += report.failed
        self._skipped += report.skipped and not hasattr(report, "wasxfail")

    @property
    def why_part(self) -> str | None:
        """Why not all tests of pytest's file and folder arguments ran and passed; None if all did."""
        if self._chosen is not None:
            return f"tests were chosen with {self._chosen}"
        counts = {"deselected": self._deselected, "skipped": self._skipped, "failed": self._failed}
        parts = [f"{count(times, 'test')} {how}" for how, times in counts.items() if times]
        return ", ".join(parts) or None

    def covers(self, tests: Sequence[str]) -> bool:
        """Check whether these files and folders are among pytest's arguments, or inside of them."""
        given = {PurePosixPath(path) for path in self.tests}
        return all(given & {PurePosixPath(path), *PurePosixPath(path).parents} for path in tests)


def _given(config: pytest.Config) -> tuple[str, ...]:
    """List pytest's file and folder arguments, relative to its root folder."""
    here = config.invocation_params.dir
    paths = {Path(os.path.relpath(here / argument.partition("::")[0], config.rootpath)) for argument in config.args}
    return tuple(sorted(path.as_posix() for path in paths))


# --- verified on the CPU --------------------------------------------------------------------------


class VerifyRun:
    """A plugin that verifies the captured kernels after all tests. Register it after the plugin that captures."""

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
        _show(terminalreporter, "kernels verified", self._said, self._failed)


def _show(reporter: pytest.TerminalReporter, title: str, text: str, failed: bool) -> None:
    if text:
        reporter.section(f"{title}{' FAILED' if failed else ''}", red=failed, bold=failed)
        reporter.write(text)


def register_verify(config: pytest.Config) -> None:
    """Register VerifyRun, but not in workers of pytest-xdist, which only capture."""
    plugins = config.pluginmanager.get_plugins()
    captures = next((one for one in plugins if isinstance(one, (DryCaptures, LockRun))), None)
    if captures is not None:
        config.pluginmanager.register(VerifyRun(captures))
