"""Find the fastest configuration of a kernel for a problem, including ptxas's scheduler. Needs torch and a GPU.

The kernel's config module lists the candidates, each with ptxas's usual scheduler and with its other scheduler (see
device/other_scheduler.py). All candidates are timed in the same rounds. Differences below `NOISE` are ties, and the
usual scheduler wins a tie.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from .host import Tensor
from .verify.timer import Timed, time_all

# Relative difference of two median times. For two launches of equal code it was smaller (docs/explanation/timing.md).
NOISE = 0.005


@dataclass(frozen=True, slots=True)
class Tried:
    """A candidate and its times, or the `reason` why it was not timed."""

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
    """Time every config; return the fastest first, and the configs that could not be timed last.

    `attention` is called with config=...; `verify` raises if its output is wrong.
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


def best(tried: list[Tried]) -> Any:
    """Return the fastest config; but if one with the usual scheduler is less than NOISE slower, return that one."""
    times = [(t.config, t.timed.median_ms) for t in tried if t.timed is not None]
    if not times:
        raise ValueError(f"no candidate could be timed: {'; '.join(t.reason for t in tried if t.reason)}")
    limit = times[0][1] * (1 + NOISE)
    near = [config for config, median_ms in times if median_ms <= limit]
    return next((config for config in near if config.trigger is None), near[0])


def scheduler_effects(tried: list[Tried]) -> dict[Any, float]:
    """Map each config to its time with ptxas's usual scheduler, divided by its time with the other scheduler.

    Configs that were not timed with both are left out.
    """
    times = {t.config: t.timed.median_ms for t in tried if t.timed is not None}
    others = {replace(config, trigger=None): ms for config, ms in times.items() if config.trigger is not None}
    return {config: ms / others[config] for config, ms in times.items() if config.trigger is None and config in others}
