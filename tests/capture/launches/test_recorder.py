"""How launches are recorded, kept and read back, with a fake driver and fake tensors, without a GPU."""

from __future__ import annotations

import json
import math
import struct
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import fake_driver
import pytest
from fake_tensors import Storage, Tensor
from triton_kernels import add_kernel, fresh

import tritonhook
from tritonhook.capture.launches import recorder as launch_recorder
from tritonhook.capture.launches.record import (
    Buffer,
    Launch,
    Packed,
    Pointer,
    Scalar,
    Scratch,
    buffers_of,
    to_document,
    with_buffers,
)
from tritonhook.capture.launches.schema import LaunchFields, from_json
from tritonhook.capture.store import CaptureFolder, read_launch
from tritonhook.cli import main
from tritonhook.errors import CaptureError


@pytest.fixture
def kernel() -> Any:
    return fresh(add_kernel)


@pytest.fixture
def tensors() -> tuple[Tensor, ...]:
    """x and out share one allocation."""
    shared = Storage(1 << 20, 8192)
    return Tensor(shared), Tensor(Storage(1 << 21, 4000)), Tensor(shared, offset=4096)


def only_launch(out: Path) -> tuple[Launch, int | None]:
    folder = CaptureFolder.open(out)
    (one,) = (one for record in folder.records for one in folder.launches(record))
    return one.launch, one.count


def test_a_launch_is_recorded_with_what_a_second_one_needs(out, driver, kernel, tensors) -> None:
    with tritonhook.session(out, launches=True):
        for _ in range(3):
            kernel[(8,)](*tensors, 1000, BLOCK=128, num_warps=2)
    launch, count = only_launch(out)
    assert count == 3
    assert (launch.grid, launch.block, launch.cluster) == ((8, 1, 1), (64, 1, 1), (1, 1, 1))
    x, y, result, n = launch.parameters[:4]
    assert isinstance(x, Pointer)
    assert isinstance(result, Pointer)
    assert (x.name, x.buffer, x.offset, x.dtype, x.shape) == ("x", 0, 0, "float32", (1000,))
    assert (y.buffer, result.buffer, result.offset) == (1, 0, 4096), "views of one allocation share a buffer"
    assert n == Scalar("n", "i32", 1000)
    assert launch.parameters[4:] == (Scratch(), Scratch()), "Triton's launcher adds two pointers"
    assert [buffer.size for buffer in launch.buffers] == [8192, 4000]
    assert driver.launched == ["add_kernel"] * 3


def test_contents_of_integers_are_kept_and_of_all_if_wanted(out, driver, kernel, tensors, monkeypatch) -> None:
    monkeypatch.setattr(launch_recorder, "_contents", lambda tensor, start, size: bytes([size % 251]) * size)
    index = Tensor(Storage(1 << 22, 400), "int32", count=100)
    with tritonhook.session(out, launches=True):
        kernel[(1,)](tensors[0], index, tensors[2], 100, BLOCK=128)
    launch, _ = only_launch(out)
    assert [buffer.values for buffer in launch.buffers] == [None, f"{launch.key}-1.bin"]
    (file,) = out.rglob("*.bin")
    assert file.read_bytes() == bytes([400 % 251]) * 400

    with tritonhook.session(out.with_name("all"), launches="values"):
        fresh(add_kernel)[(1,)](tensors[0], index, tensors[2], 100, BLOCK=128)
    launch, _ = only_launch(out.with_name("all"))
    assert None not in [buffer.values for buffer in launch.buffers]


def test_a_launch_that_cannot_be_recorded_is_said_and_happens(out, driver, kernel, tensors) -> None:
    class Foreign:
        dtype = "float32"

        def data_ptr(self) -> int:
            return 4096

    with tritonhook.session(out, launches=True) as session:
        kernel[(8,)](Foreign(), *tensors[1:], 1000, BLOCK=128)
    assert driver.launched == ["add_kernel"]
    assert "argument x is a Foreign" in "".join(session.notes)
    assert not list(out.rglob("launches"))


def test_an_error_while_recording_does_not_reach_the_launch(out, driver, kernel, tensors, monkeypatch, capsys) -> None:
    def broken(*arguments: Any) -> Any:
        raise RuntimeError("no luck")

    monkeypatch.setattr(launch_recorder, "of_triton", broken)
    with tritonhook.session(out, launches=True):
        kernel[(8,)](*tensors, 1000, BLOCK=128)
    assert driver.launched == ["add_kernel"]
    assert "a launch could not be recorded: RuntimeError: no luck" in capsys.readouterr().err


def test_an_argument_of_several_parts_is_read_back_and_checked() -> None:
    packed = Packed("0", "00" * 8 + "07000000", ((0, 0, 8),))
    launch = Launch("k", (1, 1, 1), (128, 1, 1), (packed,), (Buffer(64, "float32"),))
    assert from_json(json.dumps(to_document(launch)).encode(), "x") == launch
    assert launch.summary.endswith("0 of 12 bytes")
    assert packed.filled([0x1000]) == struct.pack("<QI", 0x1008, 7)
    assert (buffers_of(packed), buffers_of(with_buffers(packed, {0: 3}))) == ((0,), (3,))
    for change in ({"pointers": [[8, 0, 0]]}, {"pointers": [[0, 1, 0]]}, {"pointers": [[0, 0, 65]]}, {"data": "0"}):
        broken = to_document(launch)
        broken["parameters"][0] |= change
        with pytest.raises(CaptureError):
            from_json(json.dumps(broken).encode(), "x")


def test_a_run_records_in_its_children(tmp_path, triton_cache) -> None:
    script = tmp_path / "script.py"
    script.write_text(fake_driver.SCRIPT)
    out = tmp_path / "captures"
    assert main(["run", "--launches", "--out", str(out), str(script), "2"]) == 0
    launch, count = only_launch(out)
    assert (launch.grid, count) == ((2, 1, 1), 1)


@pytest.mark.parametrize("launches", ["all", 3, "shape"])
def test_a_wrong_wish_is_refused(out, launches) -> None:
    with pytest.raises(CaptureError, match="launches="):
        tritonhook.enable(out, launches=launches)


# --- describing a launch -------------------------------------------------------------------------


def compiled(signature: Any, names: tuple[str, ...] = (), **metadata: Any) -> Any:
    """As one of Triton's compiled kernels."""
    source = SimpleNamespace(signature=signature, fn=SimpleNamespace(arg_names=names))
    return SimpleNamespace(name="k", src=source, metadata=SimpleNamespace(num_warps=4, shared=48, **metadata))


def test_a_launch_of_triton_is_described_with_clusters_and_scratch() -> None:
    tensor = Tensor(Storage(1 << 20, 512))
    kernel = compiled({0: "*fp32", (0, 1): "i32", "c": "constexpr", 1: "i32", 2: "i32"}, ("x", "n"))
    launch, storages = launch_recorder.of_triton(kernel, (5, 2, 3), (tensor, 7, None, 8, 9))
    parameters = (
        Pointer("x", 0, 0, "float32", (1000,), (1,)),
        *(Scalar("(0, 1)", "i32", 7), Scalar("n", "i32", 8), Scalar("2", "i32", 9)),
    )
    buffers = (Buffer(512, "float32"),)
    assert launch == Launch("k", (5, 2, 3), (128, 1, 1), parameters, buffers, shared=48)
    assert (storages, launch.cluster) == ([(tensor, 0, 512)], (1, 1, 1))
    told = {"num_ctas": 2, "global_scratch_size": 16, "profile_scratch_size": 8}
    told |= {"launch_cooperative_grid": True, "launch_pdl": True}
    launch, _ = launch_recorder.of_triton(compiled({}, **told), (5, 2, 3), ())
    scratch = Scratch(16 * 60), Scratch(8 * 60)
    assert launch == Launch("k", (10, 2, 3), (128, 1, 1), scratch, (), (2, 1, 1), 48, True, True)
    plain, _ = launch_recorder.of_triton(compiled({}, launch_pdl=False, global_scratch_size=0), (1, 1, 1), ())
    assert plain == Launch("k", (1, 1, 1), (128, 1, 1), (Scratch(0),), (), shared=48)


# --- what a session gets -------------------------------------------------------------------------


# --- the value -----------------------------------------------------------------------------------

WRITTEN = {
    "grid": [4],
    "block": [128],
    "parameters": [
        {"dtype": "bfloat16", "shape": [16, 8]},
        {"name": "n", "type": "i64", "value": 5},
        {"type": "bf16", "value": 1.0117},
        {"kind": "pointer", "buffer": None},
        {"kind": "scratch"},
    ],
}


def test_a_record_written_by_hand_is_a_launch() -> None:
    launch = from_json(json.dumps(WRITTEN).encode(), "x.json")
    assert launch.grid == (4, 1, 1)
    assert [(buffer.size, buffer.dtype) for buffer in launch.buffers] == [(256, "bfloat16")]
    assert launch.parameters[1] == Scalar("n", "i64", 5)
    assert launch.parameters[1].bytes == (5).to_bytes(8, "little")
    assert launch.parameters[2].bytes == b"\x81\x3f", "cut off, as Triton's launcher does"
    assert launch.parameters[3] == Pointer("3", None)
    again = LaunchFields.of(launch).launch
    assert again == launch
    assert again.key == launch.key


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_an_argument_that_is_not_finite_is_read_back(value: float) -> None:
    written = WRITTEN | {"parameters": [{"type": "fp32", "value": str(value)}]}
    launch = from_json(json.dumps(written).encode(), "x.json")
    assert launch.parameters[0].bytes == struct.pack("<f", value)
    again = from_json(json.dumps(to_document(launch), allow_nan=False).encode(), "y.json")
    assert again.key == launch.key and again.parameters[0].bytes == launch.parameters[0].bytes


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"grid": []}, "grid: expected a list of length >= 1"),
        ({"grid": [0]}, r"grid\[0\]: expected a whole number >= 1"),
        ({"block": "x"}, "block: expected a list, got text"),
        ({"shared": 1 << 70}, "shared: expected a whole number <="),
        ({"parameters": [{"type": "fp32", "value": 1e39}]}, "1e\\+39 does not fit fp32"),
        ({"parameters": [{"type": "i32"}]}, "a scalar needs type and value"),
        ({"format": 9}, "format 9"),
        ({"parameters": [{"dtype": "float33", "shape": [1]}]}, "dtype: expected one of bool"),
        ({"parameters": [{"dtype": "float32"}]}, "needs dtype and shape"),
        ({"parameters": [{"type": "i32", "value": 1 << 40}]}, "not a recorded launch"),
        ({"parameters": [{"type": "i7", "value": 1}]}, "type: expected one of i1"),
        ({"parameters": [{"kind": "pointer", "buffer": 3}]}, "buffer 3 is missing or ends before offset 0"),
        ({"parameters": [{"dtype": "int8", "shape": [4], "values": "../x"}]}, "the name of a file in the same folder"),
        ({"parameters": None}, "not a recorded launch"),
    ],
)
def test_a_damaged_record_is_said_to_be_one(change, message, tmp_path: Path) -> None:
    path = tmp_path / "launch.json"
    path.write_text(json.dumps(WRITTEN | change))
    with pytest.raises(CaptureError, match=message) as caught:
        read_launch(path)
    assert str(path) in str(caught.value)
