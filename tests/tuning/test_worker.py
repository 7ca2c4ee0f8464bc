"""What a process that tunes says of codes before it times them: those of a fake GPU."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tritonhook.capture.launches.record import Launch, to_document
from tritonhook.device.child import After, At, Begin, ContextLost
from tritonhook.errors import DeviceError
from tritonhook.timing import replay, timer
from tritonhook.timing.messages import Take, Taken
from tritonhook.tuning.messages import Free, Freed, LeverCode, LoadCodes, Ready
from tritonhook.tuning.worker import GpuCodes


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[SimpleNamespace]:
    """Codes whose cubin says what they store in each launch, the last one again and again. timed: those that a timer
    got; freed: those that were unloaded."""
    found = SimpleNamespace(timed=[], freed=[], gpu=True)

    class OutOfMemoryError(RuntimeError):
        pass

    class Kernel:
        def __init__(self, image: bytes, name: str, buffers: Any) -> None:
            self.name, self.stored = name, image.decode().split()
            if "refused" in self.stored:
                raise DeviceError("CUDA_ERROR_INVALID_IMAGE")

        def launch(self) -> str:
            now = self.stored.pop(0) if len(self.stored) > 1 else self.stored[0]
            if now == "crash":
                raise RuntimeError("an illegal memory access was encountered\nCUDA kernel errors")
            return now

        def unload(self) -> None:
            found.freed.append(self.name)

    class Check:
        def __init__(self, buffers: Any, rtol: float | None) -> None:
            self.reference: str | None = None

        def difference(self, kernel: Kernel) -> str | None:
            stored = kernel.launch()
            self.reference = self.reference or stored
            return None if stored == self.reference else f"{stored}, not {self.reference}"

    class Timer:
        def __init__(self, sides: Any, seed: int, racing: bool) -> None:
            found.timed = [side.name for side in sides]

        def prepare(self) -> None:
            pass

    cuda = SimpleNamespace(
        is_available=lambda: found.gpu,
        synchronize=lambda: None,
        empty_cache=lambda: None,
        get_device_name=lambda: "Fake GPU",
        OutOfMemoryError=OutOfMemoryError,
    )
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    monkeypatch.setattr(replay, "LoadedKernel", Kernel)
    monkeypatch.setattr(replay, "OutputCheck", Check)
    monkeypatch.setattr(replay, "Buffers", lambda launch, folder: SimpleNamespace(notes=("made up",)))
    monkeypatch.setattr(timer, "Timer", Timer)
    launch = tmp_path / "launch.json"
    launch.write_text(json.dumps(to_document(Launch("k", (1, 1, 1), (32, 1, 1), ()))))

    def load(**stored: str) -> LoadCodes:
        for name, text in stored.items():
            (tmp_path / name).write_text(text)
        return LoadCodes(tuple(LeverCode(name, tmp_path / name, name) for name in stored), launch, None, 0, True)

    found.load = load
    yield found


def test_codes_that_store_the_same_are_timed(work: SimpleNamespace) -> None:
    codes = GpuCodes()
    *said, ready = codes.carry_out(work.load(reference="1", a="1", b="2", c="refused", d="1"))
    assert said == [At("reference"), After(), At("a"), After(), At("b"), After(), At("c"), After(), At("d"), After()]
    assert ready == Ready({"b": "2, not 1", "c": "CUDA_ERROR_INVALID_IMAGE"}, False, ("made up",))
    assert work.timed == ["reference", "a", "d"]
    assert list(codes.carry_out(Free())) == [Freed()] and work.freed == work.timed


def test_a_reference_that_stores_other_values_each_time_is_unsteady_and_nothing_is_timed(work: SimpleNamespace) -> None:
    *_, ready = GpuCodes().carry_out(work.load(reference="1 2", a="1"))
    assert ready == Ready({}, True, ("made up",)) and work.timed == []


def test_a_reference_that_is_refused_ends_it(work: SimpleNamespace) -> None:
    *_, ready = GpuCodes().carry_out(work.load(reference="refused", a="1"))
    assert ready == Ready({"reference": "CUDA_ERROR_INVALID_IMAGE"}, False, ("made up",)) and work.timed == []


def test_a_launch_that_loses_the_gpu_is_announced_and_told(work: SimpleNamespace) -> None:
    said = []
    with pytest.raises(ContextLost, match="^an illegal memory access was encountered$"):
        for message in GpuCodes().carry_out(work.load(reference="1", a="crash")):
            said.append(message)
    assert said == [At("reference"), After(), At("a")]


def test_without_a_gpu_it_says_what_needs_none(work: SimpleNamespace) -> None:
    work.gpu = False
    with pytest.raises(DeviceError, match="--assemble-only needs none"):
        list(GpuCodes().carry_out(Begin()))


def test_blocks_are_of_the_sides_that_are_left(work: SimpleNamespace) -> None:
    codes, kept = GpuCodes(), []
    codes._timer = SimpleNamespace(keep=kept.append, take_block=lambda process: f"block of {process}")
    (taken,) = codes.carry_out(Take(2, 7, ("reference", "a")))
    assert kept == [("reference", "a")] and taken == Taken(("block of 7", "block of 7"))
