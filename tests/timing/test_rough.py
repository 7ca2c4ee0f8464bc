"""Rough times of recorded launches: what becomes of one that crashes or hangs. No GPU."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from patient_child import SAY_SO, be_patient
from repository import SUPPORT
from stored_kernels import keep_module

from tritonhook.capture.launches.record import Launch, to_document
from tritonhook.errors import DeviceError
from tritonhook.timing import rough
from tritonhook.timing.rough import rough_times

# Measures each launch but the second, which ends it, and the third, which never comes to its end.
PROGRAM = f"""
import os, sys, time
from tritonhook.device.child import After, At, Begin, Begun, serve
from tritonhook.timing.plan import Measure, Measured

def carry_out(asked):
    if isinstance(asked, Begin):
        yield Begun("Fake GPU")
        return
    number = KEYS.index(asked.launch.stem)
    yield At(asked.record)
    number == 1 and os._exit(3)
    number == 2 and ({SAY_SO}, time.sleep(60))
    yield After()
    yield Measured(1.0 + number)

serve(sys.stdin, sys.stdout, carry_out, Begin, Measure)
"""


@pytest.fixture
def captures(tmp_path: Path) -> tuple[Path, list[str]]:
    """A folder with four launches of one kernel, and their keys in order."""
    folder = keep_module(tmp_path / "captures", tmp_path, kernels=("foo",))
    place = folder.path / "kernels" / folder.records[0] / "launches"
    place.mkdir()
    for blocks in range(1, 5):
        launch = Launch("foo", (blocks, 1, 1), (32, 1, 1), ())
        (place / f"{launch.key}.json").write_text(json.dumps(to_document(launch)))
    return folder.path, [one.key for one in folder.launches(folder.records[0])]


def test_a_launch_that_crashes_or_hangs_has_no_time_and_the_others_do(captures, monkeypatch) -> None:
    be_patient(monkeypatch)
    path, keys = captures
    program = f"import sys; sys.path.append({str(SUPPORT)!r}); KEYS = {keys}\n{PROGRAM}"
    found = rough_times(path, (sys.executable, "-c", program), 3.0)
    assert [(keys.index(entry["launch"]), entry["us"]) for entry in found] == [(3, 4.0), (0, 1.0), (1, None), (2, None)]
    assert [entry["why"] for entry in found[2:]] == [
        "its launch: the process ended with status 3",
        "its launch: no end within 3 s",
    ]


def test_a_process_that_does_not_start_is_an_error(captures) -> None:
    with pytest.raises(DeviceError, match="measuring the launches: the process ended with status 5; its output is abo"):
        rough_times(captures[0], (sys.executable, "-c", "raise SystemExit(5)"))


def test_launches_queue_up_before_the_first_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []

    class Event:
        def __init__(self, enable_timing: bool) -> None:
            assert enable_timing

        def record(self) -> None:
            done.append("event")

        def elapsed_time(self, end: Any) -> float:
            return 0.6  # ms, of 3 launches

    cuda = SimpleNamespace(
        Event=Event, _sleep=lambda clocks: done.append("sleep"), synchronize=lambda: done.append("wait")
    )
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    kernel: Any = SimpleNamespace(launch=lambda: done.append("launch"))
    assert rough._rough_us(kernel) == pytest.approx(200)
    assert done == ["launch", "sleep", "event", "launch", "launch", "launch", "event", "wait"]
