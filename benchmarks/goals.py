"""Say which goals the committed results meet.

    python -m benchmarks goals

Goals are in goals.toml. A goal that is not met is a fact, not an error: the exit code is 0 all the same.
"""

from __future__ import annotations

import argparse
import json
import operator
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.common import REPOSITORY, RESULTS

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

RESULT = None
GOALS = Path(__file__).with_name("goals.toml")
RETIRED = "retired"
LOOPS = REPOSITORY / "tests" / "golden" / "sm120" / "fp8_loops.json"
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


def goals(path: Path = GOALS) -> list[Goal]:
    """Raises ValueError where a goal is neither "at most" nor "at least" a number."""
    found = []
    for result, figures in tomllib.loads(path.read_text()).items():
        for figure, text in figures.items() if result != RETIRED else ():
            rule, _, bound = text.rpartition(" ")
            if rule not in _RULES:
                raise ValueError(
                    f"{path.name}: {result}.{figure}: {text!r} is neither 'at most' nor 'at least' a number"
                )
            found.append(Goal(result, figure, rule, float(bound)))
    return found


def retired(path: Path = GOALS) -> dict[str, str]:
    """List the goals that were given up: the bound of each, and why."""
    return tomllib.loads(path.read_text()).get(RETIRED, {})


def figure(goal: Goal) -> float | None:
    """The figure that a goal is about, from the committed result; None where there is none."""
    path = LOOPS if goal.result == LOOPS.stem else RESULTS / f"{goal.result}.json"
    document = json.loads(path.read_text()) if path.exists() else {}
    if goal.figure in _COMPUTED:
        return _COMPUTED[goal.figure](document)
    value = document.get("summary", {}).get(goal.figure)
    return None if value is None else float(value)


def _least_vs_fa4(document: dict[str, Any]) -> float:
    speeds = [sample["tflops"] for sample in document["samples"]]
    return min(speed["hopper_bf16"] / speed["fa4"] for speed in speeds if "fa4" in speed)


def _seeded_ratio(document: dict[str, Any]) -> float:
    """Altered instructions that were found, or that a proof says change nothing."""
    summary = document["summary"]
    return (summary["seeded"]["DIFFERENT"] + summary["seeded_same_for_a_reason"]) / sum(summary["seeded"].values())


def _loop_instructions(head_dim: int, document: dict[str, Any]) -> float:
    """Count the instructions in the shortest loop of sm120_attn's fp8 kernel, its steady loop, as the tests pin it."""
    kernel = f"sm120_attn_tma_e4m3_d{head_dim}_128x128_to_bf16"
    return min(loop["instructions"] for loop in document["loops"] if loop["kernel"] == kernel)


_COMPUTED: dict[str, Callable[[dict[str, Any]], float]] = {  # what no summary has
    "hopper_bf16_vs_fa4_min": _least_vs_fa4,
    "seeded_found_or_neutral_ratio": _seeded_ratio,
    "d64_instructions": partial(_loop_instructions, 64),
    "d128_instructions": partial(_loop_instructions, 128),
}


def run(arguments: argparse.Namespace) -> None:
    said = {True: "met", False: "NOT MET", None: "not known"}
    for goal in goals():
        value = figure(goal)
        shown = "-" if value is None else f"{value:.4g}"
        print(f"{said[goal.met(value)]:<9}  {goal.result + '.' + goal.figure:<46}  {shown:>8}  {goal.text}")
    for name, why in retired().items():
        print(f"retired    {name:<60}  {why}")
