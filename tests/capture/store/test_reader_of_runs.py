"""Capture folders of several processes and runs: what is merged, and the parts of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tritonhook._util.variables import RUN_ID
from tritonhook.capture.store import CaptureFolder, CaptureWriter
from tritonhook.capture.store.reader import AutotunerChoice, Configurations, Run, Sighting
from tritonhook.errors import CaptureError

A, B = "a" * 16, "b" * 16


def index(out: Path, number: int, run: str | None, *lines: dict[str, Any], rank: str | None = "-") -> str:
    """Write the index of a process; returns its name."""
    name = f"host-{rank}-{number}-{number}"
    header = {"format": 1, "host": "host", "pid": number, "process_ns": number, "run": run}
    header |= {} if rank is None else {"rank": rank}
    (out / "index").mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(line) + "\n" for line in (header, *lines))
    (out / "index" / f"{name}.jsonl").write_text(text)
    return name


def met(record: str, time_ns: int, hit: bool = False, **more: Any) -> dict[str, Any]:
    return {"record": record, "kernel": record[0], "cache_hit": hit, "time_ns": time_ns, **more}


def crash(out: Path, name: str, time_ns: int, run: str | None) -> None:
    folder = out / "crashes" / name
    folder.mkdir(parents=True)
    (folder / "crash.json").write_text(json.dumps({"kernel": name, "time_ns": time_ns, "run": run}))


@pytest.fixture
def names(out: Path) -> list[str]:
    """Two runs of A with one of B between them, and a process outside of runs. k1 is met in all."""
    done = [
        index(out, 1000, f"{A}-1000", met("k1", 1001, compile_us={"ptx": 1}), met("k2", 1002), met("k5", 2500)),
        index(out, 1500, f"{B}-1500", met("k3", 1501), met("k1", 1502, True), rank="0"),
        index(out, 2000, f"{A}-2000", met("k1", 2001, compile_us={"ptx": 3}), met("m4", 2002), rank="10"),
        index(out, 3000, None, met("k6", 10), met("k1", 9, compile_us={"ptx": 2}), rank="2"),
    ]
    for name, time_ns, run in (("c1", 1100, f"{A}-1000"), ("c2", 2100, f"{A}-2000"), ("c3", 1600, f"{B}-1500")):
        crash(out, name, time_ns, run)
    crash(out, "c4", 5, None)
    (out / "crashes" / "c5").mkdir()
    (out / "crashes" / "c5" / "crash.json").write_text("{")
    return done


def crashes(folder: CaptureFolder) -> str:
    return " ".join(path.parent.name for path in folder.crashes)


def test_runs_are_numbered_by_their_beginning(out, names) -> None:
    folder = CaptureFolder.open(out)
    assert folder.runs == (Run(A, 1000), Run(B, 1500), Run(A, 2000))
    assert folder.records == ("k1", "k2", "k5", "k3", "m4", "k6") and folder.ranks == ("-", "0", "2", "10")
    assert [s.process for s in folder.seen("k1")] == names and folder.seen("nothing") == ()
    assert folder.sightings[0] == Sighting("k1", "k", False, names[0], "-", 1001, Run(A, 1000), {"ptx": 1})
    assert folder.sightings[4] == Sighting("k1", "k", True, names[1], "0", 1502, Run(B, 1500), {})
    assert (folder.seen("k6")[0].run, folder.seen("m4")[0].kernel, crashes(folder)) == (None, "m", "c1 c2 c3 c4 c5")
    assert folder.compile_us("k1") == {"ptx": 3} and folder.compile_us("k2") == {}
    for text in (None, 5, "", A, f"{A}-", f"{A}-1x", f"{A[1:]}-1", f"x{A}-1", f"{A}-{10**19}"):
        assert Run.of(text) is None
    assert Run.of(f"{A}-12") == Run(A, 12)


def test_the_run_before_is_of_the_same_command(out, names, tmp_path) -> None:
    folder = CaptureFolder.open(out)
    assert folder.previous() == folder.previous(3) == (1, 3)
    for number in (0, 1, 2):
        with pytest.raises(CaptureError, match="no earlier run of the same command"):
            folder.previous(number)
    index(tmp_path / "none", 1, None, met("k1", 1))
    without = CaptureFolder.open(tmp_path / "none")
    with pytest.raises(CaptureError, match="no earlier run of the same command"):
        without.previous()
    with pytest.raises(CaptureError, match="no run 1; `tritonhook run` has written none"):
        without.of_run(1)
    for number in (0, 4):
        with pytest.raises(CaptureError, match=f"no run {number}; its runs are 1 to 3"):
            folder.of_run(number)
    parts = [folder.of_run(number) for number in (1, 2, 3)]
    assert [part.records for part in parts] == [("k1", "k2", "k5"), ("k3", "k1"), ("k1", "m4")]
    assert [[process["pid"] for process in part.processes] for part in parts] == [[1000], [1500], [2000]]
    assert [crashes(part) for part in parts] == ["c1 c5", "c3 c5", "c2 c5"]
    assert all(part.is_part and part.runs == folder.runs for part in parts)


def test_the_latest_runs_of_each_command_and_what_is_outside_of_runs_count(out, names) -> None:
    latest = CaptureFolder.open(out).latest()
    assert latest.outdated == {"k2"}, "k5 was met after the beginning of the last run, by an earlier one"
    assert latest.records == ("k1", "k5", "k3", "m4", "k6") and crashes(latest) == "c2 c3 c4 c5"
    stored = out / "kernels" / "z-unseen"
    stored.mkdir(parents=True)
    (stored / "capture.json").write_text("{}")
    assert CaptureFolder.open(out).latest().records[-1] == "z-unseen"


def test_what_was_written_since_a_time_is_that_of_processes_that_began_then(out, names) -> None:
    folder = CaptureFolder.open(out)
    for time_ns, records, failed in (
        (2000, ("k1", "m4", "k6"), "c2 c5"),
        (2001, ("k6", "k1"), "c2 c5"),
        (2101, None, "c5"),
    ):
        part = folder.since(time_ns)
        assert records is None or part.records == records
        assert (crashes(part), part.is_part, part.runs) == (failed, True, folder.runs)
    part = folder.of_rank("10")
    assert (part.records, [process["pid"] for process in part.processes], part.is_part) == (("k1", "m4"), [2000], True)
    with pytest.raises(CaptureError, match="no kernel of rank 7; the ranks here are 0, 2, 10$"):
        folder.of_rank("7")


def test_what_processes_say_is_merged(out) -> None:
    first = [
        *({"notes": ["one", "two"], "sources": ["s1", "s2"]}, {"launch": "l1", "of": "r1", "count": 2}),
        {"winner": "r1", "among": ["r1", "r2"], "tuning": "t", "by": "Triton"},
        {"winner": "r2", "among": ["r3", "r2"], "tuning": "t", "by": "Triton"},
        {"configurations": {"r1": "c1", "r2": "c2"}, "function": "f", "key": ["n=1"], "chosen": "r1"},
    ]
    second = [
        *({"notes": ["two", "three"], "unrecorded": {"r1": "why"}, "sources": ["s2", "s3"]}, {"torn": 1}),
        *({"launch": "l1", "of": "r1", "count": 5}, {"launch": "l2", "of": "r1", "count": 1}),
        {"winner": "r1", "among": ["r1"], "tuning": "t", "by": "Inductor"},
        {"configurations": {"r2": "C2", "r3": "c3"}, "function": "f", "key": ["n=1"], "chosen": "r3", "source": "s"}
        | {"by": "Inductor"},
        {"configurations": {}, "function": "f", "key": ["n=2"], "chosen": "r3"},
    ]
    one, two = index(out, 1, None, *first), index(out, 2, None, *second, rank=None)
    folder = CaptureFolder.open(out)
    assert (folder.notes, folder.sources, folder.torn) == (("one", "two", "three"), ("s1", "s2", "s3"), 1)
    assert (folder.launch_counts, folder.unrecorded) == ({("r1", "l1"): 7, ("r1", "l2"): 1}, {"r1": "why"})
    again = AutotunerChoice("r2", ("r1", "r2", "r3"), "Triton", one)
    assert folder.tunings == (again, AutotunerChoice("r1", ("r1",), "Inductor", two))
    assert folder.lost == {"r3"}
    assert folder.configurations == (
        Configurations("f", ("n=1",), "r3", {"r1": "c1", "r2": "C2", "r3": "c3"}, "s", "Inductor"),
        Configurations("f", ("n=2",), "r3", {}),
    )


def test_what_a_writer_says_is_read_back(out, monkeypatch) -> None:
    monkeypatch.setenv(RUN_ID, f"{A}-12")
    writer = CaptureWriter(out, {"triton": "3.6.0"})
    writer.add_tuning("t", "Triton", "r1", ("r1", "r2"))
    writer.add_configurations("f", ("n=1",), "r1", {"r1": "c"}, "source", "Inductor")
    writer.add_launch_counts({("r1", "l1"): 2, ("r2", "l1"): 3})
    writer.close(["a note"], {"r1": "why"})
    writer.close()  # nothing more to say
    folder = CaptureFolder.open(out)
    (process,) = folder.processes
    assert (process["run"], process["triton"]) == (f"{A}-12", "3.6.0")
    assert [(one.winner, one.among, one.by) for one in folder.tunings] == [("r1", ("r1", "r2"), "Triton")]
    assert folder.configurations == (Configurations("f", ("n=1",), "r1", {"r1": "c"}, "source", "Inductor"),)
    assert folder.launch_counts == {("r1", "l1"): 2, ("r2", "l1"): 3}
    assert (folder.notes, folder.unrecorded) == (("a note",), {"r1": "why"})
    assert __file__ in folder.sources and not any("site-packages" in source for source in folder.sources)
