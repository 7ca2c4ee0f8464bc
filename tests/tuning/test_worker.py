"""What a process that tunes says of codes before it times them: those of a fake GPU."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tritonhook.capture.launches.record import Buffer, Launch, to_document
from tritonhook.device.child import After, At, ContextLost
from tritonhook.errors import DeviceError
from tritonhook.timing import places, replay, timer
from tritonhook.tuning.gpu import Free, Freed, LeverCode, LoadCodes, RaceReady
from tritonhook.tuning.worker import GpuCodes


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[SimpleNamespace]:
    """Codes whose cubin says what they store in each launch at each place, the last one again and again; behind "/"
    what they store of special numbers. timed: those that a timer got; freed: those that were unloaded; held: what the
    buffers were given."""
    found = SimpleNamespace(timed=[], freed=[], held=[], launches=[], gpu=True)

    class OutOfMemoryError(RuntimeError):
        pass

    class Kernel:
        def __init__(self, image: bytes, name: str, memory: Any) -> None:
            self.name = name
            usual, _, special = image.decode().partition("/")
            self.stored = {False: usual.split(), True: (special or usual).split()}
            found.launches.append((name, memory.launch.grid))
            if "refused" in self.stored[False]:
                raise DeviceError("CUDA_ERROR_INVALID_IMAGE")

        def launch(self) -> str:
            stored = self.stored[bool(buffers.special)]
            now = stored.pop(0) if len(stored) > 1 else stored[0]
            if now == "crash":
                raise RuntimeError("an illegal memory access was encountered\nCUDA kernel errors")
            return now

        def unload(self) -> None:
            found.freed.append(self.name)

    class Check:
        def __init__(self, buffers: Any, rtol: float | None, any_nan: bool) -> None:
            self.reference: str | None = None
            assert any_nan == bool(buffers.special)

        def difference(self, kernel: Kernel) -> str | None:
            stored = kernel.launch()
            self.reference = self.reference or stored
            return None if stored == self.reference else f"{stored}, not {self.reference}"

    class Timer:
        def __init__(self, sides: Any, seed: int, racing: bool) -> None:
            found.timed = [side.name for side in sides]

        def prepare(self) -> None:
            pass

    class Buffers:
        notes, special = ("made up",), None
        addresses, scratch, stream = (), None, None

        def __init__(self, launch: Launch, folder: Path) -> None:
            nonlocal buffers
            self.launch, buffers = launch, self

        def hold(self, contents: Any) -> None:
            self.special = contents
            found.held.append(contents)

    buffers: Any = None
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
    monkeypatch.setattr(replay, "Buffers", Buffers)
    monkeypatch.setattr(timer, "Timer", Timer)
    monkeypatch.setattr(places.CodePlaces, "pad", lambda self: None)

    def launch(grid: int) -> Path:
        path = tmp_path / f"launch-{grid}.json"
        buffer = (Buffer(8, "float32"), Buffer(8, "int32"))
        path.write_text(json.dumps(to_document(Launch("k", (grid, 1, 1), (32, 1, 1), (), buffer))))
        return path

    def load(keep: tuple[int, ...] | None = None, racing: bool = True, **stored: str) -> LoadCodes:
        """Names that begin with "other" are of another configuration, whose own code is `other`."""
        codes = []
        for name, text in stored.items():
            (tmp_path / name).write_text(text)
            is_other = name.startswith("other")
            like = {"reference": None, "other": None}.get(name, "other" if is_other else "reference")
            codes.append(LeverCode(name, tmp_path / name, name, launch(2) if is_other else None, like))
        return LoadCodes(tuple(codes), launch(1), None, 0, racing, keep)

    found.load = load
    yield found


def asked(codes: GpuCodes, wanted: LoadCodes) -> tuple[list[Any], RaceReady]:
    """What it says on the way, and its answer."""
    *said, ready = codes.carry_out(wanted)
    assert isinstance(ready, RaceReady)
    return said, ready


def each(*names: str) -> list[Any]:
    return [message for name in names for message in (At(name), After())]


def test_codes_that_store_the_same_are_timed_at_each_of_their_places(work: SimpleNamespace) -> None:
    codes = GpuCodes()
    said, ready = asked(codes, work.load(reference="1", a="1", b="2", c="refused", d="1"))
    assert said == each("reference", "a", "b", "d")
    assert ready == RaceReady({"b": "2, not 1", "c": "CUDA_ERROR_INVALID_IMAGE"}, False, ("made up",))
    assert work.timed == ["reference", "reference", "a", "a", "d", "d"]
    assert list(codes.carry_out(Free())) == [Freed()] and sorted(work.freed) == sorted([*work.timed, "b", "b"])
    _, ready = asked(codes, work.load(racing=False, reference="1", a="1"))
    assert work.timed == ["reference"] * 4 + ["a"] * 4 and not ready.failed


def test_a_code_that_differs_at_its_second_place_is_dropped(work: SimpleNamespace) -> None:
    in_turn(["1", "2"], "a")
    _, ready = asked(GpuCodes(), work.load(reference="1", a="1"))
    assert ready.failed == {"a": "2, not 1"}


def test_codes_of_another_configuration_store_what_its_own_code_stores(work: SimpleNamespace) -> None:
    given = {"other": "7", "other1": "7", "other2": "1"}
    said, ready = asked(GpuCodes(), work.load(reference="1", a="1", **given))
    assert ready.failed == {"other2": "1, not 7"} and said == each("reference", "a", "other", "other1", "other2")
    assert dict(work.launches) == {name: ((2 if name in given else 1), 1, 1) for name in ("reference", "a", *given)}
    _, ready = asked(GpuCodes(), work.load(reference="1", other="refused", other1="7", other2="1"))
    assert set(ready.failed) == {"other", "other1", "other2"}
    assert ready.failed["other1"] == "its configuration's own code: CUDA_ERROR_INVALID_IMAGE"


def test_special_numbers_show_what_the_recorded_ones_do_not(work: SimpleNamespace) -> None:
    wanted = work.load(keep=(1,), reference="1 / 5", a="1 / 5", b="1 / 6")
    said, ready = asked(GpuCodes(), wanted)
    assert said == each("reference", "a", "b", "special", "a", "b")
    assert ready.failed == {"b": "on special numbers: 6, not 5"}
    special, nothing = work.held
    assert len(special[0]) == 8 and special[1] is None and nothing is None, "what steers keeps its contents"
    _, ready = asked(GpuCodes(), work.load(keep=None, reference="1 / 5", b="1 / 6"))
    assert ready.failed == {}


def in_turn(stored: list[str], name: str = "reference") -> None:
    """Let the places of a code store these, in the order of launches."""
    original = replay.LoadedKernel.launch
    replay.LoadedKernel.launch = lambda kernel: stored.pop(0) if kernel.name == name else original(kernel)


def test_a_reference_that_stores_other_values_each_time_is_unsteady_and_nothing_is_timed(work: SimpleNamespace) -> None:
    in_turn(["1", "2"])
    _, ready = asked(GpuCodes(), work.load(reference="1", a="1"))
    assert ready == RaceReady({}, True, ("made up",)) and work.timed == []


def test_a_launch_that_loses_the_gpu_is_announced_and_told(work: SimpleNamespace) -> None:
    said = []
    with pytest.raises(ContextLost, match="^an illegal memory access was encountered$"):
        for message in GpuCodes().carry_out(work.load(reference="1", a="crash")):
            said.append(message)
    assert said == [At("reference"), After(), At("a")]
