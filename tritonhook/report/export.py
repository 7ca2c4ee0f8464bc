"""A memory timeline in the format of another tool: a trace that Perfetto (ui.perfetto.dev) opens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tritonhook.memory.timeline import MemoryTimeline
from tritonhook.report.format import MIB
from tritonhook.report.results.memory import event


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
