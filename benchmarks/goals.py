"""Say which goals the committed results meet.

    python -m benchmarks goals

Goals are in goals.toml. A goal that is not met is a fact, not an error: the exit code is 0 all the same.
"""

from __future__ import annotations

import argparse
import json
import operator
import sys
from dataclasses import dataclass
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

RESULT = None
HERE = Path(__file__).resolve().parent
_RULES = {"at most": operator.le, "at least": operator.ge}


@dataclass(frozen=True, slots=True)
class Goal:
    """What one figure should reach. rule: "at most" or "at least"."""

    result: str
    figure: str
    rule: str
    bound: float

    @property
    def text(self) -> str:
        return f"{self.rule} {self.bound:g}"

    def met(self, value: float | None) -> bool | None:
        """None where the figure is not known."""
        return None if value is None else bool(_RULES[self.rule](value, self.bound))


def goals(path: Path = HERE / "goals.toml") -> list[Goal]:
    """Raises ValueError where a goal is neither "at most" nor "at least" a number."""
    found = []
    for result, figures in tomllib.loads(path.read_text()).items():
        for figure, text in figures.items():
            rule, _, bound = text.rpartition(" ")
            if rule not in _RULES:
                raise ValueError(
                    f"{path.name}: {result}.{figure}: {text!r} is neither 'at most' nor 'at least' a number"
                )
            found.append(Goal(result, figure, rule, float(bound)))
    return found


def figure(goal: Goal) -> float | None:
    """The figure that a goal is about, from the committed result; None where there is none."""
    path = HERE / "results" / f"{goal.result}.json"
    value = json.loads(path.read_text())["summary"].get(goal.figure) if path.exists() else None
    return None if value is None else float(value)


def run(arguments: argparse.Namespace) -> None:
    said = {True: "met", False: "NOT MET", None: "not known"}
    for goal in goals():
        value = figure(goal)
        shown = "-" if value is None else f"{value:.4g}"
        print(f"{said[goal.met(value)]:<9}  {goal.result + '.' + goal.figure:<46}  {shown:>8}  {goal.text}")
