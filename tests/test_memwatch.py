"""A process under `tritonhook mem watch`: what it leaves at its end, and how that is read."""

from __future__ import annotations

import atexit
import json
import os
import sys
from collections.abc import Callable
from dataclasses import asdict
from types import SimpleNamespace
from typing import Any

import pytest
from documents import golden

from tritonhook import memwatch
from tritonhook._util.schema import as_schema
from tritonhook.errors import UsageError
from tritonhook.memory.timeline import MemoryTimeline
from tritonhook.report.results.memory import Memory


@pytest.fixture
def timeline() -> MemoryTimeline:
    return as_schema(golden("memory"), Memory).values()[0]


def test_a_watch_gets_the_period_and_what_it_reads(monkeypatch):
    given: list[Any] = []
    monkeypatch.setattr(memwatch, "Watch", lambda *arguments: given.append(arguments))
    driver, nvml, hooks = Any, Any, object()  # stand-ins
    memwatch.watch()
    memwatch.watch(1.0, driver=driver, nvml=nvml, hooks=hooks)
    assert given == [(10.0, None, None, None), (1.0, driver, nvml, hooks)]
    for period in (0.99, float("nan")):
        with pytest.raises(UsageError, match=f"period_ms={period}"):
            memwatch.watch(period)


def test_a_watched_process_leaves_its_timelines_at_its_end(monkeypatch, tmp_path, timeline):
    calls: list[str] = []

    class Fake:
        notes, timelines = ("a note",), (timeline,)

        def __enter__(self) -> None:
            calls.append("begun")

        def stop(self) -> None:
            calls.append("stopped")

    def watch(period_ms: float) -> Any:
        calls.append(f"{period_ms} ms")
        return Fake()

    at_exit: list[Callable[[], None]] = []
    monkeypatch.setattr(memwatch, "watch", watch)
    monkeypatch.setattr(atexit, "register", at_exit.append)
    memwatch.begin_run(str(tmp_path), 2.5)
    assert calls == ["2.5 ms", "begun"]
    (finish,) = at_exit
    with monkeypatch.context() as forked:  # a child inherits the handler, and leaves nothing
        forked.setattr(memwatch, "os", SimpleNamespace(getpid=lambda: -1))
        finish()
    assert (calls[2:], list(tmp_path.iterdir())) == ([], [])
    finish()
    assert calls[2:] == ["stopped"]
    (path,) = tmp_path.iterdir()
    process, _, ended_ns = path.name.removesuffix(".json").partition("-")
    assert int(process) == os.getpid() and int(ended_ns) > 10**18
    of_gpu = json.loads(json.dumps({"format": 1, **asdict(timeline)}))
    document = {"format": 1, "argv": sys.argv, "notes": ["a note"], "timelines": [of_gpu]}
    assert json.loads(path.read_text()) == document
    assert memwatch.read_run(tmp_path) == ([timeline], [])


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
