"""Watch: records the GPU memory of this process until it is stopped. It has marks of kernels and operators (marks.py)
and a thread that samples NVML. Devices: reads the GPUs that this process uses, through NVML, the driver and torch."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, ClassVar

from tritonhook._display import Notebook
from tritonhook.device.cuda_driver import Driver
from tritonhook.device.nvml import Nvml, others_bytes
from tritonhook.errors import DeviceError
from tritonhook.memory.marks import Marks, TorchOperators, TritonHooks
from tritonhook.memory.timeline import Mark, MemorySample, MemoryTimeline, Reading, Snapshot

TorchBytes = tuple[int | None, int | None]
_KEEP_NS = 1_000_000_000  # interval at which a sample is recorded even if it equals the one before


class WatchedDevice:
    """One GPU and its samples.

    sampled: whether NVML reports its memory. active: whether this process has a context on it.
    free_offset: NVML's free bytes minus those of cuMemGetInfo.
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
        """Record a sample if it differs from the last one or a second has passed. torch: (None, None) if not read."""
        last = self.samples[-1] if self.samples else None
        changed = last is None or last.used_bytes != used or t_ns - last.t_ns >= _KEEP_NS
        if changed or (torch[0] is not None and torch != self._last_torch):
            self._last_torch = torch if torch[0] is not None else self._last_torch
            self.samples.append(MemorySample(t_ns, used, "NVML", *torch))


class Devices:
    """All GPUs of a watch, by NVML's UUID. driver, nvml: None if not available.

    note: called with a message if data could not be read.
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
        """The GPUs on which this process has a context; all GPUs if it has no context yet."""
        return [device for device in self.all if device.active] or self.all

    @property
    def sampled(self) -> list[WatchedDevice]:
        """The GPUs in use whose memory NVML reports."""
        sampled = [device for device in self.all if device.sampled]
        return [device for device in sampled if device.active] or sampled

    # --- finding the GPUs

    def find(self) -> None:
        """Add each GPU in NVML's list that the process may use, by CUDA_VISIBLE_DEVICES: there may be no context
        yet."""
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
        """Identify the GPU of the current context by its UUID, and read its properties. Does nothing without a
        context."""
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
        """Set `free_offset` by reading cuMemGetInfo and NVML at the same time. cuMemGetInfo omits memory that the
        driver reserves for itself; NVML includes it in the total, and may include it in the used bytes."""
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
            return f"GPU-{uuid}"  # NVML does not list it, as in some containers and with MIG

    def current(self, capturing: bool) -> WatchedDevice | None:
        """Return the GPU of the current context. capturing: True while a graph is captured; then a new context is not
        identified."""
        if not capturing:
            self.identify_current()
        try:
            return None if self._driver is None else self._by_ordinal.get(self._driver.current_device())
        except DeviceError:
            return None

    # --- reading the memory

    def snapshot(self, device: WatchedDevice) -> Snapshot:
        """Read the memory from all sources. Call it only at the start and the end of a watch, since NVML's process list
        is slow."""
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
        """Record a sample of NVML's used bytes. After an error the GPU is not sampled again.

        now: returns nanoseconds since the watch began. with_torch: also read torch's counters.
        """
        assert self._nvml is not None  # without NVML no device has `sampled`
        try:
            used = self._nvml.memory(device.uuid).used
        except DeviceError as error:
            device.sampled = False
            device.note(f"{device.name}: the timeline ends at {now() / 1e9:.1f} s: {error}")
            return
        device.add_sample(now(), used, torch_bytes(device.ordinal) if with_torch and device.active else (None, None))

    def reading(self, stream: int = 0) -> Reading | None:
        """Read the stack limit and memory of the current context; None without a context or during graph capture."""
        driver = self._driver
        if driver is None or not driver.has_context() or self.is_capturing(stream):
            return None
        try:
            limit, free = driver.stack_limit(), driver.memory()[0]
            device = self._by_ordinal.get(driver.current_device())
        except DeviceError as error:
            self._note(f"the context could not be read: {error}")
            return None
        return Reading(limit, free + (0 if device is None else device.free_offset), *torch_bytes())

    def is_capturing(self, stream: int) -> bool:
        """Return True if a CUDA graph is being captured on the stream or on torch's current stream."""
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
    """List the GPUs that CUDA_VISIBLE_DEVICES may select. Its UUIDs may be abbreviated. If it has indices, return all
    GPUs, as only CUDA knows which GPU has which index: NVML numbers the GPUs in another order."""
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
    """Read (allocated, reserved) bytes of torch's allocator; None if torch does not use CUDA."""
    torch = sys.modules.get("torch")
    cuda = getattr(torch, "cuda", None)  # None while torch is being imported
    if cuda is None or not getattr(cuda, "is_initialized", bool)():
        return None, None
    return int(cuda.memory_allocated(ordinal)), int(cuda.memory_reserved(ordinal))


def torch_peaks(ordinal: int | None) -> TorchBytes:
    """Read the peaks (allocated, reserved) in bytes of torch's allocator since the process began."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return None, None
    return int(torch.cuda.max_memory_allocated(ordinal)), int(torch.cuda.max_memory_reserved(ordinal))


# --- the watch ------------------------------------------------------------------------------------


_TORCH_EVERY = 10  # torch's counters are read with each tenth sample: they take 100 us, NVML's call 12 us


class Watch(Notebook):
    """A watch, made by `memwatch.watch`: a context manager for one use. `timelines` and `notes` have the result.

    hooks: the object with Triton's hooks; None: `triton.knobs.runtime`.
    """

    _shown: ClassVar[tuple[str, ...]] = ("timelines", "notes")

    def __init__(self, period_ms: float, driver: Driver | None, nvml: Nvml | None, hooks: Any) -> None:
        self.notes: list[str] = []
        self.timelines: tuple[MemoryTimeline, ...] = ()
        self._period_ns = round(period_ms * 1e6)
        driver = driver or self._try(Driver, "the driver is not watched")
        self._own_nvml = self._try(Nvml, "no timeline from NVML") if nvml is None else None
        self._devices = Devices(driver, nvml or self._own_nvml, self._note)
        marks = Marks(self._devices, self._now, self._note)
        self._hooks = TritonHooks(hooks, marks), TorchOperators(marks)
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._started_ns = 0

    def __enter__(self) -> Watch:
        self._started_ns = time.monotonic_ns()
        self._devices.find()
        for device in self._devices.all:
            device.start = self._devices.snapshot(device)
        for hooks in self._hooks:
            hooks.attach()
        if self._devices.sampled:
            self._thread = threading.Thread(target=self._sample, name="tritonhook-memwatch", daemon=True)
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """End the watch; later calls do nothing."""
        if self._stop.is_set():
            return
        self._stop.set()
        for hooks in self._hooks:
            hooks.detach()
        if self._thread is not None:
            self._thread.join()
        self._devices.identify_current()
        self.timelines = tuple(self._timeline(device) for device in self._devices.in_use)
        if not self.timelines:
            self._note("no GPU was seen: neither NVML nor a CUDA context showed one")
        if self._own_nvml is not None:
            self._own_nvml.close()

    @property
    def timeline(self) -> MemoryTimeline:
        """The timeline of the only GPU. Raises DeviceError if there are several, or none; then the message has the
        notes."""
        if len(self.timelines) != 1:
            names = ", ".join(f"{t.name} ({t.device})" for t in self.timelines)
            raise DeviceError(
                f"`timeline` needs exactly one GPU; {len(self.timelines)} GPUs were watched: "
                f"{names or '; '.join(self.notes)}"
            )
        return self.timelines[0]

    def _timeline(self, device: WatchedDevice) -> MemoryTimeline:
        end = self._devices.snapshot(device)
        allocated, reserved = torch_peaks(device.ordinal) if device.active else (None, None)
        return MemoryTimeline(
            device=device.uuid,
            name=device.name,
            total_bytes=device.total,
            resident_threads=device.threads,
            period_ns=self._period_ns,
            duration_ns=self._now(),
            start=device.start or end,
            end=end,
            samples=tuple(device.samples),
            marks=tuple(sorted(device.marks, key=lambda mark: mark.t_ns)),
            notes=(*self.notes, *device.notes),
            process=os.getpid(),
            torch_peak_allocated_bytes=allocated,
            torch_peak_reserved_bytes=reserved,
            arch=device.arch,
        )

    def _sample(self) -> None:
        """Sample all GPUs periodically until `stop`; runs in its own thread."""
        count = 0
        while not self._stop.wait(self._period_ns / 1e9):
            for device in self._devices.sampled:
                self._devices.sample(device, self._now, with_torch=count % _TORCH_EVERY == 0)
            count += 1

    def _now(self) -> int:
        return time.monotonic_ns() - self._started_ns

    def _note(self, sentence: str) -> None:
        if sentence not in self.notes:
            self.notes.append(sentence)

    def _try(self, make: Callable[[], Any], consequence: str) -> Any:
        try:
            return make()
        except DeviceError as error:
            self._note(f"{consequence}: {error}")
            return None
