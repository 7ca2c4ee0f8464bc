"""The order of samples: each side follows each side equally often.

A sample can depend on the one before it: on what lies in caches, on how far the power limit has pulled the clock.
Where every side has the same predecessors, in the same numbers, such an effect is in every side's samples alike.
"""

from __future__ import annotations

import random
from collections.abc import Sequence


def balanced_order(sides: Sequence[str], rounds: int, draw: random.Random) -> list[str]:
    """Draw an order of `rounds` samples of each side, in which each side follows each side, itself too, equally often.

    The first entry is one more: the predecessor of the first sample. rounds: a multiple of the number of sides.
    Every len(sides) rounds are balanced by themselves, so that a drift is in all sides alike.
    """
    if rounds % len(sides):
        raise ValueError(f"{rounds} rounds of {len(sides)} sides cannot be balanced")
    order = [draw.choice(sides)]
    for _ in range(rounds // len(sides)):
        order += _circuit(sides, order[-1], draw)
    return order


def drawn_order(sides: Sequence[str], rounds: int, draw: random.Random) -> list[str]:
    """Draw an order of `rounds` samples of each side, each round by itself, with one more entry in front as above.

    For many sides, where a balanced order takes too many rounds."""
    return [draw.choice(sides), *(side for _ in range(rounds) for side in draw.sample(list(sides), len(sides)))]


def _circuit(sides: Sequence[str], start: str, draw: random.Random) -> list[str]:
    """A random walk that takes every ordered pair of sides once and ends where it starts (Hierholzer's algorithm).

    The start is not part of the answer, as it was the sample before.
    """
    ahead = {side: draw.sample(list(sides), len(sides)) for side in sides}
    walk: list[str] = []
    stack = [start]
    while stack:
        if ahead[stack[-1]]:
            stack.append(ahead[stack[-1]].pop())
        else:
            walk.append(stack.pop())
    return walk[-2::-1]
