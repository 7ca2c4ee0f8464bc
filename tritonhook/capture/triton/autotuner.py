"""Find the configurations that Triton's Autotuner tried for each key, and the winner. pinning.py sets configurations.

Triton 3.6 and 3.7 do not report them; 3.8 has a listener, but only one tool can use it. The Autotuner measures each
configuration in `_bench`. This module patches `_bench` to learn which kernel is compiled for which configuration. The
winner is then in the Autotuner's own `cache`. This module reads it at the next compile; reading it at each launch would
make launches slower. An autotuning is missed if all its kernels were in memory before.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tritonhook.capture.patching import Hooks, Patch, patched

if TYPE_CHECKING:
    from tritonhook.capture.observers import Observer


@contextmanager
def choices_of(side: dict[str, str], own: dict[int, tuple[Any, dict[Any, Any]]] | None = None) -> Iterator[None]:
    """Record the configuration that each Triton autotuner launches during a `with` block.

    side: dict to which this function adds the configuration, by kernel name. own: dict of (tuner, its choices) by the
    tuner's id, which is used instead of the tuner's cache in memory and on disk. If it is empty, each tuner measures
    again.
    """
    from triton.runtime.autotuner import Autotuner

    def choosing(original: Callable[..., Any]) -> Callable[..., Any]:
        def run(tuner: Any, *arguments: Any, **named: Any) -> Any:
            before = tuner.cache, getattr(tuner, "cache_results", False)
            if own is not None:
                tuner.cache, tuner.cache_results = own.setdefault(id(tuner), (tuner, {}))[1], False
            try:
                result = original(tuner, *arguments, **named)
            finally:
                if own is not None:
                    tuner.cache, tuner.cache_results = before
            side[function_name(tuner)] = str(getattr(tuner, "best_config", None))
            return result

        return run

    with patched((Autotuner, "run", choosing)):
        yield


def function_name(tuner: Any) -> str:
    """Return the name of an autotuner's function."""
    return str(getattr(tuner.base_fn, "__name__", tuner.base_fn))


def source_hash(tuner: Any) -> str | None:
    """Return a hash of the source of an autotuner's function; None if it has no source."""
    function = tuner.fn
    while function is not None and not isinstance(getattr(function, "src", None), str):
        function = getattr(function, "fn", None)
    return None if function is None else hashlib.sha256(function.src.encode()).hexdigest()[:16]


def key_texts(tuner: Any, key: Any) -> tuple[str, ...]:
    """Return an autotuning's key as texts: "name=value" of the autotuner's key arguments, then the dtypes."""
    values = list(map(str, key)) if isinstance(key, tuple) else [str(key)]
    names = list(getattr(tuner, "keys", ()))
    return (*(f"{name}={value}" for name, value in zip(names, values, strict=False)), *values[len(names) :])


class _Round:
    """One autotuning. decided: keys that had a winner before this autotuning. trials: Triton's hash by configuration
    tried.

    cache: the tuner's cache when the autotuning began, because `choices_of` can replace it during a call.
    """

    def __init__(self, tuner: Any) -> None:
        self.tuner = tuner
        self.cache = tuner.cache
        self.decided = set(tuner.cache)
        self.trials: dict[Any, str] = {}

    def winner(self) -> tuple[Any, Any] | None:
        """Return (key, winning configuration); None until the tuner has decided."""
        new = [key for key in self.cache if key not in self.decided]
        return (new[-1], self.cache[new[-1]]) if new else None


class Autotuning(Hooks):
    """Hooks that report this process's autotunings to the sessions."""

    def __init__(self) -> None:
        super().__init__()
        self._rounds: dict[int, _Round] = {}  # by id of the tuner, which a round keeps alive
        self._trial = threading.local()

    def detach(self, session: Observer) -> None:
        self.conclude()
        super().detach(session)
        if not self.sessions:
            self._rounds.clear()

    def _patched(self) -> list[Patch]:
        from triton.runtime.autotuner import Autotuner

        return [Patch(Autotuner, "_bench", self._wrap)]

    def met(self, hash: str) -> None:
        """Record that this thread compiled a kernel or loaded it from the disk cache. hash: Triton's hash."""
        trial = getattr(self._trial, "current", None)
        if trial is None:
            self.conclude()
        else:
            met_round, config = trial
            met_round.trials[config] = hash

    def conclude(self) -> None:
        """Report the autotunings that have a winner."""
        if not self._rounds:
            return
        with self._lock:
            decided = [(tuned, winner) for tuned in self._rounds.values() if (winner := tuned.winner()) is not None]
            for tuned, _ in decided:
                del self._rounds[id(tuned.tuner)]
        for tuned, (key, config) in decided:
            if config in tuned.trials and len(tuned.trials) > 1:
                texts = {hash: str(tried) for tried, hash in tuned.trials.items()}
                name, keys, source = function_name(tuned.tuner), key_texts(tuned.tuner, key), source_hash(tuned.tuner)
                tuning, chosen = f"{os.getpid()}-{id(tuned.tuner)}-{key}", tuned.trials[config]
                for session in self.sessions:
                    session.configured(name, keys, chosen, texts, source)
                    session.tuned(tuning, "Triton", chosen, tuple(tuned.trials.values()))

    def _wrap(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def bench(tuner: Any, *arguments: Any, config: Any, **meta: Any) -> Any:
            outer = getattr(self._trial, "current", None)
            try:
                self._trial.current = (self._round(tuner), config)
            except Exception as error:
                self.contain("the winner of an autotuning is not known", error)
            try:
                return original(tuner, *arguments, config=config, **meta)
            finally:
                self._trial.current = outer

        return bench

    def _round(self, tuner: Any) -> _Round:
        current = self._rounds.get(id(tuner))
        if current is not None and current.winner() is not None:
            self.conclude()
            current = None
        if current is None:
            with self._lock:
                current = self._rounds.setdefault(id(tuner), _Round(tuner))
        return current


autotuning = Autotuning()
