"""Triton's Autotuner in a dry run: nothing is measured. It takes the first configuration that the GPU has room for;
with ALL it compiles every one that its own pruning leaves."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tritonhook.capture.dry_run.gpu import ALL
from tritonhook.capture.patching import Patch

_NEVER = [float("inf")] * 3
_missing = object()


class Tuners(threading.local):
    """The tuners of a thread at work. trying: a configuration is compiled now. found: the tuners that have one."""

    def __init__(self) -> None:
        self.trying = False
        self.found: set[int] = set()


tuners = Tuners()


@contextmanager
def choosing(autotune: str) -> Iterator[None]:
    """Let the Autotuner choose so. autotune: FIRST or ALL."""
    from triton.runtime.autotuner import Autotuner

    def run_wrapper(original: Callable[..., Any]) -> Callable[..., Any]:
        def run(tuner: Any, *arguments: Any, **named: Any) -> Any:
            tuners.found.discard(id(tuner))
            kept = getattr(tuner, "cache_results", False), vars(tuner).get("do_bench", _missing)
            tuner.cache_results, tuner.do_bench = False, _call_once  # its cache on disk is for what was measured
            try:
                return original(tuner, *arguments, **named)
            finally:
                tuner.cache_results = kept[0]
                del tuner.do_bench
                if kept[1] is not _missing:
                    tuner.do_bench = kept[1]

        return run

    def bench_wrapper(original: Callable[..., Any]) -> Callable[..., Any]:
        def bench(tuner: Any, *arguments: Any, **named: Any) -> Any:
            if autotune != ALL and id(tuner) in tuners.found:
                return _NEVER
            outer, tuners.trying = tuners.trying, True
            try:
                times = original(tuner, *arguments, **named)
            finally:
                tuners.trying = outer
            if times != _NEVER:
                tuners.found.add(id(tuner))
            return times

        return bench

    patches = [Patch(Autotuner, "run", run_wrapper), Patch(Autotuner, "_bench", bench_wrapper)]
    try:
        yield
    finally:
        for patch in patches:
            patch.undo()


def _call_once(call: Callable[[], Any], quantiles: Any = None, **_: Any) -> list[float]:
    """The same time for all that fit: then the Autotuner takes the first of them."""
    call()
    return [0.0] * 3
