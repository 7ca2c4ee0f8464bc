"""Counters of the emulator beside those that Nsight Compute gave on an H100: per instruction, in total; and what
counting costs.

    python -m benchmarks counters_h100 DATA [--rounds N] [--out FILE]

DATA: launches as tests/emulate/counters/h100.json.xz has some: code, launch, contents of its buffers, and what ncu's
source page and raw page say. A counter that the page leaves empty is 0 there.
"""

from __future__ import annotations

import argparse
import gc
import json
import lzma
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.common import REPOSITORY, environment, interleave

NEEDS = ("numpy",)
MOST_SHOWN = 20  # differences
QUICK = (str(REPOSITORY / "tests/emulate/counters/h100.json.xz"), "--rounds", "1")
Row = dict[str, Any]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("data", type=Path)
    parser.add_argument(
        "--rounds", type=int, default=3, help="of emulation with and without counting (default: 3; 0: no costs)"
    )


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    sys.path.insert(0, str(REPOSITORY / "tests/support"))
    given = json.loads(lzma.decompress(arguments.data.read_bytes()))
    rows = [judged(one, arguments.data, arguments.rounds) for one in given]
    return {
        "summary": summary(rows),
        "environment": environment("numpy", "triton") | {"ncu": "on an H100, driver 580.159"},
        "samples": {"launches": rows},
    }


def judged(one: Row, data: Path, rounds: int) -> Row:
    """One launch: for each counter, how many instructions are equal; the totals that differ; the costs in seconds."""
    from counters_h100 import counted, work_of

    from tritonhook.emulate.counters.floor import cycles_of
    from tritonhook.report.results.counters import rates_of

    row: Row = {"launch": one["name"], "instructions": len(one["instructions"]), "left_out": ""}
    try:
        found = counted(one, path=data)
    except Exception as error:
        return row | {"left_out": f"{type(error).__name__}: {error}"}
    equal: Counter[str] = Counter()
    different: list[Row] = []
    unknown: set[int] = set()
    for own, theirs in zip(found.instructions, one["instructions"], strict=True):
        for name, value in own.counters.ncu.items():
            if value is None:
                unknown.add(own.index)
                continue
            wanted = int(theirs.get(name, "0").replace(",", ""))
            equal[name] += value == wanted
            if value != wanted:
                different.append(
                    {"index": own.index, "instruction": own.text, "counter": name, "ncu": wanted, "counted": value}
                )
    totals = {name: round(float(one["launch_counters"][name].replace(",", ""))) for name in found.raw}
    work = work_of(one, data)
    rates = rates_of(found.arch)
    assert rates is not None
    unit, cycles = max((cycles_of(found, rates) or {"": 0}).items(), key=lambda each: each[1])
    time_ns = one["launch_counters"].get("gpu__time_duration.sum")
    gc.freeze()  # a user's process does not hold the other launches
    costs = interleave(rounds, *(lambda c=c: cpu_seconds(lambda: work(c)) for c in (False, True)))
    return row | {
        "executed": sum("Instructions Executed" in each for each in one["instructions"]),
        "equal": dict(equal),
        "instructions_equal": len(one["instructions"]) - len(unknown | {each["index"] for each in different}),
        "instructions_unknown": len(unknown),
        "different": different[:MOST_SHOWN],
        "totals": len(totals),
        "totals_different": {n: [v, found.raw[n]] for n, v in totals.items() if v != found.raw[n]},
        "floor_unit": unit,
        "floor_ns": 1000 * cycles / rates.mhz,
        "time_ns": None if time_ns is None else float(time_ns.replace(",", "")),
        **{name: statistics.median(each) for name, each in zip(("plain_s", "counting_s"), costs, strict=True) if each},
    }


def cpu_seconds(work: Callable[[], object]) -> float:
    """Measure the processor's time: other programs change it least."""
    begin = time.process_time()
    work()
    return time.process_time() - begin


def summary(rows: list[Row]) -> dict[str, Any]:
    done = [row for row in rows if not row["left_out"]]
    instructions = sum(row["instructions"] for row in done)
    timed = [row for row in done if "plain_s" in row]
    equal = sum((Counter(row["equal"]) for row in done), Counter[str]())
    return {
        "tried": len(rows),
        "judged": len(done),
        "left_out": dict(Counter(row["left_out"] for row in rows if row["left_out"])),
        "instructions": instructions,
        "instructions_executed": sum(row["executed"] for row in done),
        "instructions_equal": sum(row["instructions_equal"] for row in done),
        "instructions_unknown": sum(row["instructions_unknown"] for row in done),
        "equal_share": round(sum(row["instructions_equal"] for row in done) / instructions, 5),
        "equal_by_counter": dict(equal),
        "totals": sum(row["totals"] for row in done),
        "totals_equal": sum(row["totals"] - len(row["totals_different"]) for row in done),
        "timed": sum(row["time_ns"] is not None for row in done),
        "floor_of_time_median": _share(done, statistics.median),
        "floor_of_time_most": _share(done, max),
    } | ({} if not timed else {
        "cost_whole": round(sum(r["counting_s"] for r in timed) / sum(r["plain_s"] for r in timed), 3),
        "cost_median": round(statistics.median(r["counting_s"] / r["plain_s"] for r in timed), 3),
        "cost_most": round(max(r["counting_s"] / r["plain_s"] for r in timed), 3),
    })  # fmt: skip


def _share(rows: list[Row], of: Callable[[list[float]], float]) -> float | None:
    """How much of the time on the GPU the floor is."""
    shares = [row["floor_ns"] / row["time_ns"] for row in rows if row["time_ns"]]
    return round(of(shares), 3) if shares else None
