"""Wait until a source of a program changes: for `run --watch`."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

_POLL_S = 0.3
Times = Mapping[Path, int]  # when each file was written; files that are not there have no time


def times_of(paths: Iterable[Path]) -> Times:
    times = {}
    for path in paths:
        try:
            times[path] = os.stat(path).st_mtime_ns  # noqa: PTH116  (many, several times a second)
        except OSError:
            continue  # an editor replaces it
    return times


def await_change(paths: Iterable[Path], before: Times, sleep: Callable[[float], None] = time.sleep) -> list[Path]:
    """Wait until some of the files have been written since `before`, and are no longer being written. Returns them."""
    paths = list(paths)
    last = dict(before)
    while True:
        sleep(_POLL_S)
        now = dict(times_of(paths))
        changed = [path for path in now if now[path] != before.get(path)]
        if changed and now == last:
            return changed
        last = now
