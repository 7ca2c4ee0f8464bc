"""The driver API, on a model of a GPU."""

from __future__ import annotations

import pytest
from fake_gpu import MIB, FakeCuda, FakeGpu

from tritonhook.device.cuda_driver import Driver
from tritonhook.errors import DeviceError


def test_the_driver_names_its_errors() -> None:
    gpu = FakeGpu(total=1 * MIB)
    with pytest.raises(DeviceError, match="cuMemAlloc_v2: CUDA_ERROR_OUT_OF_MEMORY") as caught:
        Driver(FakeCuda(gpu)).allocate(8 * MIB)
    assert caught.value.code == 2
