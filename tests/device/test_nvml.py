"""NVML: clocks and what limits them, devices, processes and errors, on a model of a GPU."""

import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from fake_gpu import UUID, FakeGpu, FakeNvml, NVMLError_LibraryNotFound, NVMLError_NotSupported

from tritonhook.device.nvml import _SENTENCES, DeviceMemory, Nvml, _code, others_bytes, others_count
from tritonhook.errors import DeviceError


class Clocks(FakeNvml):
    """An H100 under load. `reasons`: the bits of the clock-event reasons; `silent`: functions it does not support."""

    NVML_CLOCK_SM = 1
    NVML_TEMPERATURE_GPU = 0

    def __init__(self, reasons: int = 0, silent: tuple[str, ...] = ()) -> None:
        super().__init__(FakeGpu())
        self.reasons, self.silent = reasons, silent

    def __getattribute__(self, name):
        if name.startswith("nvmlDevice") and name in object.__getattribute__(self, "silent"):
            raise NVMLError_NotSupported("Not Supported")
        return object.__getattribute__(self, name)

    def of(self, handle, value):
        """The value, if it is asked for of this GPU."""
        assert handle == f"GPU-{UUID}"
        return value

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle):
        return self.of(handle, self.reasons)

    def nvmlDeviceGetPowerUsage(self, handle):
        return self.of(handle, 412_500)

    def nvmlDeviceGetClockInfo(self, handle, which):
        return self.of(handle, {self.NVML_CLOCK_SM: 1755}[which])

    def nvmlDeviceGetMaxClockInfo(self, handle, which):
        return self.of(handle, {self.NVML_CLOCK_SM: 1980}[which])

    def nvmlDeviceGetTemperature(self, handle, which):
        return self.of(handle, {self.NVML_TEMPERATURE_GPU: 61}[which])


def conditions(**given):
    return Nvml(Clocks(**given)).conditions(f"GPU-{UUID}")


def test_clock_temperature_and_power_in_their_units() -> None:
    found = conditions()
    assert (found.sm_clock_mhz, found.sm_clock_max_mhz, found.temperature_c, found.power_w) == (1755, 1980, 61, 412.5)
    assert (found.slowed, found.power_capped, found.unfit) == ((), False, None)


def test_the_power_cap_is_recorded_and_heat_makes_a_block_unfit() -> None:
    capped = conditions(reasons=0x04)
    assert (capped.power_capped, capped.slowed, capped.unfit) == (True, (), None)
    hot = conditions(reasons=0x40 | 0x04)
    assert hot.slowed == ("hardware thermal",)
    assert "hardware thermal" in hot.unfit


def test_what_nvml_does_not_say_is_unknown() -> None:
    found = conditions(silent=("nvmlDeviceGetPowerUsage", "nvmlDeviceGetCurrentClocksThrottleReasons"))
    assert (found.power_w, found.power_capped, found.slowed, found.sm_clock_mhz) == (None, None, (), 1755)


def test_processes_of_the_comparison_are_no_others() -> None:
    own = os.getpid()
    assert others_count({own: 1, own + 1: None, own + 2: 5}, [own, own + 1]) == 1
    assert others_count({own: 1}, [own]) == 0
    assert others_count({own + 1: 1}, [own + 1]) is None, "ids of another namespace say nothing"


def test_nvmls_library_is_missing() -> None:
    with pytest.raises(DeviceError, match="NVML's library is not on this machine") as caught:
        Nvml(FakeNvml(FakeGpu(), init_error=NVMLError_LibraryNotFound("Not Found")))
    assert caught.value.code == "LIBRARY_NOT_FOUND"


def test_the_real_library_and_its_names_for_errors() -> None:
    pynvml = pytest.importorskip("pynvml")
    for code in _SENTENCES:
        name = "NVMLError_" + code.title().replace("_", "")
        assert issubclass(getattr(pynvml, name), pynvml.NVMLError)
        assert _code(getattr(pynvml, name)()) == code
    if not Path("/dev/nvidiactl").exists():
        with pytest.raises(DeviceError) as caught:
            Nvml()
        assert caught.value.code in ("LIBRARY_NOT_FOUND", "DRIVER_NOT_LOADED")


def test_a_mig_device_is_found_under_its_own_uuid() -> None:
    library = FakeNvml(FakeGpu(), (f"MIG-{UUID}",))
    assert Nvml(library).find(UUID) == f"MIG-{UUID}"
    assert Nvml(library).find(f"MIG-{UUID}") == f"MIG-{UUID}"
    assert Nvml(FakeNvml(FakeGpu())).find(UUID) == Nvml(FakeNvml(FakeGpu())).find(f"GPU-{UUID}") == f"GPU-{UUID}"
    for unknown in (UUID[::-1], f"GPU-{UUID}"):
        with pytest.raises(DeviceError, match="^nvmlDeviceGetHandleByUUID: NVML lists no device") as caught:
            Nvml(library).find(unknown)
        assert caught.value.code == "NOT_FOUND"


def test_without_pynvml_the_remedy_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(DeviceError, match="^nvidia-ml-py is not installed: `pip install nvidia-ml-py`") as caught:
        Nvml()
    assert caught.value.code == "NOT_INSTALLED"
    library = FakeNvml(FakeGpu())
    monkeypatch.setitem(sys.modules, "pynvml", library)  # type: ignore[arg-type]
    assert Nvml().uuids() == library.uuids


@pytest.mark.parametrize(
    ("listed", "has_context", "expected"),
    [
        ({7: 100, 8: 50}, False, 150),
        ({7: 100, "own": 60}, True, 100),
        ({7: None, "own": 60}, True, None),  # WDDM
        ({7: 100}, True, None),  # ids of the host, in a container
        ({}, True, None),
        ({}, False, 0),
    ],
)
def test_other_processes_are_known_or_not(listed, has_context, expected) -> None:
    own = {os.getpid() if pid == "own" else pid: used for pid, used in listed.items()}
    assert others_bytes(own, has_context) == expected


def test_memory_is_asked_for_with_what_is_reserved_and_says_where_there_is_none(monkeypatch) -> None:
    nvml = FakeNvml(FakeGpu())
    nvml.reserved_in_used = 1 << 20  # which only version 2 of the call counts
    found = Nvml(nvml).memory(f"GPU-{UUID}")
    assert (found.used, found.total) == (nvml.gpu.used + (1 << 20), nvml.gpu.total)
    two = FakeNvml(FakeGpu(), ("GPU-2", f"GPU-{UUID}"))
    two.gpu.own = 5
    assert Nvml(two).memory("GPU-2").used == Nvml(two).memory(f"GPU-{UUID}").used + 5
    for figures in ({"used": None, "total": 1}, {"used": 1, "total": None}):
        monkeypatch.setattr(
            FakeNvml, "nvmlDeviceGetMemoryInfo", lambda *_, given=figures, **__: SimpleNamespace(**given)
        )
        with pytest.raises(
            DeviceError, match="^nvmlDeviceGetMemoryInfo: NVML reports no memory sizes for this GPU"
        ) as said:
            Nvml(nvml).memory(f"GPU-{UUID}")
        assert said.value.code == "NOT_AVAILABLE"
    old = SimpleNamespace(
        NVMLError=FakeNvml.NVMLError,
        nvmlInit=lambda: None,
        nvmlDeviceGetHandleByUUID=lambda uuid: uuid,
        nvmlDeviceGetMemoryInfo=lambda handle: SimpleNamespace(used=1.0, total=2.0),
    )
    assert Nvml(old).memory("GPU-2") == DeviceMemory(1, 2), "this pynvml has no version 2"
