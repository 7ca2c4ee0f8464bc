"""How often a tuning certifies a gain that is not there, and finds one that is, with the noise of a real GPU.

    python -m benchmarks tune_simulation [--runs 40] [--out FILE]

Without a GPU. Race and certificates are those of tritonhook/tuning. The noise is that of 202 comparisons of equal
code on an H100 (results/ab_calibration.json): each candidate gets, for each process, the blocks of one real process,
drawn with replacement and with either sign. A run tunes 50 kernels together. Summary: `null_tunings` and `null_wins`,
of kernels whose candidates are copies of their own code; `null_wins_forced`, where every race names a candidate;
`null_wins_places`, where the place of code counts, and `null_wins_places_before`, where each code lies at one place
in every process; `power_Npct`, the share of kernels that are certified where one candidate of eight takes N percent
less time; `race_blocks_median`.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.common import RESULTS, environment
from tritonhook.timing.places import PLACES
from tritonhook.timing.statistics import CANDIDATE, CONTROL, REFERENCE, Comparison, SampleBlock
from tritonhook.tuning.race import CONFIRM_BLOCKS, CONFIRM_PROCESSES, Race, certify, is_futile

KERNELS = 50  # in a run
CANDIDATES = tuple(f"candidate {number}" for number in range(8))
GAINS_PERCENT = (1, 2, 3, 5)
PLACES_PERCENT = (0.3, 1)
Noise = list[list[float]]  # log ratios of equal code, by process of one real comparison


class Kernel:
    """A simulated kernel. gain: by how much less time its first candidate takes. place: how much places of code differ
    (a standard deviation). fixed: each code lies at one place in every process."""

    def __init__(self, noise: Noise, gain: float, draw: random.Random, place: float = 0.0, fixed: bool = False) -> None:
        self.noise, self.draw, self.place = noise, draw, place
        self.truth = {CANDIDATES[0]: math.log(1 - gain)}
        self.kept = {name: draw.gauss(0, place) for name in CANDIDATES} if fixed else None

    def race(self) -> Race:
        """All blocks of a race are of one process."""
        raced = Race.of(CANDIDATES)
        taken = {name: self._process(name) for name in CANDIDATES}
        while not raced.is_over:
            ratios = {name: next(taken[name]) for name in raced.left}
            raced = raced.after(_block(0, ratios))
        return raced

    def confirm(self, chosen: str) -> Comparison:
        blocks = []
        for process in range(CONFIRM_PROCESSES):
            candidate, control = self._process(chosen), self._process(CONTROL)
            for _ in range(CONFIRM_BLOCKS):
                blocks.append(_block(process, {CANDIDATE: next(candidate), CONTROL: next(control)}))
            if is_futile(Comparison(tuple(blocks))):
                break
        return Comparison(tuple(blocks))

    def _process(self, name: str) -> Any:
        """The log ratios of a side's blocks in one process."""
        blocks, sign = self.draw.choice(self.noise), self.draw.choice((-1, 1))
        # A ratio is of two codes, each at its own place.
        places = [self.draw.gauss(0, self.place) - self.draw.gauss(0, self.place) for _ in range(PLACES)]
        while True:
            place = self.draw.choice(places) if self.kept is None else self.kept.get(name, 0.0)
            yield self.truth.get(name, 0.0) + place + sign * self.draw.choice(blocks)


def _block(process: int, log_ratios: dict[str, float]) -> SampleBlock:
    return SampleBlock(process, {REFERENCE: (100.0,), **{name: (100 * math.exp(x),) for name, x in log_ratios.items()}})


def real_noise(path: Path = RESULTS / "ab_calibration.json") -> list[Noise]:
    """The log ratios of each comparison of equal code, by process."""
    found = []
    for sample in json.loads(path.read_text())["samples"]:
        if sample["kind"] == "aa":
            by_process: dict[int, list[float]] = {}
            for process, value in sample["log_ratios"]:
                by_process.setdefault(process, []).append(value)
            found.append(list(by_process.values()))
    return found


def tune(
    noises: Sequence[Noise], gain: float, seed: object, forced: bool = False, place: float = 0.0, fixed: bool = False
) -> dict[str, Any]:
    """One run. forced: confirm a candidate of each race, whether or not it looks worth it. place, fixed: as in
    Kernel."""
    draw = random.Random(str(seed))
    blocks, confirmed, wins_of = [], [], []
    for _ in range(KERNELS):
        kernel = Kernel(draw.choice(noises), gain, draw, place, fixed)
        raced = kernel.race()
        blocks.append(max([raced.blocks, *raced.dropped.values()]))
        chosen = raced.leader or (CANDIDATES[0] if forced else None)
        if chosen is not None:
            confirmed.append(kernel.confirm(chosen))
            wins_of.append(chosen)
    won = [name for name, found in zip(wins_of, certify(confirmed), strict=True) if found.wins]
    return {
        "confirmed": len(confirmed),
        "wins": len(won),
        "blocks": blocks,
        "others": len(won) - won.count(CANDIDATES[0]),
    }


QUICK = ("--runs", "1")
SMALL = {"KERNELS": 3}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--runs", type=int, default=40, help="of each kind, with 50 kernels each")


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    noises = real_noise()
    samples = {
        "null": [tune(noises, 0.0, f"null {seed}") for seed in range(arguments.runs)],
        "null, forced": [tune(noises, 0.0, f"forced {seed}", forced=True) for seed in range(arguments.runs)],
    }
    for percent in PLACES_PERCENT:
        for name, fixed in (("order fixed (before)", True), ("order drawn", False)):
            samples[f"null, places differ by {percent}%, {name}"] = [
                tune(noises, 0.0, f"place {percent} {seed}", place=percent / 100, fixed=fixed)
                for seed in range(arguments.runs)
            ]
    for percent in GAINS_PERCENT:
        runs = max(1, arguments.runs // 4)
        samples[f"{percent}%"] = [tune(noises, percent / 100, f"{percent} {seed}") for seed in range(runs)]
    found = {"noise_of_comparisons": len(noises)} | summary(samples)
    return {"environment": environment("tritonhook"), "summary": found, "samples": samples}


def summary(samples: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    tuned = {name: KERNELS * len(runs) for name, runs in samples.items()}
    wins = {name: sum(run["wins"] for run in runs) for name, runs in samples.items()}
    return {
        "null_tunings": tuned["null"],
        "null_wins": wins["null"],
        "null_confirmed": sum(run["confirmed"] for run in samples["null"]),
        "null_wins_forced": wins["null, forced"],
        "null_wins_places": sum(n for name, n in wins.items() if name.endswith("order drawn")),
        "null_wins_places_before": sum(n for name, n in wins.items() if name.endswith("(before)")),
        **{f"power_{percent}pct": wins[f"{percent}%"] / tuned[f"{percent}%"] for percent in GAINS_PERCENT},
        "wrong_candidate_won": sum(
            run["others"] for name, runs in samples.items() if name[0].isdigit() for run in runs
        ),
        "race_blocks_median": statistics.median(count for run in samples["null"] for count in run["blocks"]),
    }
