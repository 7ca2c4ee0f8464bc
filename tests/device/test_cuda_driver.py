"""The driver API, on a model of a GPU, and on a library that records its calls."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock, call

import fake_cuda
import pytest
from fake_gpu import MIB, FakeCuda, FakeGpu

from tritonhook.device import cuda_driver
from tritonhook.device.cuda_driver import CudaError, Driver, gpu_name, launch_config, load_library
from tritonhook.errors import DeviceError

OUT = "written by the driver"
HIGH = 1 << 40  # more than 32 bits have
TILING = SimpleNamespace(
    shape=(64, HIGH), strides=(128,), box=(16, 8), steps=(1, 2), element=6, interleave=1, swizzle=3, promotion=2, fill=4
)  # fmt: skip


class Recorder:
    """A libcuda whose functions record their arguments, write these values and return this code."""

    def __init__(self, *written: Any, code: int = 0) -> None:
        self.written, self.code, self.calls = list(written), code, []

    def __getattr__(self, name: str) -> Callable[..., int]:
        if not name.startswith("cu") or name == "cuGetErrorName":
            raise AttributeError(name)
        return lambda *given: self.calls.append((name, *map(self._plain, given))) or self.code

    def _plain(self, given: Any) -> Any:
        target = getattr(given, "_obj", given)  # of byref
        if isinstance(target, cuda_driver.LaunchConfig):
            return target
        whole = isinstance(given, ctypes.Array) and bool(self.written) and not isinstance(self.written[0], int)
        if self.written and (target is not given or whole):
            value = self.written.pop(0)
            if hasattr(target, "value"):
                target.value = value
            else:
                target[: len(value)] = list(value)
            return OUT
        return list(given) if isinstance(given, ctypes.Array) else getattr(given, "value", given)


def test_the_driver_names_its_errors() -> None:
    gpu = FakeGpu(total=1 * MIB)
    with pytest.raises(DeviceError, match="cuMemAlloc_v2: CUDA_ERROR_OUT_OF_MEMORY") as caught:
        Driver(FakeCuda(gpu)).allocate(8 * MIB)
    assert caught.value.code == 2


def test_bytes_are_written_copied_filled_and_read_where_the_caller_says() -> None:
    driver = Driver(fake_cuda.FakeCuda())
    first, second = driver.allocate(8), driver.allocate(8)
    driver.write(first, b"abcdefgh")
    driver.fill(second, 7, 8)
    driver.copy(second + 1, first + 2, 3)
    assert (driver.read(first, 8), driver.read(second, 8)) == (b"abcdefgh", b"\7cde\7\7\7\7")
    driver.fill(first + 6, 0x21, 2)
    assert driver.read(first, 8) == b"abcdef!!" and driver.read(first, 0) == b""
    driver.free(first)
    assert len(driver._cuda.gpu.allocated) == 1


@pytest.mark.parametrize(
    ("method", "written", "value"),
    [
        ("arch", (12, 1), 121),
        ("version", (12090,), "12.9"),
        ("uuid", (range(16),), "00010203-0405-0607-0809-0a0b0c0d0e0f"),
        ("name", (b"H\xff00",), "H\ufffd00"),
        ("memory", (HIGH, HIGH + 1), (HIGH, HIGH + 1)),
    ],
)
def test_what_the_driver_writes_is_read(method: str, written: tuple[Any, ...], value: object) -> None:
    assert getattr(Driver(Recorder(*written)), method)(*[0] * (method in ("arch", "uuid", "name"))) == value


def test_what_is_not_there_is_null() -> None:
    driver = Driver(Recorder())
    assert [driver.load(b""), driver.function(1, "k"), driver.create_context(0)] == [0, 0, 0]
    assert not driver.has_context() and not driver.is_capturing(0)
    with pytest.raises(CudaError, match="^no GPU that this process may use: cuInit says CUresult 100$"):
        Driver(Recorder(code=100)).init()


@pytest.mark.parametrize(("code", "capturing"), [(899, False), (900, True), (909, True), (910, False)])
def test_a_refusal_because_of_a_capture_is_one(code: int, capturing: bool) -> None:
    assert Driver(Recorder(code=code)).is_capturing(1) is capturing


@pytest.mark.parametrize(
    ("given", "attributes"),
    [
        ({}, []),
        ({"cluster": (2, 1, 4)}, [(4, [2, 1, 4]), (5, [1, 0, 0])]),
        ({"cooperative": True}, [(2, [1, 0, 0])]),
        ({"pdl": True}, [(6, [1, 0, 0])]),
        ({"shared": 228 << 10}, []),
        ({"shared": (228 << 10) + 1, "pdl": True}, [(6, [1, 0, 0]), (18, [3, 0, 0])]),
    ],
)
def test_the_configuration_of_a_launch(given: dict[str, Any], attributes: list[Any]) -> None:
    config = launch_config((2, 3, 4), (5, 6, 7), **({"shared": 8} | given))
    shape = [getattr(config, f"{kind}_{axis}") for kind in ("grid", "block") for axis in "xyz"]
    assert (shape, config.shared, config.stream) == ([2, 3, 4, 5, 6, 7], given.get("shared", 8), None)
    assert [(one.id, one.value[:3]) for one in config.attributes[: config.count]] == attributes


def test_the_sizes_of_parameters_end_with_the_first_error() -> None:
    class Parameters:
        def cuFuncGetParamInfo(self, function: Any, number: int, offset: Any, size: Any) -> int:
            offset._obj.value, size._obj.value = 100, 8 + number
            return int(function.value != HIGH or number == 2)

    assert Driver(Parameters()).parameter_sizes(HIGH) == (8, 9)
    assert Driver(Parameters()).parameter_sizes(HIGH + 1) == ()
    assert Driver(object()).parameter_sizes(HIGH) is None


@pytest.mark.parametrize(
    ("reach", "version", "kept"),
    [(1 << 16, 13010, False), ((1 << 17) - 1, 12090, False), (1 << 17, 13010, True), (1, 13020, True)],
)
def test_a_tensors_descriptor_is_aligned_and_mended_for_small_ones(reach: int, version: int, kept: bool) -> None:
    library = Recorder(bytes(10) + b"\xff", version)
    tiling = SimpleNamespace(**vars(TILING), reach=reach)
    made = Driver(library).tensor_map(tiling, HIGH)  # type: ignore[arg-type]
    assert ctypes.addressof(made) % 64 == 0 and len(made) == 128
    assert made[10] == (0xFF if kept else 0xDF)
    lists = ([64, HIGH], [128, 0], [16, 8], [1, 2])
    assert library.calls[0] == ("cuTensorMapEncodeTiled", OUT, 6, 2, HIGH, *lists, 1, 3, 2, 4)
    with pytest.raises(CudaError, match="^cuTensorMapEncodeTiled: "):
        Driver(Recorder(code=1)).tensor_map(tiling, HIGH)  # type: ignore[arg-type]


def test_a_machine_without_a_driver_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    for text, reason in (
        ("libcuda.so.1: cannot open: No such file or directory", "libcuda.so.1 is not found"),
        ("libcuda.so.1: wrong ELF class", "libcuda.so.1: wrong ELF class"),
    ):
        missing = Mock(side_effect=OSError(text))
        monkeypatch.setattr(ctypes, "CDLL", missing)
        with pytest.raises(DeviceError, match=f"^no NVIDIA driver here: {reason}$") as caught:
            Driver()
        assert caught.value.code == "LIBRARY_NOT_FOUND"
        assert gpu_name() == ""
        assert missing.call_args_list == [call("libcuda.so.1")] * 2
    monkeypatch.setattr(ctypes, "CDLL", lambda name: name)
    assert load_library() == "libcuda.so.1"
    gpu = FakeGpu()
    monkeypatch.setattr(ctypes, "CDLL", lambda name: FakeCuda(gpu))
    assert gpu_name() == "Fake H100" and gpu.initialised
