"""The child process that has the GPU: `python -m tritonhook.verify.worker`, started by executor.py.

It needs the driver only, also for the buffers of a launch: a guard zone on both sides of each shows writes beside it.
executor.py says what it is asked and what it answers.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from tritonhook.capture.launches.record import Launch
from tritonhook.device.child import After, At, Begin, Begun, ContextLost, Message, own_output, serve
from tritonhook.device.cuda_driver import CudaError, Driver
from tritonhook.errors import DeviceError, UsageError
from tritonhook.timing.replay import LoadedKernel
from tritonhook.verify.contents import before, difference
from tritonhook.verify.executor import BuildResult, Done, RunBuilds
from tritonhook.verify.model import Build, Difference, Failure, FailureKind, Outside, Ran

GUARD_BYTES = 1 << 14  # on each side of a buffer; a kernel that writes farther away is not seen
_PATTERN = 0xA5
_ALIGNED = 512  # as cuMemAlloc and torch align


class GuardedMemory:
    """The buffers of a launch. folder: where the files of their recorded contents are."""

    def __init__(self, driver: Driver, launch: Launch, folder: Path | None) -> None:
        self.launch, self._driver, self._folder = launch, driver, folder
        self._allocated: list[int] = []
        self._scratch: list[tuple[int, int]] = []
        self._before: list[bytes] = []
        self._rooms = [-(-max(buffer.size, 1) // _ALIGNED) * _ALIGNED for buffer in launch.buffers]
        try:
            self._begins = [self._allocate(room + 2 * GUARD_BYTES) for room in self._rooms]
            self._pristine = [self._allocate(max(buffer.size, 1)) for buffer in launch.buffers]
        except Exception:
            self.free()
            raise
        for number in range(len(self._begins)):
            self._set_guard(number)

    @property
    def addresses(self) -> list[int]:
        return [begin + GUARD_BYTES for begin in self._begins]

    def scratch(self, size: int) -> int:
        self._scratch.append((self._allocate(size), size))
        return self._scratch[-1][0]

    def stream(self) -> None:
        """The default one."""

    def free(self) -> None:
        while self._allocated:
            self._driver.free(self._allocated.pop())

    def set_input(self, name: str, keep: tuple[int, ...]) -> None:
        """Choose what the buffers hold before a launch. keep: buffers that hold what was recorded under every input."""
        every = range(len(self.launch.buffers))
        self._before = [before(self.launch, self._folder, number, name, keep) for number in every]
        for number, contents in enumerate(self._before):
            if contents:
                self._driver.write(self._pristine[number], contents)

    def restore(self) -> None:
        """Give all buffers their contents before the launch."""
        for number, buffer in enumerate(self.launch.buffers):
            if buffer.size:
                self._driver.copy(self.addresses[number], self._pristine[number], buffer.size)
        for address, size in self._scratch:
            self._driver.fill(address, 0, size)

    def contents(self) -> list[bytes]:
        return [
            self._driver.read(address, buffer.size)
            for address, buffer in zip(self.addresses, self.launch.buffers, strict=True)
        ]

    def changed(self, contents: list[bytes]) -> int:
        """How many buffers hold something else than before the launch."""
        return sum(a != b for a, b in zip(contents, self._before, strict=True))

    def outside(self) -> tuple[Outside, ...]:
        """The writes outside of each buffer since the last call; their traces are removed."""
        written = []
        for number, buffer in enumerate(self.launch.buffers):
            begin, behind = self._begins[number], self._behind(number)
            ahead = self._driver.read(begin, GUARD_BYTES)
            after = self._driver.read(begin + GUARD_BYTES + buffer.size, behind)
            offset = _changed(ahead)
            if offset is not None:
                written.append(Outside(number, offset - GUARD_BYTES, buffer.size))
            elif (offset := _changed(after)) is not None:
                written.append(Outside(number, buffer.size + offset, buffer.size))
            else:
                continue
            self._set_guard(number)
        return tuple(written)

    def _behind(self, number: int) -> int:
        """The bytes between a buffer's end and the end of the guard zone behind it."""
        return self._rooms[number] - self.launch.buffers[number].size + GUARD_BYTES

    def _set_guard(self, number: int) -> None:
        size = self.launch.buffers[number].size
        self._driver.fill(self._begins[number], _PATTERN, GUARD_BYTES)
        self._driver.fill(self._begins[number] + GUARD_BYTES + size, _PATTERN, self._behind(number))

    def _allocate(self, size: int) -> int:
        self._allocated.append(self._driver.allocate(size))
        return self._allocated[-1]


def _changed(guard: bytes) -> int | None:
    """The first byte of a guard zone that is not as it was; None if all are."""
    whole = bytes([_PATTERN]) * len(guard)
    return None if guard == whole else next(i for i, (a, b) in enumerate(zip(guard, whole, strict=True)) if a != b)


# --- carrying out orders --------------------------------------------------------------------------


class Worker:
    """Carries out requests."""

    def __init__(self, driver: Driver | None = None) -> None:
        self._given = driver
        self._context: tuple[Driver, int] | None = None

    def carry_out(self, request: Begin | RunBuilds) -> Iterator[Message]:
        driver, device = self._context = self._context or self._made()
        if isinstance(request, Begin):
            yield Begun(driver.name(device))
            return
        launch = request.launch.launch
        try:
            memory = GuardedMemory(driver, launch, request.folder)
        except CudaError as error:
            raise UsageError(f"no memory for {launch.bytes:,} bytes of buffers, twice: {error}") from None
        started = _OneInput(request, driver, memory)
        try:
            memory.set_input(request.input, request.keep)
            for number, build in enumerate(request.builds):
                yield from started.runs(number, build)
        finally:
            with suppress(CudaError):  # nothing can be freed after a launch that lost the GPU
                started.unload()
                memory.free()
        yield Done()

    def _made(self) -> tuple[Driver, int]:
        """The driver with a context of its own, and the GPU."""
        driver = self._given or Driver()
        driver.init()
        if not driver.device_count():
            raise DeviceError("CUDA_VISIBLE_DEVICES leaves no GPU")
        device = driver.device(0)
        driver.create_context(device)
        return driver, device


class _OneInput:
    """Builds that run on one input. reference: the contents that the first one stored."""

    def __init__(self, asked: RunBuilds, driver: Driver, memory: GuardedMemory) -> None:
        self.asked, self.driver, self.memory = asked, driver, memory
        self.reference: list[bytes] | None = None
        self._loaded: list[LoadedKernel] = []

    def runs(self, number: int, build: Build) -> Iterator[Message]:
        """Run one build."""
        try:
            kernel = self._kernel(build)
        except CudaError as error:
            yield self._refused(build, error)
            return
        first: list[bytes] = []
        unsteady: dict[int, Difference] = {}
        outside: tuple[Outside, ...] = ()
        us: float | None = None
        stored = 0
        for turn in range(self.asked.runs):
            self.memory.restore()
            self.driver.synchronize()
            yield At(build.label)
            started = time.perf_counter()
            try:
                kernel.launch()
            except CudaError as error:
                yield After()
                yield self._refused(build, error)
                return
            try:
                self.driver.synchronize()
            except CudaError as error:
                raise ContextLost(str(error)) from None
            us = us or 1e6 * (time.perf_counter() - started)
            yield After()
            wrote = self.memory.outside()
            outside = outside or wrote
            contents = self.memory.contents()
            if not turn:
                first, stored = contents, self.memory.changed(contents)
                self._save(number, contents)
                continue
            for differing in self._differences(first, contents):
                if differing.buffer not in unsteady or differing.differing > unsteady[differing.buffer].differing:
                    unsteady[differing.buffer] = differing
        differences: tuple[Difference, ...] = ()
        if self.reference is None:
            self.reference = first
        else:
            differences = tuple(self._differences(self.reference, first))
        yield BuildResult(
            Ran(self.asked.input, build.label, differences, tuple(unsteady.values()), outside, None, us, stored)
        )

    def _kernel(self, build: Build) -> LoadedKernel:
        try:
            image = build.path.read_bytes()
        except OSError as error:
            raise UsageError(f"{build.path}: {error.strerror}") from None
        self._loaded.append(LoadedKernel(image, build.entry, self.memory, self.driver))
        return self._loaded[-1]

    def _refused(self, build: Build, error: CudaError) -> BuildResult:
        return BuildResult(Ran(self.asked.input, build.label, failure=Failure(FailureKind.REFUSED, str(error))))

    def _differences(self, reference: list[bytes], other: list[bytes]) -> Iterator[Difference]:
        for number, (a, b) in enumerate(zip(reference, other, strict=True)):
            differing = difference(number, self.memory.launch.buffers[number].dtype, a, b)
            if differing is not None:
                yield differing

    def _save(self, number: int, contents: list[bytes]) -> None:
        if self.asked.save is not None:
            for buffer, data in enumerate(contents):
                (self.asked.save / f"{self.asked.input}-{number}-{buffer}.bin").write_bytes(data)

    def unload(self) -> None:
        for kernel in self._loaded:
            kernel.unload()


def main() -> None:
    serve(sys.stdin, own_output(), Worker().carry_out, Begin, RunBuilds)


if __name__ == "__main__":
    main()
