"""The driver API, on a model of a GPU, and on a library that records its calls."""

from __future__ import annotations

import ctypes
from typing import Any
from unittest.mock import Mock, call

import fake_cuda
import pytest
from fake_gpu import MIB, FakeCuda, FakeGpu

from tritonhook.device.cuda_driver import Driver, gpu_name, load_library
from tritonhook.errors import DeviceError

HIGH = 1 << 40  # more than 32 bits have


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


def test_the_sizes_of_parameters_end_with_the_first_error() -> None:
    class Parameters:
        def cuFuncGetParamInfo(self, function: Any, number: int, offset: Any, size: Any) -> int:
            offset._obj.value, size._obj.value = 100, 8 + number
            return int(function.value != HIGH or number == 2)

    assert Driver(Parameters()).parameter_sizes(HIGH) == (8, 9)
    assert Driver(Parameters()).parameter_sizes(HIGH + 1) == ()
    assert Driver(object()).parameter_sizes(HIGH) is None


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
