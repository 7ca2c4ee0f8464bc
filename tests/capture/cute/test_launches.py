"""Launches of CuTe kernels in a program that runs: here the CUDA runtime of the DSL is a stand-in, which says yes."""

from __future__ import annotations

import ctypes
import gc
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("cutlass.base_dsl", reason="needs the CuTe DSL: `make test-cute` installs and tests it")
pytest.importorskip("torch")

import cute_kernels as kernels
import cutlass
import torch
from cutlass import cute
from cutlass.cute.runtime import from_dlpack, make_ptr

import tritonhook
from tritonhook.capture.cute import launches, runtime
from tritonhook.capture.dry_run.cute import nothing_launched
from tritonhook.capture.dry_run.gpu import DryRun
from tritonhook.capture.launches.live_tensors import LiveTensors, is_mapped
from tritonhook.capture.launches.record import Descriptor, Pointer, Tiling
from tritonhook.capture.launches.tensor_map import BYTES, encoded
from tritonhook.capture.store import CaptureFolder

FLOATS = 128


@pytest.fixture(autouse=True)
def stand_in_runtime() -> Iterator[None]:
    with nothing_launched(DryRun(90)):
        yield


def compiled() -> tuple[Any, Any, Any]:
    a, b = torch.zeros(2 * FLOATS), torch.zeros(FLOATS)
    return cute.compile(kernels.add, from_dlpack(a[:FLOATS]), from_dlpack(b)), a, b


def recorded(out: Path) -> list[Any]:
    found = CaptureFolder.open(out)
    return [launch for record in found.records for launch in found.launches(record)]


def test_a_launch_is_recorded_with_the_memory_of_its_tensors(out: Path) -> None:
    with tritonhook.session(out, launches=True):
        function, a, b = compiled()
        for _ in range(3):
            function(from_dlpack(a[FLOATS:]), from_dlpack(b))
    (one,) = recorded(out)
    assert one.count == 3
    assert (one.launch.grid, one.launch.block) == ((1, 1, 1), (FLOATS, 1, 1))
    assert one.launch.parameters == (Pointer("0", 0, 4 * FLOATS, "float32"), Pointer("1", 1, 0, "float32"))
    assert [buffer.size for buffer in one.launch.buffers] == [8 * FLOATS, 4 * FLOATS]


def test_the_same_launch_with_other_memory_is_of_the_same_kind(out: Path) -> None:
    """Other offsets, sizes or shared memory make another kind."""
    with tritonhook.session(out, launches=True):
        function, _, b = compiled()
        for tensor in [torch.zeros(2 * FLOATS) for _ in range(3)]:
            function(from_dlpack(tensor[:FLOATS]), from_dlpack(b))
        whole, larger = torch.zeros(2 * FLOATS), torch.zeros(3 * FLOATS)
        for x, y in ((whole[FLOATS:], b), (larger[:FLOATS], b), (whole[:FLOATS], whole[FLOATS:])):
            function(from_dlpack(x), from_dlpack(y))
    assert sorted(one.count for one in recorded(out)) == [1, 1, 1, 3]
    assert sorted(len(one.launch.buffers) for one in recorded(out)) == [1, 2, 2, 2]


def test_contents_are_kept_as_of_other_launches(out: Path) -> None:
    with tritonhook.session(out, launches="values"):
        function, a, b = compiled()
        a.fill_(3.0)
        function(from_dlpack(a[:FLOATS]), from_dlpack(b))
    (one,) = recorded(out)
    values = [(one.path.parent / str(buffer.values)).read_bytes() for buffer in one.launch.buffers]
    assert values == [a.numpy().tobytes(), b.numpy().tobytes()]


def test_a_plain_launch_is_recorded_too(out: Path) -> None:
    """The DSL's host code calls it by that name in no release so far; the library has it."""
    with tritonhook.session(out, launches=True):
        function, a, b = compiled()
        function(from_dlpack(a[:FLOATS]), from_dlpack(b))
        handle = max(launches.recordings[0].kernels)
        pointers = [ctypes.c_uint64(tensor.data_ptr()) for tensor in (a, b)]
        places = (ctypes.c_uint64 * 2)(*map(ctypes.addressof, pointers))
        launch = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_uint64, *[ctypes.c_int32] * 6, *[ctypes.c_uint64] * 3)
        address = runtime.of_process().table.address(runtime.PLAIN_LAUNCH)
        assert launch(address)(handle, 7, 2, 1, 32, 1, 1, ctypes.addressof(places), 64, 0) == 0
    launched = sorted((one.launch for one in recorded(out)), key=lambda launch: launch.shared)
    assert (launched[1].grid, launched[1].block, launched[1].shared) == ((7, 2, 1), (32, 1, 1), 64)
    assert launched[1].parameters == launched[0].parameters


def test_memory_of_no_tensor_is_refused_by_name(out: Path) -> None:
    room = (ctypes.c_float * (2 * FLOATS))()
    address = -(-ctypes.addressof(room) // 16) * 16
    assert is_mapped(address) and not is_mapped(8)
    b = torch.zeros(FLOATS)
    with tritonhook.session(out, launches=True) as session:
        pointers = [make_ptr(cutlass.Float32, at, assumed_align=16) for at in (b.data_ptr(), address)]
        cute.compile(kernels.add_pointers, *pointers)(*pointers)
    assert not recorded(out)
    assert any("argument 1 points to memory of no known tensor" in note for note in session.notes), session.notes


def test_packed_rows_are_found_by_their_memory() -> None:
    """A descriptor whose address is 2^30 rows before its tensor, as FlashAttention 4 makes one of O."""
    tensor = torch.zeros(256, dtype=torch.bfloat16)
    tiling = Tiling(9, (8, 1 << 30, (1 << 31) - 1), (16, 16), (8, 4, 1), (1,) * 3, by_host=True)
    data = encoded(tiling, tensor.data_ptr() - tiling.begin).ljust(BYTES, b"\0")
    kernel: Any = SimpleNamespace(name="k", has_descriptors=lambda _: None)
    launch, _ = launches.Called(kernel, (1,) * 6, 0, {}, [data]).described(LiveTensors())
    assert launch.parameters == (Descriptor("0", 0, -tiling.begin, tiling),) and launch.buffers[0].size == 512

    kernel.sizes = (len(data),)
    form = launches.Form.of(launch, kernel, int.from_bytes(data, "little"), [])
    for other, count, is_same in ((tiling, 256, True), (tiling, 264, False), (replace(tiling, swizzle=1), 256, False)):
        new = torch.zeros(count, dtype=torch.bfloat16)
        passed = encoded(other, new.data_ptr() - other.begin)
        assert form.has(int.from_bytes(passed, "little"), LiveTensors()) is is_same
    assert not form.has(int.from_bytes(encoded(tiling, 16 - tiling.begin), "little"), LiveTensors()), "no tensor"


def test_errors_of_recording_do_not_reach_the_launch(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    launched = []
    undo = runtime.of_process().stand_in(runtime.LAUNCH, 3, lambda *given: launched.append(given) or 0)
    monkeypatch.setattr(LiveTensors, "at", lambda *_: 1 / 0)
    with tritonhook.session(out, launches=True) as session:
        function, a, b = compiled()
        function(from_dlpack(a[:FLOATS]), from_dlpack(b))
    undo()
    assert len(launched) == 1
    assert any("ZeroDivisionError" in note for note in session.notes)


def test_an_error_of_the_runtime_reaches_the_program(out: Path) -> None:
    undo = runtime.of_process().stand_in(runtime.LAUNCH, 3, lambda *_: 719)
    with tritonhook.session(out, launches=True):
        function, a, b = compiled()
        with pytest.raises(Exception, match="719|LaunchFailure|NVIDIA display driver"):
            function(from_dlpack(a[:FLOATS]), from_dlpack(b))
    undo()


OFF = """
import cutlass.cute, tritonhook
from tritonhook.capture.cute import runtime
with tritonhook.session("{out}"):
    assert not runtime._runtime
assert not runtime._runtime
"""


def test_nothing_is_replaced_where_no_session_records_launches(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", OFF.format(out=tmp_path / "out")], check=True)


# --- tensors by address --------------------------------------------------------------------------


def test_a_tensor_is_found_by_any_address_in_its_memory() -> None:
    tensor = torch.zeros(64)
    begin = tensor.data_ptr()
    middle = tensor[32:]
    found = LiveTensors().at({begin, begin + 4, middle.data_ptr(), begin + 255, begin + 256})
    assert found.keys() == {begin, begin + 4, begin + 128, begin + 255}
    assert found[begin + 128].data_ptr() == begin + 128, "the one that begins there"


def test_a_tensor_that_is_gone_is_not_found_and_an_old_one_is() -> None:
    live, tensor = LiveTensors(), torch.zeros(64)
    begin = tensor.data_ptr()
    gc.collect()
    assert live.at({begin}).keys() == {begin}
    del tensor
    gc.collect()
    assert not live.at({begin})
