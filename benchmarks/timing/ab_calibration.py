"""How often `ab` calls equal code different, and how often it sees 1% and 2%.

    python -m benchmarks ab_calibration [--aa 200] [--slower 40] [--only REGEX] [--seconds 560] [--append FILE]

On a GPU. Each run is like a user's: fresh processes, all verdict rules. A/A: the same code under two
neutral names. Slower: kernels given 1% or 2% more work on purpose (loop steps, depth, keys, columns). Summary:
`aa_runs`, `aa_false_positive_ratio`, `power_1pct`, `power_2pct`, `worst_seconds`. Stops cleanly when --seconds are
over; --append adds to the runs of an earlier file.

Runs without "cycles" were judged before the rule that a difference must hold in SM cycles too; that rule can only turn
FASTER or SLOWER into INCONCLUSIVE.

`..._today`: the same blocks under today's rule for the interval (Student's over processes), which is newer than the
runs. --judge-again writes the summary of a file again, without a GPU.
"""

from __future__ import annotations

import argparse
import json
import re
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks.common import environment, write_json
from benchmarks.timing.spares import Spares

AA_TARGETS = (
    "add_small",
    "row_sum",
    "layer_norm",
    "softmax",
    "polynomial",
    "matmul",
    "attention",
    "polynomial_steps_7000",
)
SLOWER = {
    "polynomial_steps_1000": {1: "polynomial_steps_1010", 2: "polynomial_steps_1020"},
    "matmul_depth_6400": {1: "matmul_depth_6464", 2: "matmul_depth_6528"},
    "attention_keys_6400": {1: "attention_keys_6464", 2: "attention_keys_6528"},
    "row_sum_columns_102400": {1: "row_sum_columns_103424", 2: "row_sum_columns_104448"},
}

KINDS = ("aa", "slower1", "slower2")


def one(spares: Spares, kind: str, target: str, candidate: str | None) -> dict[str, Any]:
    from tritonhook.rename import Rename
    from tritonhook.timing.coordinator import run, search_path
    from tritonhook.timing.plan import Plan

    with tempfile.TemporaryDirectory() as folder:
        plan = Plan(
            f"ab_targets:{target}",
            Path(folder),
            rename=Rename(prefix="neutral_") if candidate is None else None,
            candidate=candidate and f"ab_targets:{candidate}",
            check=candidate is None,
            path=(str(Path(__file__).resolve().parent / "targets"), *search_path()),
            even_same=True,
            seed=time.time_ns() % 1_000_000,
        )
        timed = run(plan, start=spares.take)
    comparison = timed.comparison
    effect, control, cycles = comparison.effect(), comparison.control, comparison.cycles()
    assert effect is not None
    return {
        "kind": kind,
        "target": target,
        "verdict": comparison.verdict.value,
        "ratio": effect.ratio,
        "low": effect.low,
        "high": effect.high,
        "control": None if control is None else [control.low, control.ratio, control.high],
        "cycles": None if cycles is None else [cycles.low, cycles.ratio, cycles.high],
        "blocks": effect.blocks,
        "processes": effect.processes,
        "median_us": comparison.blocks[0].median_us("reference"),
        "stopped": timed.stopped,
        "seconds": timed.seconds,
        "log_ratios": [[block.process, block.log_ratio("candidate", "reference")] for block in comparison.usable],
        "control_log_ratios": [[block.process, block.log_ratio("control", "reference")] for block in comparison.usable],
    }


def verdict_today(run: dict[str, Any]) -> str:
    """The verdict on a run's blocks by their times, with the control's, under today's rule for the interval."""
    from tritonhook.timing.statistics import TimingVerdict, effect_of

    found, control = effect_of(run["log_ratios"]), effect_of(run["control_log_ratios"])
    assert found is not None and control is not None
    verdict = found.verdict() if control.verdict() is TimingVerdict.SAME else TimingVerdict.INCONCLUSIVE
    return verdict.value


def summary(runs: list[dict[str, Any]]) -> dict[str, Any]:
    def share(kind: str, verdicts: set[str]) -> float | None:
        judged = [run["verdict"] in verdicts for run in runs if run["kind"] == kind]
        return sum(judged) / len(judged) if judged else None

    today = Counter((run["kind"], verdict_today(run)) for run in runs)
    made = Counter(run["kind"] for run in runs)
    return {
        "aa_runs": made["aa"],
        "aa_false_positive_ratio": share("aa", {"faster", "slower"}),
        "aa_same_ratio": share("aa", {"same"}),
        "runs_1pct": made["slower1"],
        "power_1pct": share("slower1", {"slower"}),
        "runs_2pct": made["slower2"],
        "power_2pct": share("slower2", {"slower"}),
        **{
            f"{kind}_{verdict}_today": today[kind, verdict]
            for kind in KINDS
            for verdict in ("same", "faster", "slower")
        },
        "worst_seconds": max((run["seconds"] for run in runs), default=None),
    }


NEEDS = ("gpu", "torch", "triton")
OFFLINE = ("--judge-again",)
QUICK = ("--aa", "1", "--slower", "0", "--only", "add_small")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--aa", type=int, default=200)
    parser.add_argument("--slower", type=int, default=40, help="runs for each of 1%% and 2%%")
    parser.add_argument("--only", default="", metavar="REGEX", help="targets")
    parser.add_argument("--seconds", type=float, default=3600)
    parser.add_argument("--append", type=Path, help="start from this file's runs")
    parser.add_argument(
        "--judge-again", type=Path, metavar="FILE", help="time nothing: write this file's summary again"
    )


def run(arguments: argparse.Namespace) -> None:
    if arguments.judge_again:
        document = json.loads(arguments.judge_again.read_text())
        return write_json(arguments.judge_again, document | {"summary": summary(document["samples"])})
    import torch

    from tritonhook.timing.statistics import MIN_PROCESSES

    runs = json.loads(arguments.append.read_text())["samples"] if arguments.append else []
    deadline = time.monotonic() + arguments.seconds
    plan: list[tuple[str, str, str | None]] = []
    equal, names = ([name for name in some if re.search(arguments.only, name)] for some in (AA_TARGETS, SLOWER))
    for index in range(max(arguments.aa, arguments.slower)):
        if index < arguments.aa:
            plan.append(("aa", equal[index % len(equal)], None))
        if index < arguments.slower:
            name = names[index % len(names)]
            plan += [(f"slower{share}", name, SLOWER[name][share]) for share in (1, 2)]
    spares = Spares([""] * MIN_PROCESSES * len(plan), most=2 * MIN_PROCESSES)
    for kind, target, candidate in plan:
        if time.monotonic() > deadline:
            break
        runs.append(one(spares, kind, target, candidate))
        spares.refill()
        last = runs[-1]
        shown = {name: last[name] for name in ("kind", "target", "verdict", "ratio", "low", "high", "seconds")}
        print(json.dumps(shown), flush=True)
        write(arguments.out, runs, torch.cuda.get_device_name())  # each time: nothing is lost when time is over
    spares.end()
    print(summary(runs), f"wrote {arguments.out}")


def write(path: Path, runs: list[dict[str, Any]], gpu: str) -> None:
    document = {
        "format": 1,
        "environment": environment("torch", "triton", "tritonhook") | {"gpu": gpu},
        "samples": runs,
        "summary": summary(runs),
    }
    write_json(path, document)
