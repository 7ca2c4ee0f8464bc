"""Triton's Autotuner in a dry run: nothing is measured. It takes the first configuration that the GPU has room for;
with ALL it compiles every one that its own pruning leaves, in worker processes on all cores."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import IO, Any, NoReturn

from tritonhook._util.variables import EMULATE
from tritonhook.capture.dry_run.gpu import ALL, FIRST, PINNED, notes
from tritonhook.capture.launches.recorder import recorder
from tritonhook.capture.patching import patched
from tritonhook.capture.triton.listener import listening

_WORTH_IT = 3  # configurations
_NEVER = [float("inf")] * 3
_missing = object()


class Tuners(threading.local):
    """The tuners of a thread at work. trying: a configuration is compiled now. found: the tuners that have one.
    arguments: of the tuner that runs now."""

    def __init__(self) -> None:
        self.trying = False
        self.found: set[int] = set()
        self.arguments: tuple[Any, ...] = ()


tuners = Tuners()


@contextmanager
def choosing(autotune: str) -> Iterator[None]:
    """Let the Autotuner choose so. autotune: FIRST, ALL or PINNED; pins of a policy come before (triton/pinning.py)."""
    from triton.runtime.autotuner import Autotuner

    tried, pruned = partial(_tried, autotune), partial(_pruned, autotune)
    with patched((Autotuner, "run", _unmeasured), (Autotuner, "_bench", tried), (Autotuner, "prune_configs", pruned)):
        yield


def _unmeasured(original: Callable[..., Any]) -> Callable[..., Any]:
    """A run of a tuner without its cache on disk, which is for what was measured."""

    def run(tuner: Any, *arguments: Any, **named: Any) -> Any:
        outer, tuners.arguments = tuners.arguments, arguments
        kept, tuner.cache_results = getattr(tuner, "cache_results", False), False
        try:
            return original(tuner, *arguments, **named)
        finally:
            tuners.arguments = outer
            tuner.cache_results = kept

    return run


def _tried(autotune: str, original: Callable[..., Any]) -> Callable[..., Any]:
    """Try a configuration without the tuner's clock; with FIRST and PINNED, until one fits. A tuner with a `run` of its
    own comes here too, but none whose configuration is pinned."""

    def bench(tuner: Any, *arguments: Any, **named: Any) -> Any:
        if autotune == PINNED:
            notes.add(
                f"{_name(tuner)}: the policy pins no configuration for this call; the first that fits is compiled"
            )
        if autotune != ALL and id(tuner) in tuners.found:
            return _NEVER
        outer, tuners.trying = tuners.trying, True
        own = vars(tuner).get("do_bench", _missing)
        tuner.do_bench = _call_once
        try:
            times = original(tuner, *arguments, **named)
        finally:
            tuners.trying = outer
            vars(tuner).pop("do_bench", None)
            if own is not _missing:
                tuner.do_bench = own
        if times != _NEVER:
            tuners.found.add(id(tuner))
        return times

    return bench


def _pruned(autotune: str, original: Callable[..., Any]) -> Callable[..., Any]:
    """The configurations that are tried next; with ALL they are compiled here."""

    def prune(tuner: Any, named: Any, *rest: Any) -> Any:
        tuners.found.discard(id(tuner))
        configs = list(original(tuner, named, *rest))
        if autotune == ALL:
            compile_ahead(tuner, tuners.arguments, named, configs)
        elif autotune == FIRST and len(configs) > 1:
            notes.add(f"{_name(tuner)}: 1 of {len(configs)} configurations compiled; --autotune all compiles all")
        return configs

    return prune


def _name(tuner: Any) -> str:
    return str(getattr(tuner.base_fn, "__name__", tuner.base_fn))


def _call_once(call: Callable[[], Any], quantiles: Any = None, **_: Any) -> list[float]:
    """The same time for all that fit: then the Autotuner takes the first of them."""
    call()
    return [0.0] * 3


# --- all configurations, on all cores ------------------------------------------------------------


def compile_ahead(tuner: Any, arguments: tuple[Any, ...], named: dict[str, Any], configs: Sequence[Any]) -> None:
    """Compile configurations in forked processes, into Triton's cache, from which this process takes them then.

    What a process does not come to, this one compiles itself.
    """
    workers = min(os.cpu_count() or 1, len(configs))
    if workers < 2 or len(configs) < _WORTH_IT or threading.active_count() > 1 or EMULATE in os.environ:
        return
    reading, writing = os.pipe()
    children = []
    for number in range(workers):
        if (child := os.fork()) == 0:
            os.close(reading)
            _compile(tuner, arguments, named, configs[number::workers], writing)
        children.append(child)
    os.close(writing)
    with os.fdopen(reading, "rb", buffering=0) as done:
        _show(_name(tuner), len(configs), done)
    for child in children:
        os.waitpid(child, 0)


def _compile(
    tuner: Any, arguments: tuple[Any, ...], named: dict[str, Any], configs: Sequence[Any], told: int
) -> NoReturn:
    """Compile in a forked process, and end it. It captures nothing: its parent does."""
    listening.sessions = ()
    recorder.sessions = ()
    try:
        for config in configs:
            with suppress(Exception):  # the parent meets it too
                tuner._bench(*arguments, config=config, **named)
            os.write(told, b".")
    finally:
        os._exit(0)


def _show(name: str, count: int, done: IO[bytes]) -> None:
    """Show on a terminal how many are compiled, until all have ended."""
    seen = 0
    shown = sys.stderr if sys.stderr.isatty() else None
    while more := done.read(4096):
        seen += len(more)
        if shown:
            print(f"\r{name}: {'#' * (20 * seen // count):<20} {seen} of {count} compiled", end="", file=shown)
    if shown:
        print("\r\033[K", end="", file=shown, flush=True)
