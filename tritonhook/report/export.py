"""Results in the formats of other tools: nvbench's, for nvbench_compare.py (`tritonhook ab --nvbench FILE`), and
a trace that Perfetto (ui.perfetto.dev) opens.

nvbench: format 1.0.0 (nvbench/json_printer.cu): numbers beyond 32 bits, and all floats, are strings. Both sides are
exported as a benchmark of the same name, so that the tool finds the pair. Its verdict can differ from ours: it compares
means, and calls a difference below the smaller relative deviation SAME.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from tritonhook.memory.timeline import MemoryTimeline
from tritonhook.report.format import MIB
from tritonhook.report.results.memory import event
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


# --- Perfetto ------------------------------------------------------------------------------------


def chrome_trace(timelines: Sequence[MemoryTimeline]) -> dict[str, Any]:
    """Chrome's trace format: memory in use as counters, each mark as an instant event; one track for each process and
    GPU. Times are microseconds since the watch began.
    """
    events: list[dict[str, Any]] = []
    for index, timeline in enumerate(timelines):
        pid = timeline.process if timeline.process is not None else index
        name = f"{timeline.name} ({timeline.device})"
        events.append({"ph": "M", "name": "process_name", "pid": pid, "args": {"name": f"GPU memory, process {pid}"}})
        for sample in timeline.samples:
            values = {"used_mib": sample.used_bytes / MIB}
            if sample.torch_reserved_bytes is not None:
                values["torch_reserved_mib"] = sample.torch_reserved_bytes / MIB
            if sample.torch_allocated_bytes is not None:
                values["torch_allocated_mib"] = sample.torch_allocated_bytes / MIB
            events.append({"ph": "C", "name": name, "pid": pid, "ts": sample.t_ns / 1000, "args": values})
        for mark in timeline.marks:
            ts = mark.t_ns / 1000
            arguments: dict[str, Any] = {"growth_mib": None if mark.growth_bytes is None else mark.growth_bytes / MIB}
            arguments |= {"stack_growth_bytes": mark.stack_growth_bytes, "note": mark.note}
            label = f"{event(mark)}: {mark.kernel}"
            events.append({"ph": "i", "s": "p", "name": label, "pid": pid, "tid": 0, "ts": ts, "args": arguments})
            if mark.after is not None and mark.after.stack_limit_bytes is not None:
                limit = {"bytes_per_thread": mark.after.stack_limit_bytes}
                events.append({"ph": "C", "name": f"stack limit, {name}", "pid": pid, "ts": ts, "args": limit})
    return {"traceEvents": events, "displayTimeUnit": "ms"}
