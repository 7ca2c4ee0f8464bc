"""The document of a tuning: each kernel's verdict and what it rests on."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from tritonhook.capture.selection import Skipped
from tritonhook.tuning.candidates import Candidate
from tritonhook.tuning.race import Race
from tritonhook.tuning.result import Tuned, TuneRun, Verdict

FORMAT = 1


def tuning_document(
    target: str, policy: str, run: TuneRun, skipped: Sequence[Skipped], full: bool = False
) -> dict[str, Any]:
    """A tuning as JSON values. policy: its file. full: with all samples of the confirmations."""
    return {
        "format": FORMAT,
        "kind": "tuning",
        "target": target,
        "policy": policy,
        "device": run.device or None,
        "stopped": run.stopped,
        "start_seconds": round(run.start_s, 3),
        "counts": {verdict.value: sum(row.verdict is verdict for row in run.rows) for verdict in Verdict},
        "kernels": [kernel_document(row, full) for row in run.rows],
        "skipped": [asdict(one) for one in skipped],
    }


def kernel_document(row: Tuned, full: bool = False) -> dict[str, Any]:
    kernel, choice, certificate = row.kernel, row.choice, row.certificate
    comparison = row.comparison
    interval = None if certificate is None else certificate.interval_percent
    finite = interval is not None and all(map(math.isfinite, interval))
    return {
        "kernel": kernel.name,
        "record": kernel.record,
        "arch": kernel.arch,
        "front_end": kernel.front_end,
        "ptx": kernel.ptx,
        "ptxas": choice.subject.ptxas.version,
        "share": kernel.share,
        "launch": kernel.launches[0].summary,
        "verdict": row.verdict.value,
        "reason": row.reason,
        "lever": None if row.winner is None else row.winner.text,
        "gain_percent": None if certificate is None else certificate.gain_percent,
        "interval_percent": list(interval) if interval is not None and finite else None,
        "p": None if certificate is None else certificate.p,
        "processes": 0 if comparison is None else comparison.processes,
        "own": _figures(choice.plain),
        "candidates": [{"lever": one.text, **_figures(one)} for one in choice.others],
        "dropped": [{"lever": one.lever.text, "reason": one.reason} for one in (*choice.dropped, *row.failed)],
        "race": None if row.race is None else _race(row.race),
        "notes": list(row.notes),
        "seconds": round(row.seconds, 3),
        "samples": [asdict(block) for block in comparison.blocks] if full and comparison is not None else None,
    }


def _figures(one: Candidate) -> dict[str, Any]:
    names = ("registers", "stack", "spill_stores", "spill_loads", "shared")
    return {"code": one.code_hash, **{name: getattr(one.resources, name) for name in names}}


def _race(race: Race) -> dict[str, Any]:
    left = {name: math.exp(statistics.mean(values)) for name, values in race.log_ratios.items() if values}
    return {"blocks": max([race.blocks, *race.dropped.values()]), "left": left, "dropped": dict(race.dropped)}
