"""Chart arithmetic: scales, ticks, and series thinned to the screen's resolution. The page templates draw the
charts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True, slots=True)
class Scale:
    """Maps values in [low, high] to pixels in [start, end]."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        span = self.high - self.low
        share = (value - self.low) / span if span else 0.5
        return round(self.start + share * (self.end - self.start), 2)

    def ticks(self, about: int = 5, percent: bool = False) -> list[tuple[str, float]]:
        """List the ticks of an axis, at round values: (text, position in pixels). about: how many are wanted. percent:
        write them as "+0.5%"."""
        values = round_values(self.low, self.high, about)
        places = decimals(values)
        if percent:
            return [(f"{value:+.{places}f}%" if value else "0", self(value)) for value in values]
        return [(f"{value:,.{places}f}", self(value)) for value in values]


def round_values(low: float, high: float, about: int = 5) -> tuple[float, ...]:
    """List multiples of 1, 2, 2.5 or 5 times a power of ten within [low, high]. about: how many are wanted."""
    span = high - low
    if not (span > 0 and math.isfinite(span)):
        return (low,)
    raw = span / max(1, about)
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= raw * 0.999)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return tuple(round(index * step, 12) for index in range(first, last + 1))


def decimals(values: Sequence[float]) -> int:
    """Return how many decimal digits these values need, at most six."""
    step = min((abs(b - a) for a, b in pairwise(values) if b != a), default=0.0)
    return next((p for p in range(6) if all(abs(round(v, p) - v) <= step * 1e-3 for v in values)), 6)


def thin(points: Sequence[tuple[float, float]], columns: int) -> list[tuple[float, float]]:
    """Keep only the first, lowest, highest and last point of each pixel column, which does not change the drawn
    line."""
    if len(points) <= 4 * columns:
        return list(points)
    low, high = points[0][0], points[-1][0]
    width = (high - low) / columns or 1
    groups: dict[int, list[tuple[float, float]]] = {}
    for point in points:
        groups.setdefault(min(columns - 1, int((point[0] - low) / width)), []).append(point)
    kept: list[tuple[float, float]] = []
    for group in groups.values():
        chosen = {0, len(group) - 1}
        chosen.add(min(range(len(group)), key=lambda i: group[i][1]))
        chosen.add(max(range(len(group)), key=lambda i: group[i][1]))
        kept += [group[i] for i in sorted(chosen)]
    return kept


def steps(points: Sequence[tuple[float, float]], x: Scale, y: Scale) -> str:
    """Write the `d` attribute of an SVG path in which each value holds until the next point."""
    (at, value), *others = points
    return f"M{x(at):g} {y(value):g}" + "".join(f"H{x(at):g}V{y(value):g}" for at, value in others)
