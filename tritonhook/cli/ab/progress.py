"""The bar that `tritonhook ab` shows on a terminal while it times, with the estimate so far."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tritonhook.cli._progress import working
from tritonhook.cli._streams import write_err
from tritonhook.timing.statistics import Comparison, percent

_WIDTH = 20  # of the bar, in characters


@contextmanager
def progress_bar(seconds: float) -> Iterator[Callable[[Comparison | None], None] | None]:
    """Show a bar on standard error, and remove it at the end; elsewhere a line, and gives None.

    seconds: how long the whole comparison may take.
    """
    if not sys.stderr.isatty():
        with working(f"timing for up to {seconds:.0f} s"):
            yield None
        return
    started = time.monotonic()
    columns = shutil.get_terminal_size().columns - 1

    def write(line: str) -> None:
        write_err(f"\r\x1b[2K{line[:columns]}")

    try:
        yield lambda comparison: write(progress_line(comparison, (time.monotonic() - started) / seconds))
    finally:
        write("")


def progress_line(comparison: Comparison | None, share: float = 0.0) -> str:
    """The bar for the share of the time that has passed, and the estimate so far, in one line."""
    done = min(max(round(share * _WIDTH), 0), _WIDTH)
    bar = f"[{'#' * done}{'.' * (_WIDTH - done)}] "
    if comparison is None:
        return f"{bar}preparing: compiling, comparing outputs, warming up"
    found, control = comparison.effect(), comparison.control
    if found is None:
        return f"{bar}no usable block yet"
    span = f"{percent(found.ratio)} ({percent(found.low)} to {percent(found.high)})"
    floor = "" if control is None else f", control {percent(control.ratio)}"
    return f"{bar}{found.blocks} blocks: {span}{floor}"
