"""One watched window: Triton's hooks mark what kernels take, a thread samples NVML; both end with the window."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, ClassVar, Literal

from tritonhook._display import Notebook
from tritonhook.capture.patching import Patch
from tritonhook.device.cuda_driver import Driver
from tritonhook.device.nvml import Nvml
from tritonhook.errors import DeviceError
from tritonhook.memory.devices import Devices, WatchedDevice, torch_peaks
from tritonhook.memory.timeline import Mark, MemoryTimeline, Reading

_TORCH_EVERY = 10  # samples: torch's counters cost 100 us of Python, NVML's call 12 us


class Watch(Notebook):
    """A context manager, made by `memwatch.watch`. Not reusable; `timelines` and `notes` have the result.

    hooks: what has Triton's hooks; None: `triton.knobs.runtime`.
    """

    _shown: ClassVar[tuple[str, ...]] = ("timelines", "notes")

    def __init__(self, period_ms: float, driver: Driver | None, nvml: Nvml | None, hooks: Any) -> None:
        self.notes: list[str] = []
        self.timelines: tuple[MemoryTimeline, ...] = ()
        self._period_ns = round(period_ms * 1e6)
        driver = driver or self._try(Driver, "the driver is not watched")
        self._own_nvml = self._try(Nvml, "no timeline from NVML") if nvml is None else None
        self._devices = Devices(driver, nvml or self._own_nvml, self._note)
        self._hooks = _LoadAndLaunchHooks(hooks, self._devices, self._now, self._note)
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._started_ns = 0

    def __enter__(self) -> Watch:
        self._started_ns = time.monotonic_ns()
        self._devices.find()
        for device in self._devices.all:
            device.start = self._devices.snapshot(device)
        self._hooks.attach()
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
        self._hooks.detach()
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
        """The timeline of the only GPU. Raises DeviceError if there is none, with what is missing, or if there are
        several."""
        if len(self.timelines) != 1:
            names = ", ".join(f"{t.name} ({t.device})" for t in self.timelines)
            raise DeviceError(f"{len(self.timelines)} GPUs were watched: {names or '; '.join(self.notes)}")
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
            marks=tuple(device.marks),
            notes=(*self.notes, *device.notes),
            process=os.getpid(),
            torch_peak_allocated_bytes=allocated,
            torch_peak_reserved_bytes=reserved,
            arch=device.arch,
        )

    def _sample(self) -> None:
        """The sampling thread."""
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


class _LoadAndLaunchHooks:
    """Hooks around each kernel's load and its first launch, each of which becomes a Mark on the current GPU."""

    def __init__(self, runtime: Any, devices: Devices, now: Callable[[], int], note: Callable[[str], None]) -> None:
        self._runtime = runtime
        self._devices = devices
        self._now = now
        self._note = note
        self._undo: list[Callable[[], None]] = []
        self._launched: set[object] = set()
        self._pending: dict[tuple[int, str], tuple[int, Reading | None]] = {}  # by thread and kind

    def attach(self) -> None:
        """Add the hooks beside those of others. Notes where triton is not imported: nothing is imported for it."""
        runtime = self._runtime
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

    def detach(self) -> None:
        for undo in reversed(self._undo):
            undo()
        self._undo.clear()

    def _load_starts(self, module: Any, function: Any, name: str, *_: Any) -> None:
        self._guarded(lambda: self._begin("load", 0))

    def _load_ends(self, module: Any, function: Any, name: str, *_: Any) -> None:
        self._guarded(lambda: self._end("load", name, 0))

    def _launch_starts(self, metadata: Any) -> None:
        data = getattr(metadata, "data", metadata)  # LazyDict.get() would run the user's own functions
        if data["function"] not in self._launched:
            self._guarded(lambda: self._begin("launch", data.get("stream") or 0))

    def _launch_ends(self, metadata: Any) -> None:
        data = getattr(metadata, "data", metadata)
        if data["function"] not in self._launched:
            self._launched.add(data["function"])
            self._guarded(lambda: self._end("launch", str(data["name"]), data.get("stream") or 0))

    def _guarded(self, work: Callable[[], None]) -> None:
        """An error here must not reach the user's launch."""
        try:
            work()
        except Exception as error:
            self._note(f"a kernel could not be watched: {type(error).__name__}: {error}")

    def _begin(self, kind: str, stream: int) -> None:
        self._devices.current(self._devices.is_capturing(stream))
        self._pending[threading.get_ident(), kind] = (self._now(), self._devices.reading(stream))

    def _end(self, kind: Literal["load", "launch"], kernel: str, stream: int) -> None:
        began, before = self._pending.pop((threading.get_ident(), kind), (self._now(), None))
        after = self._devices.reading(stream)
        note, capturing = None, self._devices.is_capturing(stream)
        if before is None or after is None:
            note = "during graph capture, when the driver is not asked" if capturing else "the context was not readable"
        if (device := self._devices.current(capturing)) is not None:
            device.marks.append(Mark(began, kind, kernel, before, after, note))


def _chain(runtime: Any, name: str, hook: Callable[..., None]) -> Callable[[], None]:
    """Add a hook beside what is there; returns what removes it again."""
    there = getattr(runtime, name)
    if hasattr(there, "add"):
        there.add(hook)
        return lambda: there.remove(hook)

    def calling_both(before: Callable[..., None] | None) -> Callable[..., None]:
        def both(*arguments: Any, **named: Any) -> None:
            if before is not None:
                before(*arguments, **named)
            hook(*arguments, **named)

        return both

    return Patch(runtime, name, calling_both).undo
