"""Progress of work that takes more than 0.7 s. On a terminal it is a bar, which is removed at the end. Elsewhere a line
is printed, and further lines if the number of steps is known."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tritonhook._util.text import say, visible
from tritonhook.cli._streams import unescaped

DELAY_S = 0.7  # shorter work is not reported
_AGAIN_S = 20.0  # time between two lines, without a terminal
_QUIET = "TRITONHOOK_QUIET"


class Work:
    """Work in progress, reported in lines. Calling it adds steps that are done. total: number of all steps; None if
    unknown."""

    def __init__(self, text: str, total: int | None) -> None:
        self.text, self.total, self.done = text, total, 0
        self.ended = threading.Event()

    def __call__(self, steps: int) -> None:
        self.done += steps

    def expect(self, more: int) -> None:
        """Announce further steps."""
        self.total = (self.total or 0) + more

    def run(self) -> None:
        wait = DELAY_S
        while not self.ended.wait(wait):
            count = "" if self.total is None else f", {self.done:,} of {self.total:,} done"
            say(f"tritonhook: {visible(self.text)}{count} ...")
            wait = _AGAIN_S if self.total is not None else threading.TIMEOUT_MAX


@contextmanager
def working(text: str, total: int | None = None) -> Iterator[Work]:
    """Report work that takes more than 0.7 s. Yields a Work to call with the number of steps done.

    text: e.g. "assembling side a with ptxas 12.8.93". total: the number of steps, if known in advance.
    """
    work = (_Bar if sys.stderr.isatty() else Work)(text, total)
    if is_quiet():
        yield work
        return
    thread = threading.Thread(target=work.run, daemon=True)
    thread.start()
    try:
        yield work
    finally:
        work.ended.set()
        thread.join()


def is_quiet() -> bool:
    """Return True if TRITONHOOK_QUIET turns progress reports off."""
    return bool(os.environ.get(_QUIET))


class _Bar(Work):
    """Work reported as a bar, which is removed at the end."""

    def run(self) -> None:
        if self.ended.wait(DELAY_S):
            return
        from rich import progress
        from rich.console import Console

        columns = [progress.SpinnerColumn(), progress.TextColumn("{task.description}", markup=False)]
        if self.total is not None:
            columns += [progress.BarColumn(), progress.MofNCompleteColumn(), progress.TimeRemainingColumn()]
        console = Console(file=unescaped(sys.stderr))
        with progress.Progress(*columns, progress.TimeElapsedColumn(), console=console, transient=True) as bar:
            task = bar.add_task(visible(self.text), total=self.total)
            while not self.ended.wait(0.1):
                bar.update(task, completed=self.done, total=self.total, description=visible(self.text))
