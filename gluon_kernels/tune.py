"""Find the fastest configuration for a problem, names included. Needs torch and a GPU.

The candidates come from the kernel's config module. ptxas schedules an entry by its name too, so they include every
name. All candidates are timed in the same rounds. A difference below `NOISE` counts as none, and the plain name wins a
tie.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from .host import Tensor
from .verify.timer import Timed, time_all

# The medians of two launches of equal code differed by less than this (docs/explanation/timing.md).
NOISE = 0.005


@dataclass(frozen=True, slots=True)
class Tried:
    """A candidate and its time; `reason`: why it was not timed."""

    config: Any
    timed: Timed | None = None
    reason: str | None = None


def tune(
    attention: Callable[..., Any],
    configs: Iterable[Any],
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    causal: str | None,
    rounds: int = 15,
    verify: Callable[[Any], None] = lambda out: None,
) -> list[Tried]:
    """Time every config; return the fastest first, those that were not timed last.

    `attention` is called with config=...; `verify` raises if an output is wrong.
    """
    launches: dict[Any, Callable[[], Any]] = {}
    failed = []
    for config in configs:
        launch = functools.partial(attention, q, k, v, causal=causal, config=config)
        try:
            verify(launch())
        except Exception as error:  # the candidate does not compile, does not fit or is wrong
            failed.append(Tried(config, reason=f"{type(error).__name__}: {error}"))
            continue
        launches[config] = launch
    times = time_all(launches, rounds)
    return [Tried(c, times[c]) for c in sorted(times, key=lambda c: times[c].median_ms)] + failed


def best(tried: list[Tried], plain_name: str) -> Any:
    """The fastest config; of those that are as fast within NOISE, the first with the plain name."""
    times = [(t.config, t.timed.median_ms) for t in tried if t.timed is not None]
    if not times:
        raise ValueError(f"no candidate could be timed: {'; '.join(t.reason for t in tried if t.reason)}")
    limit = times[0][1] * (1 + NOISE)
    near = [config for config, median_ms in times if median_ms <= limit]
    return next((config for config in near if config.name == plain_name), near[0])


def name_effects(tried: list[Tried], names: tuple[str, str]) -> dict[Any, float]:
    """Config under the plain name -> its time divided by that under the other name, where both were timed."""
    times = {t.config: t.timed.median_ms for t in tried if t.timed is not None}
    plain, other = names
    pairs = {config: replace(config, name=other) for config in times if config.name == plain}
    return {config: times[config] / times[pair] for config, pair in pairs.items() if pair in times}
