"""One side of a timed comparison in nvbench's format, for nvbench_compare.py (`tritonhook ab --nvbench FILE`).

Format 1.0.0 (nvbench/json_printer.cu): numbers beyond 32 bits, and all floats, are strings. Both sides are exported as
a benchmark of the same name, so that the tool finds the pair. Its verdict can differ from ours: it compares means, and
calls a difference below the smaller relative deviation SAME.
"""

from __future__ import annotations

import statistics
from typing import Any

from tritonhook.timing.result import Timed

_VERSION = {"major": 1, "minor": 0, "patch": 0, "string": "1.0.0"}


def nvbench_document(timed: Timed, side: str) -> dict[str, Any]:
    """All samples of one side, of the blocks that count. Times are in seconds."""
    seconds = [t / 1e6 for block in timed.comparison.usable for t in block.times_us[side]]
    clocks = [mhz * 1e6 for block in timed.comparison.usable if (mhz := block.clock_mhz.get(side))]
    mean = statistics.fmean(seconds)
    deviation = statistics.stdev(seconds) if len(seconds) > 1 else 0.0
    summaries = [
        _summary("nv/cold/sample_size", "Samples", "sample_size", "int64", str(len(seconds))),
        _summary("nv/cold/time/gpu/mean", "GPU Time", "duration", "float64", repr(mean)),
        _summary("nv/cold/time/gpu/stdev/absolute", "Noise", "duration", "float64", repr(deviation)),
        _summary("nv/cold/time/gpu/stdev/relative", "Noise", "percentage", "float64", repr(deviation / mean)),
        _summary("nv/cold/time/gpu/median", "Median GPU Time", "duration", "float64", repr(statistics.median(seconds))),
    ]
    if clocks:
        frequency = repr(statistics.fmean(clocks))
        summaries.append(_summary("nv/cold/sm_clock_rate/mean", "Clock Rate", "frequency", "float64", frequency))
    state = {
        "name": "Device=0",
        "min_samples": len(seconds),
        "device": 0,
        "type_config_index": 0,
        "axis_values": None,
        "summaries": summaries,
        "is_skipped": False,
    }
    benchmark = {"name": timed.target, "index": 0, "devices": [0], "axes": None, "states": [state]}
    return {
        "meta": {"argv": ["tritonhook", "ab", timed.target], "version": {"json": _VERSION}},
        "devices": [{"id": 0, "name": timed.device or "not known"}],
        "benchmarks": [benchmark],
    }


def _summary(tag: str, name: str, hint: str, kind: str, value: str) -> dict[str, Any]:
    return {"tag": tag, "name": name, "hint": hint, "data": [{"name": "value", "type": kind, "value": value}]}
