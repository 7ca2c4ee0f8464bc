"""Which configuration won when Triton's Autotuner chose one. Reads only.

Triton 3.6 and 3.7 tell nobody (3.8 has a listener, for one tool). The Autotuner measures each configuration in
`_bench`, which is wrapped here to know what was compiled for it; afterwards its own `cache` says which one won. The
winner is looked up when the next thing happens, so that nothing stands in the launch path. A tuning whose kernels
were all in memory before is not seen.
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol


@contextmanager
def choices_of(side: dict[str, str], own: dict[int, tuple[Any, dict[Any, Any]]] | None = None) -> Iterator[None]:
    """Note in `side` which configuration each of Triton's autotuners launches, for the length of a `with` block.

    own: the choices of whoever is active, by the tuner's id, where they shall not be shared with others that use the
    same tuners: then the tuner measures anew for each `own`, and its cache on disk is not asked.
    """
    from triton.runtime.autotuner import Autotuner

    original = Autotuner.run

    def run(tuner: Any, *arguments: Any, **named: Any) -> Any:
        before = tuner.cache, getattr(tuner, "cache_results", False)
        if own is not None:
            tuner.cache, tuner.cache_results = own.setdefault(id(tuner), (tuner, {}))[1], False
        try:
            result = original(tuner, *arguments, **named)
        finally:
            if own is not None:
                tuner.cache, tuner.cache_results = before
        side[str(getattr(tuner.base_fn, "__name__", tuner.base_fn))] = str(getattr(tuner, "best_config", None))
        return result

    Autotuner.run = run
    try:
        yield
    finally:
        Autotuner.run = original


class Owner(Protocol):
    def tuned(self, tuning: str, by: str, winner: str, among: Sequence[str]) -> None: ...
    def contain(self, doing: str, error: BaseException) -> None: ...


class _Round:
    """One tuning: the keys that were decided before it, and Triton's hash for each configuration tried. It holds on to
    the cache it goes into: `choices_of` lends a tuner another one for the length of a call."""

    def __init__(self, tuner: Any) -> None:
        self.tuner = tuner
        self.cache = tuner.cache
        self.decided = set(tuner.cache)
        self.trials: dict[Any, str] = {}

    def winner(self) -> tuple[Any, Any] | None:
        """The key and its configuration, once the tuner has decided."""
        new = [key for key in self.cache if key not in self.decided]
        return (new[-1], self.cache[new[-1]]) if new else None


class Autotuning:
    """The tunings of this process, for the sessions there are."""

    def __init__(self) -> None:
        self.sessions: list[Owner] = []
        self._lock = threading.Lock()
        self._rounds: dict[int, _Round] = {}  # by the tuner's id; a round holds its tuner
        self._trial = threading.local()
        self._original: Any = None
        self._ours: Any = None

    def attach(self, session: Owner) -> None:
        self.sessions.append(session)
        if self._ours is None:
            from triton.runtime.autotuner import Autotuner

            self._original = Autotuner.__dict__.get("_bench")
            if self._original is not None:
                self._ours = functools.wraps(self._original)(self._wrap(self._original))
                setattr(Autotuner, "_bench", self._ours)  # noqa: B010

    def detach(self, session: Owner) -> None:
        self.conclude()
        if session in self.sessions:
            self.sessions.remove(session)
        if not self.sessions and self._ours is not None:
            from triton.runtime.autotuner import Autotuner

            if Autotuner.__dict__.get("_bench") is self._ours:
                setattr(Autotuner, "_bench", self._original)  # noqa: B010
            self._ours = None
            self._rounds.clear()

    def met(self, hash: str) -> None:
        """A kernel was compiled, or came from the disk cache, in this thread."""
        trial = getattr(self._trial, "current", None)
        if trial is None:
            self.conclude()
        else:
            one, config = trial
            one.trials[config] = hash

    def conclude(self) -> None:
        """Report the rounds that are decided."""
        if not self._rounds:
            return
        with self._lock:
            decided = [(one, found) for one in self._rounds.values() if (found := one.winner()) is not None]
            for one, _ in decided:
                del self._rounds[id(one.tuner)]
        for one, (key, config) in decided:
            if config in one.trials and len(one.trials) > 1:
                for session in self.sessions:
                    session.tuned(
                        f"{os.getpid()}-{id(one.tuner)}-{key}", "Triton", one.trials[config], tuple(one.trials.values())
                    )

    def _wrap(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def bench(tuner: Any, *arguments: Any, config: Any, **meta: Any) -> Any:
            outer = getattr(self._trial, "current", None)
            try:
                self._trial.current = (self._round(tuner), config)
            except Exception as error:
                for session in self.sessions:
                    session.contain("the winner of an autotuning is not known", error)
            try:
                return original(tuner, *arguments, config=config, **meta)
            finally:
                self._trial.current = outer

        return bench

    def _round(self, tuner: Any) -> _Round:
        one = self._rounds.get(id(tuner))
        if one is not None and one.winner() is not None:
            self.conclude()
            one = None
        if one is None:
            with self._lock:
                one = self._rounds.setdefault(id(tuner), _Round(tuner))
        return one


autotuning = Autotuning()
