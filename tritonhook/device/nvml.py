"""NVML, through nvidia-ml-py: the used memory of a GPU, its processes, and its clocks, temperature and power.

A GPU is named by its UUID, never by an index: NVML counts GPUs in PCI order, CUDA by speed and CUDA_VISIBLE_DEVICES.
Reading the memory takes about 12 us. Reading the process list takes about 4.5 ms, during which other calls wait for the
driver's lock (MangoHud pull request 2104): read it before and after a measurement, never in a loop.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from tritonhook.device.sm_clock import Conditions
from tritonhook.errors import DeviceError

# Reasons for a reduced clock (nvml.h, clock-event reasons); load and the software power cap are not among them.
_SLOWED = {0x08: "hardware slowdown", 0x20: "software thermal", 0x40: "hardware thermal", 0x80: "power brake"}
_POWER_CAP = 0x04
_REMEDY = "`pip install nvidia-ml-py`, or `pip install 'tritonhook[watch]'`"


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """Memory of one GPU in bytes, for all processes together. used: includes memory that the driver reserves."""

    used: int
    total: int


class Nvml:
    """NVML of this machine. library: the pynvml module, or its replacement in tests.

    Raises DeviceError if the library or the driver is missing; its `code` is NVML's name of the error.
    """

    def __init__(self, library: Any = None) -> None:
        self._nvml = _import() if library is None else library
        self._handles: dict[str, Any] = {}
        self._lock = threading.Lock()
        self._ask("nvmlInit")

    def close(self) -> None:
        """Release NVML. NVML counts its users in this process and shuts down after the last release."""
        try:
            self._nvml.nvmlShutdown()
        except self._nvml.NVMLError:  # e.g. if the GPU is lost
            return

    def _ask(self, name: str, *arguments: Any, **named: Any) -> Any:
        try:
            return getattr(self._nvml, name)(*arguments, **named)
        except self._nvml.NVMLError as error:
            raise DeviceError(_sentence(name, error), _code(error)) from None

    def uuids(self) -> tuple[str, ...]:
        """List the UUIDs of the machine's GPUs, in PCI order."""
        count = int(self._ask("nvmlDeviceGetCount"))
        handles = [self._ask("nvmlDeviceGetHandleByIndex", index) for index in range(count)]
        return tuple(_text(self._ask("nvmlDeviceGetUUID", handle)) for handle in handles)

    def find(self, uuid: str) -> str:
        """Add NVML's prefix to a UUID from the CUDA driver: "GPU-" if there is such a GPU, else "MIG-". Raises
        DeviceError if there is no such device."""
        if uuid.startswith(("GPU-", "MIG-")):
            self._handle(uuid)
            return uuid
        try:
            self._handle(f"GPU-{uuid}")
            return f"GPU-{uuid}"
        except DeviceError as error:
            try:
                self._handle(f"MIG-{uuid}")
            except DeviceError:
                raise error from None
            return f"MIG-{uuid}"

    def _handle(self, uuid: str) -> Any:
        with self._lock:
            if uuid not in self._handles:
                self._handles[uuid] = self._ask("nvmlDeviceGetHandleByUUID", uuid)
            return self._handles[uuid]

    def name(self, uuid: str) -> str:
        return _text(self._ask("nvmlDeviceGetName", self._handle(uuid)))

    def driver_version(self) -> str:
        return _text(self._ask("nvmlSystemGetDriverVersion"))

    def memory(self, uuid: str) -> DeviceMemory:
        """Read used and total bytes with version 2 of the call, where `used` includes reserved memory. Raises
        DeviceError, e.g. with the code NOT_SUPPORTED on GB10."""
        handle = self._handle(uuid)
        version = getattr(self._nvml, "nvmlMemory_v2", None)
        named = {} if version is None else {"version": version}
        info = self._ask("nvmlDeviceGetMemoryInfo", handle, **named)
        if info.used is None or info.total is None:
            raise DeviceError("nvmlDeviceGetMemoryInfo: NVML reports no memory sizes for this GPU", "NOT_AVAILABLE")
        return DeviceMemory(int(info.used), int(info.total))

    def conditions(self, uuid: str) -> Conditions:
        """Read the current clock, temperature and power, and the reasons for a reduced clock. A value that NVML does
        not report is None."""
        handle = self._handle(uuid)

        def ask(name: str, *what: Any) -> Any:
            try:
                return self._ask(name, handle, *what)
            except DeviceError:
                return None

        reasons = ask("nvmlDeviceGetCurrentClocksThrottleReasons")
        power_mw = ask("nvmlDeviceGetPowerUsage")
        return Conditions(
            sm_clock_mhz=ask("nvmlDeviceGetClockInfo", self._nvml.NVML_CLOCK_SM),
            sm_clock_max_mhz=ask("nvmlDeviceGetMaxClockInfo", self._nvml.NVML_CLOCK_SM),
            temperature_c=ask("nvmlDeviceGetTemperature", self._nvml.NVML_TEMPERATURE_GPU),
            power_w=None if power_mw is None else power_mw / 1000,
            slowed=tuple(name for bit, name in _SLOWED.items() if reasons is not None and reasons & bit),
            power_capped=None if reasons is None else bool(reasons & _POWER_CAP),
        )

    def processes(self, uuid: str) -> dict[int, int | None]:
        """Map the ids of processes with a context to their bytes of GPU memory; None if NVML does not report them
        (WDDM). In a container, ids can be those of the host, or missing."""
        listed = self._ask("nvmlDeviceGetComputeRunningProcesses", self._handle(uuid))
        return {int(p.pid): None if p.usedGpuMemory is None else int(p.usedGpuMemory) for p in listed}


def others_count(listed: Mapping[int, int | None], own: Collection[int]) -> int | None:
    """Count the listed processes that are not in `own`. None if this process is not listed: the ids are then those of
    another PID namespace, and it is not known which process is which."""
    return None if os.getpid() not in listed else len(listed.keys() - set(own))


def others_bytes(listed: Mapping[int, int | None], has_context: bool) -> int | None:
    """Sum the bytes of all processes except this one. None if a number is missing, or if this process has a context but
    is not listed: the ids are then those of another PID namespace, and it is not known which process is which."""
    others = [used for pid, used in listed.items() if pid != os.getpid()]
    if has_context and os.getpid() not in listed:
        return None
    known = [used for used in others if used is not None]
    return sum(known) if len(known) == len(others) else None


def _import() -> Any:
    try:
        import pynvml
    except ImportError:
        raise DeviceError(f"nvidia-ml-py is not installed: {_REMEDY}", "NOT_INSTALLED") from None
    return pynvml


_SENTENCES = {
    "LIBRARY_NOT_FOUND": "NVML's library is not on this machine (no NVIDIA driver)",
    "DRIVER_NOT_LOADED": "the NVIDIA kernel driver is not loaded",
    "NOT_SUPPORTED": "this GPU does not report this value (unified memory, as on GB10)",
    "GPU_IS_LOST": "the GPU has fallen off the bus; the machine has to be restarted",
    "NO_PERMISSION": "this user may not read this value (with MIG, read it from the MIG device)",
    "NOT_FOUND": "NVML lists no device with that UUID",
    "UNINITIALIZED": "NVML was shut down by another part of the program",
}


def _code(error: Any) -> str:
    """Derive the name of NVML's error constant from the exception's class: "NOT_SUPPORTED" for
    NVMLError_NotSupported."""
    words = type(error).__name__.partition("_")[2]
    spelled = "".join(f"_{c}" if c.isupper() and i else c for i, c in enumerate(words)).upper()
    return spelled or str(getattr(error, "value", error))


def _sentence(name: str, error: Any) -> str:
    return f"{name}: {_SENTENCES.get(_code(error), str(error) or _code(error))}"


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
