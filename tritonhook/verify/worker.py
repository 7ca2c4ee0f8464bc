"""The child process that uses the GPU: `python -m tritonhook.verify.worker`, started by executor.py.

It needs only the CUDA driver, no torch. executor.py documents the requests and answers.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import suppress

from tritonhook.device.child import After, At, Begin, Begun, ContextLost, Message, own_output, serve
from tritonhook.device.cuda_driver import CudaError, Driver
from tritonhook.errors import DeviceError, UsageError
from tritonhook.timing.replay import LoadedKernel
from tritonhook.verify.contents import differences
from tritonhook.verify.executor import BuildResult, Done, RunBuilds
from tritonhook.verify.memory import GuardedMemory
from tritonhook.verify.model import Build, Difference, Failure, FailureKind, Outside, Ran


class Worker:
    """Handles the requests of executor.py."""

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
            raise UsageError(
                f"the GPU has no memory for two copies of the buffers, of {launch.bytes:,} bytes each: {error}"
            ) from None
        started = _OneInput(request, driver, memory)
        try:
            memory.set_input(request.input, request.keep)
            for number, build in enumerate(request.builds):
                yield from started.runs(number, build)
        finally:
            with suppress(CudaError):  # after a crash of a kernel, the driver refuses to free memory
                started.unload()
                memory.free()
        yield Done()

    def _made(self) -> tuple[Driver, int]:
        """Load the driver and create a CUDA context. Returns the driver and the GPU's number."""
        driver = self._given or Driver()
        driver.init()
        if not driver.device_count():
            raise DeviceError("CUDA_VISIBLE_DEVICES leaves no GPU")
        device = driver.device(0)
        driver.create_context(device)
        return driver, device


class _OneInput:
    """Runs builds on one input. reference: contents of the buffers after the first build."""

    def __init__(self, asked: RunBuilds, driver: Driver, memory: GuardedMemory) -> None:
        self.asked, self.driver, self.memory = asked, driver, memory
        self.reference: list[bytes] | None = None
        self._loaded: list[LoadedKernel] = []

    def runs(self, number: int, build: Build) -> Iterator[Message]:
        """Run one build as often as the request says. number: its position in the request. Yields the messages to the
        parent."""
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
            for differing in differences(self.memory.launch, first, contents):
                if differing.buffer not in unsteady or differing.differing > unsteady[differing.buffer].differing:
                    unsteady[differing.buffer] = differing
        apart: tuple[Difference, ...] = ()
        if self.reference is None:
            self.reference = first
        else:
            apart = tuple(differences(self.memory.launch, self.reference, first))
        yield BuildResult(
            Ran(self.asked.input, build.label, apart, tuple(unsteady.values()), outside, None, us, stored)
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
