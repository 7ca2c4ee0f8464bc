"""The GPUs that a watch reads: which ones this process uses, and what NVML, the driver and torch report about each.

Nothing is called on the driver while a graph is captured, and CUDA is never initialised from here: a program may
still fork.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from tritonhook.device.cuda_driver import Driver
from tritonhook.device.nvml import Nvml, others_bytes
from tritonhook.errors import DeviceError
from tritonhook.memory.timeline import Mark, MemorySample, Reading, Snapshot

TorchBytes = tuple[int | None, int | None]
_KEEP_NS = 1_000_000_000  # a sample that equals the one before is kept once a second


class WatchedDevice:
    """What is gathered of one GPU.

    sampled: NVML has figures for it. active: this process has a context on it.
    free_offset: what to add to cuMemGetInfo's free bytes to get NVML's.
    """

    def __init__(self, uuid: str) -> None:
        self.uuid, self.name = uuid, uuid
        self.ordinal: int | None = None
        self.total: int | None = None
        self.free_offset = 0
        self.threads: int | None = None
        self.arch: int | None = None
        self.sampled = self.active = False
        self.start: Snapshot | None = None
        self.samples: list[MemorySample] = []
        self.marks: list[Mark] = []
        self.notes: list[str] = []
        self._last_torch: TorchBytes = (None, None)

    def note(self, sentence: str) -> None:
        if sentence not in self.notes:
            self.notes.append(sentence)

    def add_sample(self, t_ns: int, used: int, torch: TorchBytes) -> None:
        """Keep a sample that differs from the last one, and one a second. torch: (None, None) if it was not asked."""
        last = self.samples[-1] if self.samples else None
        changed = last is None or last.used_bytes != used or t_ns - last.t_ns >= _KEEP_NS
        if changed or (torch[0] is not None and torch != self._last_torch):
            self._last_torch = torch if torch[0] is not None else self._last_torch
            self.samples.append(MemorySample(t_ns, used, "NVML", *torch))


class Devices:
    """All GPUs of a watch, by NVML's UUID. driver, nvml: None where they are missing.

    note: called with a message if something could not be read.
    """

    def __init__(self, driver: Driver | None, nvml: Nvml | None, note: Callable[[str], None]) -> None:
        self._driver = driver
        self._nvml = nvml
        self._note = note
        self._by_uuid: dict[str, WatchedDevice] = {}
        self._by_ordinal: dict[int, WatchedDevice] = {}

    @property
    def all(self) -> list[WatchedDevice]:
        return list(self._by_uuid.values())

    @property
    def in_use(self) -> list[WatchedDevice]:
        """The GPUs on which this process has a context; all GPUs, as long as it has none."""
        return [device for device in self.all if device.active] or self.all

    @property
    def sampled(self) -> list[WatchedDevice]:
        """The GPUs in use that NVML knows."""
        sampled = [device for device in self.all if device.sampled]
        return [device for device in sampled if device.active] or sampled

    # --- finding them

    def find(self) -> None:
        """Add each GPU that NVML lists and CUDA_VISIBLE_DEVICES may mean: there may be no context yet."""
        if self._nvml is not None:
            try:
                for uuid in _maybe_visible(self._nvml.uuids()):
                    self._add(self._nvml.find(uuid))
            except DeviceError as error:
                self._note(f"no timeline from NVML: {error}")
        self.identify_current()

    def _add(self, uuid: str) -> WatchedDevice:
        if uuid not in self._by_uuid:
            device = self._by_uuid[uuid] = WatchedDevice(uuid)
            if self._nvml is not None:
                try:
                    device.name = self._nvml.name(uuid)
                    device.total = self._nvml.memory(uuid).total
                    device.sampled = True
                except DeviceError as error:
                    device.note(f"{device.name}: no timeline from NVML: {error}")
        return self._by_uuid[uuid]

    def identify_current(self) -> None:
        """Find out which GPU the current context is on, by UUID. Does nothing as long as there is no context."""
        if self._driver is None or not self._driver.has_context():
            return
        try:
            ordinal = self._driver.current_device()
            if ordinal in self._by_ordinal:
                return
            device = self._add(self._nvml_uuid(self._driver.uuid(ordinal)))
            device.active, device.ordinal = True, ordinal
            device.name = self._driver.name(ordinal)
            device.threads = self._driver.multiprocessors(ordinal) * self._driver.threads_per_multiprocessor(ordinal)
            device.arch = self._driver.arch(ordinal)
            self._align(device, self._driver)
            self._by_ordinal[ordinal] = device
        except DeviceError as error:
            self._note(f"a CUDA device could not be identified: {error}")

    def _align(self, device: WatchedDevice, driver: Driver) -> None:
        """Compare cuMemGetInfo with NVML once, at one moment. cuMemGetInfo leaves out what the driver reserves for
        itself; NVML counts it in the total, and may count it as used."""
        free, total = driver.memory()
        if self._nvml is None or not device.sampled or device.total is None:
            device.total = total
            return
        device.free_offset = device.total - self._nvml.memory(device.uuid).used - free

    def _nvml_uuid(self, uuid: str) -> str:
        if self._nvml is None:
            return f"GPU-{uuid}"
        try:
            return self._nvml.find(uuid)
        except DeviceError:
            return f"GPU-{uuid}"  # NVML does not show it: in some containers, and with MIG

    def current(self, capturing: bool) -> WatchedDevice | None:
        """The GPU of the current context. capturing: a graph is captured, so that a new one is not identified."""
        if not capturing:
            self.identify_current()
        try:
            return None if self._driver is None else self._by_ordinal.get(self._driver.current_device())
        except DeviceError:
            return None

    # --- reading them

    def snapshot(self, device: WatchedDevice) -> Snapshot:
        """What all sources report. For both ends of a watch: only here NVML is asked for its slow list of processes."""
        used: dict[str, int] = {}
        others: int | None = None
        if self._nvml is not None:
            try:
                used["NVML"] = self._nvml.memory(device.uuid).used
            except DeviceError as error:
                device.note(f"{device.name}: no device memory from NVML: {error}")
            try:
                listed = self._nvml.processes(device.uuid)
                others = others_bytes(listed, device.active)
                own = listed.get(os.getpid(), None if device.active else 0)
                used |= {"NVML, this process": own} if "NVML" not in used and own is not None else {}
            except DeviceError as error:
                device.note(f"{device.name}: other processes are not known: {error}")
        reading = self.reading() if device.active and self._is_current(device) else None
        if reading is not None and reading.free_bytes is not None and device.total is not None:
            used["cuMemGetInfo"] = device.total - reading.free_bytes
        return Snapshot(used, others, reading)

    def sample(self, device: WatchedDevice, now: Callable[[], int], with_torch: bool) -> None:
        """Read NVML's used bytes, and torch's counters if wanted. A GPU that is lost is not sampled again.

        now: the nanoseconds since the watch began.
        """
        assert self._nvml is not None  # else no device is sampled
        try:
            used = self._nvml.memory(device.uuid).used
        except DeviceError as error:
            device.sampled = False
            device.note(f"{device.name}: the timeline ends at {now() / 1e9:.1f} s: {error}")
            return
        device.add_sample(now(), used, torch_bytes(device.ordinal) if with_torch and device.active else (None, None))

    def reading(self, stream: int = 0) -> Reading | None:
        """What the current context says; None during graph capture, and without a context."""
        driver = self._driver
        if driver is None or not driver.has_context() or self.is_capturing(stream):
            return None
        try:
            limit, free = driver.limit(), driver.memory()[0]
            device = self._by_ordinal.get(driver.current_device())
        except DeviceError as error:
            self._note(f"the context could not be read: {error}")
            return None
        return Reading(limit, free + (0 if device is None else device.free_offset), *torch_bytes())

    def is_capturing(self, stream: int) -> bool:
        """Whether a graph is captured on the stream, or on torch's current one."""
        torch = sys.modules.get("torch")
        if torch is not None and torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing():
            return True
        return self._driver is not None and self._driver.is_capturing(stream)

    def _is_current(self, device: WatchedDevice) -> bool:
        try:
            return self._driver is not None and self._driver.current_device() == device.ordinal
        except DeviceError:
            return False


def _maybe_visible(uuids: tuple[str, ...]) -> tuple[str, ...]:
    """The GPUs that CUDA_VISIBLE_DEVICES can mean. UUIDs there may be shortened. Where it has indices all GPUs stay
    until CUDA says which one is meant: NVML counts in another order."""
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    if given is None:
        return uuids
    wanted = [part.strip() for part in given.split(",") if part.strip()]
    if any(part.startswith("MIG-") for part in wanted):
        return tuple(part for part in wanted if part.startswith("MIG-"))
    if not any(part.startswith("GPU-") for part in wanted):
        return uuids if wanted and wanted[0] != "-1" else ()
    return tuple(uuid for uuid in uuids if any(uuid.startswith(part) for part in wanted if part.startswith("GPU-")))


def torch_bytes(ordinal: int | None = None) -> TorchBytes:
    """(allocated, reserved) of torch's allocator; None if torch is not in use."""
    torch = sys.modules.get("torch")
    cuda = getattr(torch, "cuda", None)  # None while torch is being imported
    if cuda is None or not getattr(cuda, "is_initialized", bool)():
        return None, None
    return int(cuda.memory_allocated(ordinal)), int(cuda.memory_reserved(ordinal))


def torch_peaks(ordinal: int | None) -> TorchBytes:
    """(allocated, reserved): the most that torch's allocator has had since the process began."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return None, None
    return int(torch.cuda.max_memory_allocated(ordinal)), int(torch.cuda.max_memory_reserved(ordinal))
