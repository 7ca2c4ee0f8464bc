"""Watching a program's GPU memory: which kernel makes the driver reserve what no allocator shows.

    with tritonhook.memwatch.watch() as w:
        run_my_model()
    print(w.timelines[0].attribution())

The primary signal is the context's stack limit and its free memory, read before and after each Triton kernel is
loaded and first launched (Triton's own hooks). NVML confirms it and gives the timeline: one short call per GPU
every 10 ms, from a thread that lives as long as the watch. A program without a GPU, NVML or torch gets a result
that says what is missing. Nothing is called on the driver while a graph is captured, and CUDA is never
initialised from here: a program may still fork.
"""

from __future__ import annotations

import atexit
import json
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tritonhook._util.files import write_whole
from tritonhook.device.cuda_driver import Driver
from tritonhook.device.nvml import Nvml, others_bytes
from tritonhook.errors import DeviceError, UsageError
from tritonhook.memory.timeline import Mark, MemorySample, MemoryTimeline, Reading, Snapshot

PERIOD_MS = 10.0
_SHORTEST_MS = 1.0
_KEEP_NS = 1_000_000_000  # a sample that changed nothing is kept once a second
_TORCH_EVERY = 10  # torch's counters cost 100 us of Python, NVML's call 12 us


def watch(
    period_ms: float = PERIOD_MS, *, driver: Driver | None = None, nvml: Nvml | None = None, hooks: Any = None
) -> Watch:
    """A watch for a `with` block; `timelines` has the result after it.

    period_ms: of the sampling thread; 1 or more. driver, nvml, hooks: in place of this machine's, for tests.
    Raises UsageError for a period below 1 ms; nothing else: what is missing is noted in the result.
    """
    if not period_ms >= _SHORTEST_MS:
        raise UsageError(f"period_ms={period_ms}: 1 is the shortest; NVML's call takes that for eight GPUs")
    return Watch(period_ms, driver, nvml, hooks)


class Watch:
    """One watched window. Made by `watch`; not reusable."""

    def __init__(self, period_ms: float, driver: Driver | None, nvml: Nvml | None, hooks: Any) -> None:
        self.notes: list[str] = []
        self.timelines: tuple[MemoryTimeline, ...] = ()
        self._period_ns = round(period_ms * 1e6)
        self._driver = driver or self._try(Driver, "the driver is not watched")
        self._nvml = nvml or self._try(Nvml, "no timeline from NVML")
        self._own_nvml = nvml is None
        self._hooks = hooks
        self._undo: list[Callable[[], None]] = []
        self._devices: dict[str, _Device] = {}
        self._by_ordinal: dict[int, _Device] = {}
        self._seen: set[object] = set()
        self._pending: dict[tuple[int, str], tuple[int, Reading | None]] = {}
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._started_ns = 0
        self._lock = threading.Lock()

    # --- the window

    def __enter__(self) -> Watch:
        self._started_ns = time.monotonic_ns()
        self._find_devices()
        for device in self._devices.values():
            device.start = self._snapshot(device)
        self._hook()
        if any(device.sampled for device in self._devices.values()):
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
        for undo in reversed(self._undo):
            undo()
        if self._thread is not None:
            self._thread.join()
        self._map_ordinals()
        watched = [d for d in self._devices.values() if d.active] or list(self._devices.values())
        self.timelines = tuple(self._timeline(device) for device in watched)
        if not watched:
            self._note("no GPU was seen: neither NVML nor a CUDA context showed one")
        if self._own_nvml and self._nvml is not None:
            self._nvml.close()

    @property
    def timeline(self) -> MemoryTimeline:
        """That of the only GPU. Raises DeviceError with what is missing if there is none, or which there are."""
        if len(self.timelines) != 1:
            names = ", ".join(f"{t.name} ({t.device})" for t in self.timelines)
            raise DeviceError(f"{len(self.timelines)} GPUs were watched: {names or '; '.join(self.notes)}")
        return self.timelines[0]

    def _timeline(self, device: _Device) -> MemoryTimeline:
        end = self._snapshot(device)
        peaks = _torch_peaks(device.ordinal) if device.active else (None, None)
        with self._lock:
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
                marks=tuple(device.marks),
                notes=(*self.notes, *device.notes),
                process=os.getpid(),
                torch_peak_allocated_bytes=peaks[0],
                torch_peak_reserved_bytes=peaks[1],
                arch=device.arch,
            )

    def _now(self) -> int:
        return time.monotonic_ns() - self._started_ns

    def _note(self, sentence: str) -> None:
        with self._lock:
            if sentence not in self.notes:
                self.notes.append(sentence)

    def _try(self, make: Callable[[], Any], consequence: str) -> Any:
        try:
            return make()
        except DeviceError as error:
            self.notes.append(f"{consequence}: {error}")
            return None

    # --- devices

    def _find_devices(self) -> None:
        """Before there is a context: every GPU that NVML lists and CUDA_VISIBLE_DEVICES may mean."""
        if self._nvml is not None:
            try:
                for uuid in _maybe_visible(self._nvml.uuids()):
                    self._add(self._nvml.find(uuid))
            except DeviceError as error:
                self._note(f"no timeline from NVML: {error}")
        self._map_ordinals()

    def _add(self, uuid: str) -> _Device:
        if uuid not in self._devices:
            device = self._devices[uuid] = _Device(uuid)
            if self._nvml is not None:
                try:
                    device.name = self._nvml.name(uuid)
                    device.total = self._nvml.memory(uuid).total
                    device.sampled = True
                except DeviceError as error:
                    device.notes.append(f"{device.name}: no timeline from NVML: {error}")
        return self._devices[uuid]

    def _map_ordinals(self) -> None:
        """Once CUDA runs: which device is which GPU, by UUID, and which of them this process uses."""
        if self._driver is None or not self._driver.has_context():
            return
        try:
            ordinal = self._driver.current_device()
            if ordinal in self._by_ordinal:
                return
            uuid = self._driver.uuid(ordinal)
            device = self._add(self._nvml_name(uuid))
            device.active, device.ordinal = True, ordinal
            device.name = self._driver.name(ordinal)
            device.threads = self._driver.multiprocessors(ordinal) * self._driver.threads_per_multiprocessor(ordinal)
            device.arch = self._driver.arch(ordinal)
            self._align(device)
            self._by_ordinal[ordinal] = device
        except DeviceError as error:
            self._note(f"a CUDA device could not be identified: {error}")

    def _align(self, device: _Device) -> None:
        """cuMemGetInfo leaves out what the driver reserves for itself; NVML may count it as used, and does in the
        total. Both are asked once, at the same moment, and cuMemGetInfo is told in NVML's terms from then on."""
        assert self._driver is not None
        free, total = self._driver.memory()
        if self._nvml is None or not device.sampled or device.total is None:
            device.total = total
            return
        device.offset = device.total - self._nvml.memory(device.uuid).used - free

    def _nvml_name(self, uuid: str) -> str:
        if self._nvml is None:
            return f"GPU-{uuid}"
        try:
            return self._nvml.find(uuid)
        except DeviceError:
            return f"GPU-{uuid}"  # NVML does not show it, in some containers and with MIG

    def _current(self, capturing: bool) -> _Device | None:
        if not capturing:
            self._map_ordinals()
        try:
            return None if self._driver is None else self._by_ordinal.get(self._driver.current_device())
        except DeviceError:
            return None

    # --- reading

    def _snapshot(self, device: _Device) -> Snapshot:
        """The process list is asked for here, at both ends, and nowhere else."""
        used: dict[str, int] = {}
        others: int | None = None
        if self._nvml is not None:
            try:
                used["NVML"] = self._nvml.memory(device.uuid).used
            except DeviceError as error:
                self._once(device, f"{device.name}: no device memory from NVML: {error}")
            try:
                listed = self._nvml.processes(device.uuid)
                others = others_bytes(listed, device.active)
                own = listed.get(os.getpid(), None if device.active else 0)
                used |= {"NVML, this process": own} if "NVML" not in used and own is not None else {}
            except DeviceError as error:
                self._once(device, f"{device.name}: other processes are not known: {error}")
        reading = self._reading() if device.active and self._is_current(device) else None
        if reading is not None and reading.free_bytes is not None and device.total is not None:
            used["cuMemGetInfo"] = device.total - reading.free_bytes
        return Snapshot(used, others, reading)

    def _once(self, device: _Device, sentence: str) -> None:
        if sentence not in device.notes:
            device.notes.append(sentence)

    def _is_current(self, device: _Device) -> bool:
        try:
            return self._driver is not None and self._driver.current_device() == device.ordinal
        except DeviceError:
            return False

    def _reading(self, stream: int = 0) -> Reading | None:
        """What the current context says; None during graph capture, or if there is none."""
        driver = self._driver
        if driver is None or not driver.has_context() or self._is_capturing(stream):
            return None
        try:
            limit, free = driver.limit(), driver.memory()[0]
            device = self._by_ordinal.get(driver.current_device())
        except DeviceError as error:
            self._note(f"the context could not be read: {error}")
            return None
        return Reading(limit, free + (0 if device is None else device.offset), *_torch_bytes())

    def _is_capturing(self, stream: int) -> bool:
        torch = sys.modules.get("torch")
        if torch is not None and torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing():
            return True
        return self._driver is not None and self._driver.is_capturing(stream)

    # --- Triton's hooks

    def _hook(self) -> None:
        runtime = self._hooks
        if runtime is None:
            if "triton" not in sys.modules:
                self._note("triton was not imported when the watch began: no kernel is named")
                return
            from triton import knobs

            runtime = knobs.runtime
        for name, hook in (
            ("kernel_load_start_hook", self._load_starts),
            ("kernel_load_end_hook", self._load_ends),
            ("launch_enter_hook", self._launch_starts),
            ("launch_exit_hook", self._launch_ends),
        ):
            self._undo.append(_chain(runtime, name, hook))

    def _load_starts(self, module: Any, function: Any, name: str, *_: Any) -> None:
        self._guarded(lambda: self._begin("load", name, 0))

    def _load_ends(self, module: Any, function: Any, name: str, *_: Any) -> None:
        self._guarded(lambda: self._end("load", name, 0))

    def _launch_starts(self, metadata: Any) -> None:
        data = getattr(metadata, "data", metadata)  # LazyDict.get() would run the user's own functions
        if data["function"] not in self._seen:
            self._guarded(lambda: self._begin("launch", str(data["name"]), data.get("stream") or 0))

    def _launch_ends(self, metadata: Any) -> None:
        data = getattr(metadata, "data", metadata)
        if data["function"] not in self._seen:
            self._seen.add(data["function"])
            self._guarded(lambda: self._end("launch", str(data["name"]), data.get("stream") or 0))

    def _guarded(self, work: Callable[[], None]) -> None:
        """The user's launch goes on, whatever happens here."""
        try:
            work()
        except Exception as error:
            self._note(f"a kernel could not be watched: {type(error).__name__}: {error}")

    def _begin(self, kind: str, kernel: str, stream: int) -> None:
        self._current(self._is_capturing(stream))
        self._pending[threading.get_ident(), kind] = (self._now(), self._reading(stream))

    def _end(self, kind: str, kernel: str, stream: int) -> None:
        began, before = self._pending.pop((threading.get_ident(), kind), (self._now(), None))
        after = self._reading(stream)
        note, capturing = None, self._is_capturing(stream)
        if before is None or after is None:
            note = "during graph capture, when the driver is not asked" if capturing else "the context was not readable"
        if (device := self._current(capturing)) is not None:
            with self._lock:
                device.marks.append(Mark(began, kind, kernel, before, after, note))

    # --- the sampling thread

    def _sample(self) -> None:
        count = 0
        while not self._stop.wait(self._period_ns / 1e9):
            devices = [d for d in self._devices.values() if d.sampled]
            for device in [d for d in devices if d.active] or devices:
                self._sample_one(device, with_torch=count % _TORCH_EVERY == 0)
            count += 1

    def _sample_one(self, device: _Device, with_torch: bool) -> None:
        assert self._nvml is not None
        try:
            used = self._nvml.memory(device.uuid).used
        except DeviceError as error:
            device.sampled = False
            self._once(device, f"{device.name}: the timeline ends at {self._now() / 1e9:.1f} s: {error}")
            return
        t_ns, torch = self._now(), _torch_bytes(device.ordinal) if with_torch and device.active else (None, None)
        last = device.samples[-1] if device.samples else None
        changed = last is None or last.used_bytes != used or t_ns - last.t_ns >= _KEEP_NS
        if changed or (torch[0] is not None and torch != device.last_torch):
            device.last_torch = torch if torch[0] is not None else device.last_torch
            with self._lock:
                device.samples.append(MemorySample(t_ns, used, "NVML", *torch))


class _Device:
    """What is gathered of one GPU. sampled: NVML has figures for it. active: this process has a context on it."""

    def __init__(self, uuid: str) -> None:
        self.uuid, self.name = uuid, uuid
        self.ordinal: int | None = None
        self.total: int | None = None
        self.offset = 0  # bytes to add to cuMemGetInfo's free memory
        self.threads: int | None = None
        self.arch: int | None = None
        self.sampled = self.active = False
        self.start: Snapshot | None = None
        self.samples: list[MemorySample] = []
        self.marks: list[Mark] = []
        self.notes: list[str] = []
        self.last_torch: tuple[int | None, int | None] = (None, None)


def _maybe_visible(uuids: tuple[str, ...]) -> tuple[str, ...]:
    """The GPUs that CUDA_VISIBLE_DEVICES can mean. UUIDs there may be shortened; indices say nothing of NVML's
    order, so that with them all stay until CUDA itself says which."""
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    if given is None:
        return uuids
    wanted = [part.strip() for part in given.split(",") if part.strip()]
    if any(part.startswith("MIG-") for part in wanted):
        return tuple(part for part in wanted if part.startswith("MIG-"))
    if not any(part.startswith("GPU-") for part in wanted):
        return uuids if wanted and wanted[0] != "-1" else ()
    return tuple(uuid for uuid in uuids if any(uuid.startswith(part) for part in wanted if part.startswith("GPU-")))


def _torch_bytes(ordinal: int | None = None) -> tuple[int | None, int | None]:
    """(allocated, reserved) of torch's allocator; None if torch is not in use."""
    torch = sys.modules.get("torch")
    cuda = getattr(torch, "cuda", None)  # None while torch is being imported
    if cuda is None or not getattr(cuda, "is_initialized", bool)():
        return None, None
    return int(cuda.memory_allocated(ordinal)), int(cuda.memory_reserved(ordinal))


def _torch_peaks(ordinal: int | None) -> tuple[int | None, int | None]:
    """torch's own maxima since the process began."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return None, None
    return int(torch.cuda.max_memory_allocated(ordinal)), int(torch.cuda.max_memory_reserved(ordinal))


def _chain(runtime: Any, name: str, hook: Callable[..., None]) -> Callable[[], None]:
    """Add a hook beside what is there; returns what takes it out again."""
    there = getattr(runtime, name)
    if hasattr(there, "add"):
        there.add(hook)
        return lambda: there.remove(hook)

    def both(*arguments: Any, **named: Any) -> None:
        if there is not None:
            there(*arguments, **named)
        hook(*arguments, **named)

    setattr(runtime, name, both)

    def undo() -> None:
        if getattr(runtime, name) is both:
            setattr(runtime, name, there)

    return undo


# --- in a process of `tritonhook mem watch` ------------------------------------------------------


def read_run(folder: Path) -> tuple[list[MemoryTimeline], list[str]]:
    """The timelines that processes left in a folder, in order of their end, and their notes."""
    timelines, notes = [], []
    for path in sorted(folder.glob("*.json"), key=lambda p: int(p.stem.rpartition("-")[2])):
        try:
            document = json.loads(path.read_text())
            timelines += [MemoryTimeline.from_json(item) for item in document["timelines"]]
            if not document["timelines"]:
                notes += [f"process {path.stem.partition('-')[0]}: {note}" for note in document["notes"]]
        except (OSError, ValueError, KeyError, TypeError) as error:
            notes.append(f"{path.name}: cannot be read ({type(error).__name__})")
    return timelines, notes


def begin_run(folder: str, period_ms: float) -> None:
    """Watch this process from now to its end; the timelines go into a file of the folder."""
    current = watch(period_ms)
    current.__enter__()
    owner = os.getpid()

    def finish() -> None:
        if os.getpid() != owner:  # a forked child inherits this handler, but not the thread
            return
        current.stop()
        document = {
            "format": 1,
            "argv": sys.argv,
            "notes": current.notes,
            "timelines": [timeline.to_json() for timeline in current.timelines],
        }
        write_whole(Path(folder, f"{owner}-{time.time_ns()}.json"), json.dumps(document))

    atexit.register(finish)
