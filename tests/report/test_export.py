"""GPU memory over time as Perfetto reads it."""

from __future__ import annotations

import json

import pytest
from documents import golden

from tests.golden.make_golden_memory import TRACES
from tritonhook.report.results.memory import chrome_trace

MIB = 1 << 20


@pytest.mark.parametrize("name", TRACES)
def test_the_trace_has_what_perfetto_needs(name) -> None:
    timeline = TRACES[name]()
    trace = json.loads(json.dumps(chrome_trace([timeline])))
    assert trace["displayTimeUnit"] == "ms"
    events = trace["traceEvents"]
    for event in events:
        assert event["ph"] in "MCi" and isinstance(event["pid"], int)
        if event["ph"] == "C":
            assert all(isinstance(value, (int, float)) for value in event["args"].values())
            assert event["ts"] >= 0
        if event["ph"] == "i":
            assert event["s"] == "p" and event["name"]
    counters = [e for e in events if e["ph"] == "C" and "used_mib" in e["args"]]
    assert [e["args"]["used_mib"] for e in counters] == [s.used_bytes / MIB for s in timeline.samples]
    assert [e["ts"] for e in counters] == [s.t_ns / 1000 for s in timeline.samples]
    assert len([e for e in events if e["ph"] == "i"]) == len(timeline.marks)


def test_a_trace_of_a_saved_timeline_is_chromes(tmp_path, capsys) -> None:
    from tritonhook.cli import main

    saved, trace = tmp_path / "memory.json", tmp_path / "trace.json"
    saved.write_text(json.dumps(golden("memory")))
    assert main(["show", str(saved), "--trace", str(trace)]) == 0
    events = json.loads(trace.read_text())["traceEvents"]
    assert {e["ph"] for e in events} == {"M", "C", "i"}
    marks = golden("memory")["timelines"][0]["marks"]
    assert [e["ts"] for e in events if e["ph"] == "i"] == [m["t_ns"] / 1000 for m in marks]
