"""How often `ab` is right, on simulated kernels whose effect is known.

    python -m benchmarks ab_simulation [--runs 500] [--only REGEX] [--jobs 2] [--out FILE]

Without a GPU. The coordinator, its rule for stopping and the statistics are those of `ab`; only the timing processes
are simulated: noise of a sample, outliers, drift, processes that differ, clocks, and what a side leaves to the next
sample. Summary: `false_verdicts` (equal code called faster or slower), `wrong_verdicts` (the wrong side, in
scenarios with an effect), `false_verdicts_order_fixed` (in scenarios that load the codes as it was done before: they
are in no other figure), `coverage_min` (of the 95% interval over the scenarios without carry-over) and
`power_1pct_white`. The raw samples are what each run found: effect, interval, processes, blocks, verdict.
"""

from __future__ import annotations

import argparse
import random
import re
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.common import environment
from tritonhook.device.sm_clock import Conditions
from tritonhook.rename import Rename
from tritonhook.timing import coordinator
from tritonhook.timing.places import CodePlaces, balanced_order
from tritonhook.timing.plan import Compiled, KernelCode, Plan, Prepared
from tritonhook.timing.statistics import CANDIDATE, CONTROL, REFERENCE, SampleBlock

SIDES = (REFERENCE, CANDIDATE, CONTROL)
ROUNDS = 9  # of a block, as for kernels of about 1 ms
BASE_MHZ = 1980.0


@dataclass(frozen=True, slots=True)
class Scenario:
    """What the simulated machine does. All are shares: 0.01 is 1%.

    effect: how much longer the candidate takes. noise: of a sample. outliers: the share of samples that take 1.3 times
    as long. ramp, walk: a drift over 1,000 samples; the step of a random walk. processes: how much one process's
    ratio differs from another's. blocks: likewise of blocks. carry_over: how much longer the sample after the
    candidate takes. clock: how much slower the SM clock is while the candidate runs. follows: the share of the clock's
    way to its new value that it makes in one sample. place: how much slower the code is that a process loads first.
    fixed: every process loads the candidate first.
    """

    effect: float = 0.0
    noise: float = 0.004
    outliers: float = 0.0
    ramp: float = 0.0
    walk: float = 0.0
    processes: float = 0.0
    blocks: float = 0.0
    carry_over: float = 0.0
    clock: float = 0.0
    follows: float = 1.0
    place: float = 0.0
    fixed: bool = False

    @property
    def truth(self) -> float:
        """The ratio of times that the interval should cover."""
        return (1 + self.effect) / (1 - self.clock)

    @property
    def carries_over(self) -> bool:
        """Whether a sample depends on the one before it."""
        return bool(self.carry_over) or (bool(self.clock) and self.follows < 1)


SCENARIOS = {
    "white": Scenario(),
    "white, 1% slower": Scenario(effect=0.01),
    "white, 2% faster": Scenario(effect=-0.02),
    "white, 0.5% slower: on the edge of the band": Scenario(effect=0.005),
    "loud (2%)": Scenario(noise=0.02),
    "loud (2%), 1% slower": Scenario(noise=0.02, effect=0.01),
    "outliers (5% of the samples)": Scenario(outliers=0.05),
    "drift of 1%": Scenario(ramp=0.01),
    "random walk": Scenario(walk=0.0005),
    "random walk, 1% slower": Scenario(walk=0.0005, effect=0.01),
    "blocks differ by 0.5%": Scenario(blocks=0.005),
    "processes differ by 0.1%": Scenario(processes=0.001),
    "processes differ by 0.3%": Scenario(processes=0.003),
    "processes differ by 0.3%, 1% slower": Scenario(processes=0.003, effect=0.01),
    "processes differ by 1%": Scenario(processes=0.01),
    "after the candidate all is 1% slower": Scenario(carry_over=0.01),
    "the clock is 1% lower for the candidate": Scenario(clock=0.01),
    "the clock follows the candidate by 1%": Scenario(clock=0.01, follows=0.3),
    "a place is 0.3% slower, order fixed (before)": Scenario(place=0.003, fixed=True),
    "a place is 0.3% slower, order drawn": Scenario(place=0.003),
    "a place is 1% slower, order fixed (before)": Scenario(place=0.01, fixed=True),
    "a place is 1% slower, order drawn": Scenario(place=0.01),
}


class SimulatedProcess:
    """What the coordinator asks of a timing process, on a simulated machine."""

    def __init__(self, scenario: Scenario, draw: random.Random) -> None:
        self.scenario, self.draw = scenario, draw
        offset = draw.gauss(0, scenario.processes)
        self.shift = {REFERENCE: 0.0, CANDIDATE: offset, CONTROL: draw.gauss(0, scenario.processes)}
        self.level, self.clock = 1.0, 1.0

    def begin(self, plan: Plan) -> None:
        first = CANDIDATE if self.scenario.fixed else CodePlaces(plan.seed).order(SIDES)[0]
        self.shift[first] += self.scenario.place

    def prepared(self) -> Prepared:
        codes = {REFERENCE: "a", CANDIDATE: "b", CONTROL: "a"}
        kernels = {side: {"kernel": (KernelCode(code, None, None),)} for side, code in codes.items()}
        return Prepared(kernels, {side: Compiled(("kernel",), ()) for side in SIDES}, 1, device="simulated")

    def blocks(self, count: int, process: int) -> tuple[SampleBlock, ...]:
        return tuple(self._block(process) for _ in range(count))

    def end(self) -> None:
        pass

    kill = end

    def _block(self, process: int) -> SampleBlock:
        scenario, draw = self.scenario, self.draw
        of_block = {side: draw.gauss(0, scenario.blocks) for side in SIDES}
        order = balanced_order(SIDES, ROUNDS, draw)
        times: dict[str, list[float]] = {side: [] for side in SIDES}
        clocks: dict[str, list[float]] = {side: [] for side in SIDES}
        before = order[0]
        for side in order[1:]:
            self.level *= 1 + scenario.ramp / 1000 + draw.gauss(0, scenario.walk)
            wanted = 1 - scenario.clock if side == CANDIDATE else 1.0
            self.clock += scenario.follows * (wanted - self.clock)
            factor = 1 + scenario.effect if side == CANDIDATE else 1.0
            factor *= (1 + self.shift[side]) * (1 + of_block[side]) * self.level / self.clock
            if before == CANDIDATE:
                factor *= 1 + scenario.carry_over
            if draw.random() < scenario.outliers:
                factor *= 1.3
            times[side].append(100 * factor * (1 + draw.gauss(0, scenario.noise)))
            clocks[side].append(BASE_MHZ * self.clock)
            before = side
        mhz = {side: sum(values) / len(values) for side, values in clocks.items()}
        return SampleBlock(
            process, {side: tuple(found) for side, found in times.items()}, Conditions(), mhz, tuple(order)
        )


def one(scenario: Scenario, seed: int) -> dict[str, Any]:
    """One comparison: what it found, and whether that is so."""
    draw = random.Random(f"{scenario} {seed}")
    plan = Plan("simulated:kernel", Path("/nowhere"), rename=Rename(prefix="simulated_"), seed=draw.randrange(10**6))
    comparison = coordinator.run(plan, seconds=3600, start=lambda: SimulatedProcess(scenario, draw)).comparison
    found = comparison.effect()
    assert found is not None
    return {
        "verdict": comparison.verdict.value,
        "ratio": round(found.ratio, 6),
        "low": round(found.low, 6),
        "high": round(found.high, 6),
        "processes": found.processes,
        "blocks": found.blocks,
    }


def row(name: str, runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What is published of one scenario."""
    scenario = SCENARIOS[name]
    return {
        "scenario": name,
        "effect": scenario.effect,
        "carries_over": scenario.carries_over,
        "before": scenario.fixed,
        "runs": len(runs),
        "verdicts": dict(sorted(Counter(found["verdict"] for found in runs).items())),
        "coverage": round(sum(found["low"] <= scenario.truth <= found["high"] for found in runs) / len(runs), 4),
        "processes_mean": round(sum(found["processes"] for found in runs) / len(runs), 2),
        "blocks_mean": round(sum(found["blocks"] for found in runs) / len(runs), 1),
    }


def summary(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The figures that goals are about."""

    def wrong(found: dict[str, Any]) -> int:
        right = "slower" if found["effect"] > 0 else "faster" if found["effect"] < 0 else ""
        return sum(count for verdict, count in found["verdicts"].items() if verdict in {"faster", "slower"} - {right})

    every, rows = rows, [found for found in rows if not found["before"]]
    by_name = {found["scenario"]: found for found in rows}
    white = by_name.get("white, 1% slower")
    return {
        "false_verdicts_order_fixed": sum(wrong(found) for found in every if found["before"]),
        "scenarios": len(rows),
        "runs": sum(found["runs"] for found in rows),
        "false_verdicts": sum(wrong(found) for found in rows if not found["effect"]),
        "wrong_verdicts": sum(wrong(found) for found in rows if found["effect"]),
        "coverage_min": min((found["coverage"] for found in rows if not found["carries_over"]), default=None),
        "power_1pct_white": white and white["verdicts"].get("slower", 0) / white["runs"],
    }


QUICK = ("--runs", "2", "--only", "^white")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--runs", type=int, default=500, help="of each scenario")
    parser.add_argument("--only", default="", metavar="REGEX")
    parser.add_argument("--jobs", type=int, default=2)


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    rows, samples = [], {}
    with ProcessPoolExecutor(arguments.jobs) as pool:
        for name, scenario in SCENARIOS.items():
            if re.search(arguments.only, name):
                samples[name] = list(pool.map(partial(one, scenario), range(arguments.runs), chunksize=10))
                rows.append(row(name, samples[name]))
                print(rows[-1], flush=True)
    columns = {name: {key: [found[key] for found in runs] for key in runs[0]} for name, runs in samples.items()}
    return {"summary": summary(rows), "environment": environment(), "rows": rows, "samples": columns}
