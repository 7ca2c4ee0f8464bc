"""How far `tritonhook tune` is, on standard error: a bar with the time left; without a terminal a line a kernel."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from tritonhook._util.text import say, visible
from tritonhook.cli._progress import is_quiet
from tritonhook.cli._streams import unescaped
from tritonhook.tuning.engine import Progress, Step
from tritonhook.tuning.result import Tried


@contextmanager
def tune_progress(kernels: int) -> Iterator[Progress]:
    """Show the steps of a tuning of so many kernels."""
    if is_quiet():
        yield lambda step: None
        return
    if not sys.stderr.isatty():
        yield _say_finished
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    text = TextColumn("{task.description}", markup=False)
    console = Console(file=unescaped(sys.stderr))
    with Progress(BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), text, console=console) as bar:
        task = bar.add_task("", total=kernels)

        def show(step: Step) -> None:
            if step.finished is not None:
                bar.console.print(finished_line(step.finished), markup=False, highlight=False)
            bar.update(task, completed=step.done, description=visible(step.text))

        yield show


def _say_finished(step: Step) -> None:
    if step.finished is not None:
        say(f"tritonhook: {finished_line(step.finished)}")


def finished_line(one: Tried) -> str:
    """A kernel that has just come to its end. All are judged together later."""
    effect = None if one.comparison is None else one.comparison.effect()
    if one.reason or one.winner is None or effect is None:
        return f"{one.kernel.name}: {one.reason}"
    return f"{one.kernel.name}: {one.winner.text} takes {100 * (1 - effect.ratio):.1f}% less time"
