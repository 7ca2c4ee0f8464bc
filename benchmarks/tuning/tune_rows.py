"""The rows of tune_h200.py: what is kept of a kernel, and what they come to. Values only: nothing runs here."""

from __future__ import annotations

import json
import math
import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.common import RESULTS, coverage
from tritonhook._util.schema import as_schema
from tritonhook.timing.statistics import CANDIDATE, CONTROL, REFERENCE, Comparison, SampleBlock
from tritonhook.tuning.race import Certificate, TriedKernel, certify

_UNITS = {"wgmma": "wgmma", "mma.sync": "mma.sync"}  # how a kernel multiplies matrices, by what is in its PTX
OURS, OUR_KERNEL = "ours", "cutlass_gate"  # a source, and a kernel of the transformer block

Row = dict[str, Any]


def row_of(one: TriedKernel) -> Row:
    """What the GPU said of a kernel, with every sample."""
    choice, launched = one.choice, one.kernel.launches[0]
    text = choice.subject.ptx.text
    return {
        "kind": "kernel",
        "kernel": one.kernel.name,
        "ptx": one.kernel.ptx,
        "uses": next((unit for unit, word in _UNITS.items() if word in text), None),
        "launch": launched.summary,
        "candidates": [code.name for code in choice.levered],
        "configurations": [one.plain.name for one in choice.siblings],
        "base": one.base,
        "dropped": [[gone.lever.text, gone.reason] for gone in choice.dropped],
        "failed": [[gone.lever.text, gone.reason] for gone in one.failed],
        "registers": choice.plain.resources.registers,
        "race": None if one.race is None else {"left": dict(one.race.log_ratios), "dropped": dict(one.race.dropped)},
        "winner": None if one.winner is None else one.winner.name,
        "reason": one.reason,
        "judged": one.is_judged,
        "seconds": one.seconds,
        "notes": list(one.notes),
        "comparison": None if one.comparison is None else asdict(one.comparison),
    }


def key_of(row: Row) -> tuple[str, str, str]:
    """What makes two rows the same kernel's."""
    return row["source"], row["kernel"], row["ptx"]


def read_rows(paths: Iterable[Path]) -> list[Row]:
    return [json.loads(line) for path in paths for line in path.read_text().splitlines()]


def comparison_of(document: dict[str, Any]) -> Comparison:
    blocks = as_schema(document["blocks"], tuple[SampleBlock, ...])
    return Comparison(blocks, document["band"], document.get("control_of", REFERENCE))


def certificates(rows: Sequence[Row]) -> list[tuple[Row, Certificate]]:
    """Judge all confirmations of some rows together."""
    confirmed = [row for row in rows if row.get("comparison") is not None and row["kind"] == "kernel"]
    return list(zip(confirmed, certify([comparison_of(row["comparison"]) for row in confirmed]), strict=True))


def policy_wins(judged: Iterable[tuple[Row, Certificate]]) -> list[tuple[Row, Certificate]]:
    return [(row, found) for row, found in judged if found.wins and not row["reason"]]


def summed_up(rows: Sequence[Row], onto: Row | None = None) -> Row:
    """The document: a row for each kernel and visit with the medians of its blocks, and the summary, which is of the
    last visit to each kernel. onto: a document of earlier visits, which the rows are added to; what is in it was judged
    already."""
    earlier, ends = onto or {}, [row for row in rows if row["kind"] == "end"]
    raced = [*earlier.get("kernels", ()), *_judged(rows, "race")]
    last = {key_of(row): row for row in raced}
    document = {
        "format": 1,
        "environment": next(
            (row["environment"] | {"gpu": row["device"]} for row in ends if row["device"]),
            earlier.get("environment", {}),
        ),
        "summary": {},
        "runs": [
            *earlier.get("runs", ()),
            *({name: value for name, value in row.items() if name not in ("kind", "environment")} for row in ends),
        ],
        "kernels": list(last.values()),
        "earlier": [*earlier.get("earlier", ()), *(row for row in raced if last[key_of(row)] is not row)],
        "null": [*earlier.get("null", ()), *_judged(rows, "null")],
        "again": [*earlier.get("again", ()), *(_compact_again(row) for row in rows if row["kind"] == "again")],
        "applied": [*earlier.get("applied", ()), *(row for row in rows if row["kind"] in ("applied", "captured"))],
    }
    return document | {"summary": _raced(document) | _truth(document)}


def _judged(rows: Sequence[Row], step: str) -> list[Row]:
    """The kernels of a step; those of all visits are judged together."""
    found = [row for row in rows if row["kind"] == "kernel" and row["step"] == step]
    judged = certificates(found if step == "null" else list({key_of(row): row for row in found}.values()))
    by_row = {id(row): certificate for row, certificate in judged}
    wins = {id(row) for row, _ in policy_wins(judged)}
    return [_compact(row, by_row.get(id(row)), id(row) in wins) for row in found]


def _raced(document: Row) -> Row:
    raced, nulls = document["kernels"], document["null"]
    simulated = json.loads((RESULTS / "tune_simulation.json").read_text())["summary"]
    won = [row for row in raced if row["verdict"] == "WIN"]
    gains = [_ratio_of(row) for row in won]
    # A race that goes on where it ended has fewer before it: of each run the first call counts.
    planned = {row["run"]: row["planned"] for row in reversed(document["runs"]) if row["step"] == "race"}
    tried = sum(planned.values()) - len(document["earlier"])
    return coverage(tried, {"the time on the GPU ended": tried - len(raced)}) | {
        "kernels": len(raced),
        "kernels_planned": tried,
        "kernels_not_ours": sum(not row["source"].startswith(OURS) and row["kernel"] != OUR_KERNEL for row in raced),
        "kernels_autotuned": sum(bool(row.get("configurations")) for row in raced),
        "wins": len(won),
        "configurations_raced": sum(len(row.get("configurations", ())) for row in raced),
        "null_tunings": len(nulls),
        "null_wins": sum(row["verdict"] == "WIN" for row in nulls),
        "null_confirmed": sum("blocks" in row for row in nulls),
        "null_tunings_simulated": simulated["null_tunings"],
        "null_wins_simulated": simulated["null_wins"],
        "seconds_per_kernel_median": statistics.median(row["seconds"] for row in raced) if raced else None,
        "gain_geomean_of_wins": _gain(gains),
        "gain_most": 100 * (1 - min(gains)) if gains else None,
    }


def _truth(document: Row) -> Row:
    """What the steps again and applied say of the wins."""
    winners = {key_of(row): row["winner"] for row in document["kernels"] if row["verdict"] == "WIN"}
    timed_again = {key_of(row): row for row in document["again"]}
    again = [row for key, row in timed_again.items() if winners.get(key) == row["winner"]]
    levers = {(*key[:2], lever_of(winner)) for key, winner in winners.items()}
    applied = {(*_win_of(row), row["ptx"]): row for row in document["applied"] if row["kind"] == "applied"}
    return {
        "wins_again": len(again),
        "wins_reproduced_ratio": _ratio([row.get("verdict") == "faster" for row in again]),
        "wins_not_reproduced": dict(Counter(v for row in again if (v := row.get("verdict", "error")) != "faster")),
        "slower_when_applied": sum(one.get("verdict") == "slower" for one in again) if again else None,
        "applied": dict(Counter(row["state"] for row in applied.values() if _win_of(row) in levers)),
    }


def lever_of(winner: str) -> str:
    """The lever of a winner, without the configuration that won with it."""
    return winner.rpartition(": ")[2]


def _win_of(row: Row) -> tuple[str, str, str]:
    """What a row of `applied` has with its win in common: its PTX is that of the configuration which won."""
    return row["source"], row["kernel"], row["winner"]


def _ratio_of(won: Row) -> float:
    return 1 - float(won["gain_percent"]) / 100


def _ratio(flags: Sequence[bool]) -> float | None:
    return sum(flags) / len(flags) if flags else None


def _gain(ratios: Sequence[float]) -> float | None:
    """The geometric mean of ratios of times, as by how many percent less time."""
    return 100 * (1 - math.exp(statistics.mean(map(math.log, ratios)))) if ratios else None


def _compact(row: Row, certificate: Certificate | None, wins: bool) -> Row:
    kept = ("run", "part", "source", "kernel", "ptx", "uses", "us", "launch", "registers", "candidates", "winner")
    kept += tuple(name for name in ("configurations", "base") if name in row)
    race = row["race"]
    compact = {name: row[name] for name in kept} | {
        "equal_or_not_assembled": len(row["dropped"]),
        "failed": row["failed"],
        "race": race and {"left": {k: [*v] for k, v in race["left"].items()}, "dropped": race["dropped"]},
        "seconds": row["seconds"],
    }
    if certificate is not None:
        compact |= {"gain_percent": certificate.gain_percent, "interval_percent": certificate.interval_percent}
        compact |= {"p": certificate.p}
    compact |= {"verdict": "WIN" if wins else "LEAVE IT"}
    compact |= {"reason": "" if wins else row["reason"] or (certificate.reason if certificate else "")}
    if row["comparison"] is not None:
        compact["blocks"] = _blocks(comparison_of(row["comparison"]).blocks)
    return compact


def _compact_again(row: Row) -> Row:
    kept = {name: value for name, value in row.items() if name not in ("comparison", "step", "kind")}
    return kept | {"blocks": _blocks(comparison_of(row["comparison"]).blocks)} if "comparison" in row else kept


def _blocks(blocks: Iterable[SampleBlock]) -> list[list[Any]]:
    """Write each block as a list: process; medians of reference, candidate and control in microseconds; their clocks;
    log of what the candidate leaves behind for the next sample; why the block was not used."""
    sides = (REFERENCE, CANDIDATE, CONTROL)
    return [
        [
            block.process,
            *(block.median_us(side) for side in sides),
            *(block.clock_mhz.get(side) for side in sides),
            block.log_carry_over(CANDIDATE, REFERENCE),
            block.conditions.unfit,
        ]
        for block in blocks
    ]
