"""Triton's Autotuner in a dry run. It chooses the first configuration that fits the GPU, without measuring. With ALL,
worker processes on all cores first compile all configurations that the Autotuner's own pruning keeps."""

from __future__ import annotations

import hashlib
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
from tritonhook.capture.triton.autotuner import function_name
from tritonhook.capture.triton.listener import listening
from tritonhook.errors import listed

_WORTH_IT = 3  # minimum number of configurations for which worker processes are started
_NEVER = [float("inf")] * 3  # times of a configuration that must not be chosen
_missing = object()


class Trial:
    """The launches of one trial of a configuration or of other settings, executed on the CPU. `undo` restores all
    buffers that they changed. label: text for the settings that the trial uses; "" for a configuration of an autotuner.
    before: (argument, writable bytes, earlier contents) of each buffer, by (address, size). dtypes: data type by
    argument."""

    def __init__(self, label: str = "") -> None:
        self.label = label
        self.before: dict[tuple[int, int], tuple[str, Any, bytes]] = {}
        self.dtypes: dict[str, str] = {}

    def launched(self, names: Sequence[str], dtypes: Sequence[str], memories: Sequence[Any]) -> None:
        """Save the contents of buffers before a launch. names, dtypes: names and data types of the arguments. memories:
        writable bytes of each buffer."""
        self.dtypes |= zip(names, dtypes, strict=True)
        for name, memory in zip(names, memories, strict=True):
            if len(memory):
                self.before.setdefault((memory.ctypes.data, len(memory)), (name, memory, memory.tobytes()))

    def contents(self) -> list[bytes]:
        """Return a hash of the current contents of each buffer."""
        return [hashlib.sha256(memory).digest() for _, memory, _ in self.before.values()]

    def differing(self, first: Sequence[bytes]) -> list[str]:
        """List the arguments whose contents have changed since the first launch. first: the result of `contents` after
        that launch."""
        after = zip(self.before.values(), first, self.contents(), strict=True)
        return [name for (name, *_), one, other in after if one != other]

    def undo(self) -> None:
        """Restore the contents of the buffers."""
        for _, memory, data in self.before.values():
            memory[:] = memoryview(data)


class Tuners(threading.local):
    """State of the autotuners in one thread. trying: True while a configuration is being tried. trial: the current
    trial, if launches are executed on the CPU. found: ids of the tuners for which a configuration has fitted.
    arguments: arguments of the current tuner's call. tried: called after each executed trial with kernel,
    configuration, trial, and the error ("" if none). tunings: number of autotunings."""

    def __init__(self) -> None:
        self.trying = False
        self.trial: Trial | None = None
        self.found: set[int] = set()
        self.arguments: tuple[Any, ...] = ()
        self.tried: Callable[[str, Any, Trial, str], None] | None = None
        self.tunings = 0


tuners = Tuners()


@contextmanager
def choosing(autotune: str) -> Iterator[None]:
    """Make the Autotuner choose without measuring. autotune: FIRST, ALL or PINNED. A configuration that a policy pins
    has priority (triton/pinning.py)."""
    from triton.runtime.autotuner import Autotuner

    tried, pruned = partial(_tried, autotune), partial(_pruned, autotune)
    with patched((Autotuner, "run", _unmeasured), (Autotuner, "_bench", tried), (Autotuner, "prune_configs", pruned)):
        yield


def _unmeasured(original: Callable[..., Any]) -> Callable[..., Any]:
    """Run a tuner without its cache on disk, which must contain only measured results."""

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
    """Try a configuration without measuring. With FIRST and PINNED, skip all configurations after the first that fits.
    A subclass of Autotuner with its own `run` method also calls this function. A tuner with a pinned configuration does
    not call it."""

    def bench(tuner: Any, *arguments: Any, **named: Any) -> Any:
        if autotune == PINNED:
            why = "the policy pins no configuration for this call; the first one that fits the GPU is compiled"
            notes.add(f"{function_name(tuner)}: {why}")
        if autotune != ALL and id(tuner) in tuners.found:
            return _NEVER
        outer, tuners.trying = tuners.trying, True
        own = vars(tuner).get("do_bench", _missing)
        is_first = id(tuner) not in tuners.found
        executed = partial(_executed, function_name(tuner), is_first, named.get("config"))
        tuner.do_bench = executed if EMULATE in os.environ else _call_once
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
    """Return the configurations to try. With ALL, first compile them in worker processes."""

    def prune(tuner: Any, named: Any, *rest: Any) -> Any:
        tuners.found.discard(id(tuner))
        tuners.tunings += 1
        configs = list(original(tuner, named, *rest))
        if autotune == ALL:
            compile_ahead(tuner, tuners.arguments, named, configs)
        elif autotune == FIRST and len(configs) > 1:
            notes.add(
                f"{function_name(tuner)}: 1 of {len(configs)} configurations compiled; --autotune all compiles all"
            )
        return configs

    return prune


def _call_once(call: Callable[[], Any], quantiles: Any = None, **_: Any) -> list[float]:
    """Call once. Return the same time for every configuration, so that the Autotuner chooses the first that fits."""
    call()
    return [0.0] * 3


def _executed(name: str, is_first: bool, config: Any, call: Callable[[], Any], *rest: Any, **named: Any) -> list[float]:
    """Call once as `_call_once` does, then restore the buffers. is_first: also call a second time, to find arguments
    that each trial changes again. A failed trial is reported to `tuners.tried`; if that is None, the error is
    raised."""
    label = getattr(config, "label", "")
    outer, tuners.trial = tuners.trial, Trial(label)
    try:
        try:
            times = _call_once(call)
        except Exception as error:
            if tuners.tried is None:
                raise
            tuners.tried(name, config, tuners.trial, f"{error}" or type(error).__name__)
            return list(_NEVER)
        if tuners.tried is not None:
            tuners.tried(name, config, tuners.trial, "")
        if is_first and not label:
            once = tuners.trial.contents()
            call()
            if changed := tuners.trial.differing(once):
                notes.add(
                    f"{name}: each trial of the autotuner changes {listed(changed)} again, so that on a GPU the "
                    "result of the first call is wrong; name the argument in restore_value or reset_to_zero"
                )
        return times
    finally:
        tuners.trial.undo()
        tuners.trial = outer


# --- all configurations, on all cores ------------------------------------------------------------


def compile_ahead(tuner: Any, arguments: tuple[Any, ...], named: dict[str, Any], configs: Sequence[Any]) -> None:
    """Compile configurations in forked processes, into Triton's cache, from which this process loads them later.

    If a forked process fails, this process itself compiles the configurations of the failed process.
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
        _show(function_name(tuner), len(configs), done)
    for child in children:
        os.waitpid(child, 0)


def _compile(
    tuner: Any, arguments: tuple[Any, ...], named: dict[str, Any], configs: Sequence[Any], told: int
) -> NoReturn:
    """Compile configurations in a forked process, and end the process. Only the parent process captures. told: file
    descriptor that gets one byte for each configuration."""
    listening.sessions = ()
    recorder.sessions = ()
    try:
        for config in configs:
            with suppress(Exception):  # the parent process compiles it again and reports the error
                tuner._bench(*arguments, config=config, **named)
            os.write(told, b".")
    finally:
        os._exit(0)


def _show(name: str, count: int, done: IO[bytes]) -> None:
    """Show the number of compiled configurations on a terminal, until all processes have ended."""
    seen = 0
    shown = sys.stderr if sys.stderr.isatty() else None
    while more := done.read(4096):
        seen += len(more)
        if shown:
            print(f"\r{name}: {'#' * (20 * seen // count):<20} {seen} of {count} compiled", end="", file=shown)
    if shown:
        print("\r\033[K", end="", file=shown, flush=True)
