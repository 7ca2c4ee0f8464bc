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
from tritonhook.capture.selection import Launched
from tritonhook.capture.store import CaptureFolder, read_launch
from tritonhook.device.child import START_S, After, At, Begin, Begun, Lost
from tritonhook.errors import DeviceError, UsageError
from tritonhook.timing import rough
from tritonhook.timing.plan import Measure, Measured
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


class Children:
    """Stands for rough.Child: answers by the record's name, and notes how children are used."""

    def __init__(self, answers: dict[str, Any]) -> None:
        self.answers, self.done = answers, list[Any]()

    def __call__(self, command: Any, limit_s: float) -> Children:
        self.done.append((command, limit_s))
        return self

    def begin(self) -> None:
        self.done.append("begin")

    @property
    def device(self) -> str:
        self.done.append("device")
        if error := self.answers.get("no device"):
            raise error
        return "Fake GPU"

    def ask(self, request: Measure, kind: type[Measured], rest_s: float) -> Measured:
        self.done.append((request, kind, rest_s))
        if isinstance(answer := self.answers[request.record], Exception):
            raise answer
        return Measured(answer) if isinstance(answer, float) else Measured(why=answer)

    def end(self) -> None:
        self.done.append("end")


def others(tmp_path: Path, **counts: int) -> list[Launched]:
    return [Launched(name, f"key of {name}", tmp_path / name, "", count) for name, count in counts.items()]


@pytest.fixture
def empty(tmp_path: Path) -> Path:
    return keep_module(tmp_path / "captures", tmp_path, kernels=("foo",)).path


def test_launches_are_told_by_the_time_they_take_in_all(empty: Path, tmp_path: Path, monkeypatch: Any) -> None:
    answers = {"a": 2.0, "b": "refused", "c": Lost("c", "gone"), "d": 3.0, "e": 1.0}
    children = Children(answers)
    monkeypatch.setattr(rough, "Child", children)
    given = others(tmp_path, a=2, b=9, c=9, d=1, e=5)
    assert rough_times(empty, ("run",), 7.0, given) == [
        {"record": "e", "launch": "key of e", "count": 5, "us": 1.0},
        {"record": "a", "launch": "key of a", "count": 2, "us": 2.0},
        {"record": "d", "launch": "key of d", "count": 1, "us": 3.0},
        {"record": "b", "launch": "key of b", "count": 9, "us": None, "why": "refused"},
        {"record": "c", "launch": "key of c", "count": 9, "us": None, "why": "its launch: gone"},
    ]
    begun = [(("run",), 7.0), "begin", "device"]
    asked = [(Measure(empty, one.record, one.path), Measured, 7.0) for one in given]
    assert children.done == [*begun, *asked[:3], "end", *begun, *asked[3:], "end"]
    children.done.clear()
    assert rough_times(empty) == [] and children.done == []
    rough_times(empty, others=given[:1])
    assert children.done[0] == ((sys.executable, "-m", "tritonhook.timing.rough"), START_S)


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (Lost(None, "ended"), "measuring the launches: ended; its output is above"),
        (
            DeviceError("no GPU"),
            "no GPU: a recorded launch needs torch and a GPU; `tritonhook diff KERNEL --rename` needs neither",
        ),
    ],
)
def test_without_a_gpu_nothing_is_measured(
    error: Exception, text: str, empty: Path, tmp_path: Path, monkeypatch: Any
) -> None:
    children = Children({"no device": error})
    monkeypatch.setattr(rough, "Child", children)
    with pytest.raises(DeviceError) as raised:
        rough_times(empty, others=others(tmp_path, a=1))
    assert str(raised.value) == text and children.done[-1] == "end"


def test_the_process_with_the_gpu_launches_what_was_recorded(
    captures: tuple[Path, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    class OutOfMemoryError(RuntimeError):
        pass

    cuda = SimpleNamespace(
        is_available=lambda: True, get_device_name=lambda: "Fake GPU", OutOfMemoryError=OutOfMemoryError
    )
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    assert list(rough.carry_out(Begin())) == [Begun("Fake GPU")]
    cuda.is_available = lambda: False
    with pytest.raises(DeviceError, match="^no GPU that torch can use$"):
        list(rough.carry_out(Begin()))

    path, keys = captures
    (record,) = CaptureFolder.open(path).records
    place = path / "kernels" / record / "launches"
    capture = CaptureFolder.open(path).capture(record)
    monkeypatch.setattr(rough, "Buffers", lambda launch, folder: ("buffers", launch.grid, folder))
    monkeypatch.setattr(rough, "LoadedKernel", lambda *given: given)
    asked = Measure(path, record, place / f"{keys[0]}.json")
    given = capture.cubin, capture.kernel, ("buffers", read_launch(asked.launch).grid, place)
    monkeypatch.setattr(rough, "_rough_us", lambda kernel: 5.0 if kernel == given else kernel)
    assert list(rough.carry_out(asked)) == [At(record), After(), Measured(5.0)]
    for error in (OutOfMemoryError("no memory\nmore"), UsageError("no memory")):
        monkeypatch.setattr(rough, "_rough_us", raising(error))
        assert list(rough.carry_out(asked)) == [At(record), After(), Measured(why="no memory")]
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(DeviceError, match="^torch is not installed$"):
        list(rough.carry_out(Begin()))


def raising(error: Exception) -> Any:
    def raise_it(kernel: Any) -> float:
        raise error

    return raise_it
