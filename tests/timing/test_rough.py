"""Rough times of recorded launches: what becomes of one that crashes or hangs. No GPU."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from patient_child import SAY_SO, be_patient
from repository import SUPPORT
from stored_kernels import keep_module

from tritonhook.capture.launches.record import Launch, to_document
from tritonhook.capture.selection import Launched
from tritonhook.capture.store import CaptureFolder
from tritonhook.errors import DeviceError
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


@pytest.mark.parametrize(
    ("program", "text"),
    [
        ("raise SystemExit(5)", "measuring the launches: the process ended with status 5"),
        (
            PROGRAM.replace('yield Begun("Fake GPU")', 'raise DeviceError("no GPU")').replace(
                "import os", "from tritonhook.errors import DeviceError\nimport os"
            ),
            "no GPU: a recorded launch needs torch and a GPU",
        ),
    ],
)
def test_where_no_process_gets_a_gpu_there_is_one_error(captures, program: str, text: str) -> None:
    with pytest.raises(DeviceError, match=text):
        rough_times(captures[0], (sys.executable, "-c", program))


def test_launches_come_by_the_time_that_they_take_in_all(captures) -> None:
    """Given the first launch under another name, 5 times; then it comes before the longest one."""
    path, keys = captures
    folder = CaptureFolder.open(path)
    (record,) = folder.records
    paths = {one.key: one.path for one in folder.launches(record)}
    others = [Launched(f"x{n}", keys[n], paths[keys[n]], "", count) for n, count in ((0, 2), (3, 1), (0, 5))]
    program = f"KEYS = {keys}\n{PROGRAM}".replace("number == 1 and", "False and").replace(
        "number == 2 and", "False and"
    )
    found = rough_times(path, (sys.executable, "-c", program), others=others)
    totals = [entry["count"] * entry["us"] for entry in found]
    assert totals == sorted(totals, reverse=True) == [5.0, 4.0, 4.0, 3.0, 2.0, 2.0, 1.0]
