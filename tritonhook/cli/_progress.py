"""Progress of work that takes longer than a moment. On a terminal it is a bar, removed at the end; elsewhere a line at
the beginning, and further lines if the work has a count.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tritonhook._util.text import say, visible
from tritonhook.cli._streams import unescaped

DELAY_S = 0.7  # shorter work is not reported
_AGAIN_S = 20.0  # between lines without a terminal
_QUIET = "TRITONHOOK_QUIET"
Advance = Callable[[int], None]


@contextmanager
def working(text: str, total: int | None = None) -> Iterator[Advance]:
    """Report work that takes longer than a moment. Yields a function to call with the number of steps done.

    text: e.g. "assembling side a with ptxas 12.8.93". total: the number of steps, if known in advance.
    """
    if is_quiet():
        yield lambda steps: None
        return
    reporter = (_Bar if sys.stderr.isatty() else _Lines)(visible(text), total)
    thread = threading.Thread(target=reporter.run, daemon=True)
    thread.start()
    try:
        yield reporter.advance
    finally:
        reporter.ended.set()
        thread.join()


def is_quiet() -> bool:
    """Return whether the user wants no progress reports."""
    return bool(os.environ.get(_QUIET))


class _Lines:
    """Reports in lines, for a file or a pipe."""

    def __init__(self, text: str, total: int | None) -> None:
        self.text, self.total, self.done = text, total, 0
        self.ended = threading.Event()

    def advance(self, steps: int) -> None:
        self.done += steps

    def run(self) -> None:
        wait = DELAY_S
        while not self.ended.wait(wait):
            count = "" if self.total is None else f", {self.done:,} of {self.total:,} done"
            say(f"tritonhook: {self.text}{count} ...")
            wait = _AGAIN_S if self.total is not None else threading.TIMEOUT_MAX


class _Bar(_Lines):
    """Reports as a bar, which goes away at the end."""

    def run(self) -> None:
        if self.ended.wait(DELAY_S):
            return
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        text = TextColumn("{task.description}", markup=False)
        counted = () if self.total is None else (BarColumn(), MofNCompleteColumn())
        console = Console(file=unescaped(sys.stderr))
        with Progress(SpinnerColumn(), text, *counted, TimeElapsedColumn(), console=console, transient=True) as bar:
            task = bar.add_task(self.text, total=self.total)
            while not self.ended.wait(0.1):
                bar.update(task, completed=self.done)
