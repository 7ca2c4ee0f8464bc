"""Which configuration, and which name, is fastest for a problem. Torch; the candidates come from the kernel's config.

Every candidate is tried under every name, since ptxas schedules an entry by its name too. The others are timed against
all the rest in the same rounds; a difference below `NOISE` counts as none, and the plain name wins a tie.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from .timer import Timed, time_all

# Two launches of equal code differed by less than this in their medians (docs/explanation/timing.md).
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
    q,
    k,
    v,
    *,
    causal: str | None,
    rounds: int = 15,
    verify: Callable[[Any], None] = lambda out: None,
):
    """Tried for each config, fastest first, those without a time last. `verify` raises where an output is wrong."""
    launches, failed = {}, []
    for config in configs:
        launch = functools.partial(attention, q, k, v, causal=causal, config=config)
        try:
            verify(launch())
        except Exception as error:  # a candidate that does not compile, does not fit or is wrong is not a candidate
            failed.append(Tried(config, reason=f"{type(error).__name__}: {error}"))
            continue
        launches[config] = launch
    times = time_all(launches, rounds)
    return [Tried(c, times[c]) for c in sorted(times, key=lambda c: times[c].median_ms)] + failed


def best(tried: list[Tried], plain_name: str) -> Any:
    """The fastest config; of those that are as fast within NOISE, the first with the plain name."""
    timed = [t for t in tried if t.timed is not None]
    if not timed:
        raise ValueError(f"no candidate could be timed: {'; '.join(t.reason for t in tried if t.reason)}")
    limit = timed[0].timed.median_ms * (1 + NOISE)
    near = [t.config for t in timed if t.timed.median_ms <= limit]
    return next((config for config in near if config.name == plain_name), near[0])


def name_effects(tried: list[Tried], names: tuple[str, str]) -> dict[Any, float]:
    """Config under the plain name -> time under the plain name / time under the other, where both were timed."""
    times = {t.config: t.timed.median_ms for t in tried if t.timed is not None}
    plain, other = names
    pairs = {config: replace(config, name=other) for config in times if config.name == plain}
    return {config: times[config] / times[pair] for config, pair in pairs.items() if pair in times}
