"""A process under `tritonhook mem watch`: what it leaves at its end, and how that is read."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest
from documents import golden

from tritonhook import memwatch
from tritonhook._util.schema import as_schema
from tritonhook.memory.timeline import MemoryTimeline
from tritonhook.report.results.memory import Memory


@pytest.fixture
def timeline() -> MemoryTimeline:
    return as_schema(golden("memory"), Memory).values()[0]


def test_processes_are_read_in_the_order_of_their_end(tmp_path, timeline):
    of_gpu = json.loads(json.dumps({"format": 1, **asdict(timeline)}))
    for stem, name in {"7-5": "second", "8-20": "third", "9-3": "first"}.items():
        document = {"format": 1, "argv": [], "notes": ["left out"], "timelines": [of_gpu | {"device": name}]}
        (tmp_path / f"{stem}.json").write_text(json.dumps(document))
    for stem in ("12-6", "13-30"):
        document = {"format": 1, "argv": [], "notes": ["no GPU", "no NVML"], "timelines": []}
        (tmp_path / f"{stem}.json").write_text(json.dumps(document))
    (tmp_path / "4-25.json").write_text("{")
    (tmp_path / "5-1.json.part").write_text("{")
    timelines, notes = memwatch.read_run(tmp_path)
    assert [one.device for one in timelines] == ["first", "second", "third"]
    damaged = notes.pop(2)
    assert damaged.startswith("4-25.json: ")
    assert notes == [f"process {process}: no {what}" for process in (12, 13) for what in ("GPU", "NVML")]
