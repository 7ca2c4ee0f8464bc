"""The child process that has the GPU: `python -m tritonhook.verify.worker`, started by executor.py.

It needs the driver only. messages.py says what it is asked and what it answers.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from tritonhook.device.child import After, At, Begin, Begun, ContextLost, Message, own_output, serve
from tritonhook.device.cuda_driver import CudaError, Driver
from tritonhook.errors import DeviceError, UsageError
from tritonhook.timing.replay import LoadedKernel
from tritonhook.verify.compare import difference
from tritonhook.verify.memory import GuardedMemory
from tritonhook.verify.messages import Done, Result, Run
from tritonhook.verify.model import Build, Difference, Failure, FailureKind, Order, Outside, Ran


class Worker:
    """Carries out requests."""

    def __init__(self, driver: Driver | None = None) -> None:
        self._given = driver
        self._context: tuple[Driver, int] | None = None

    def carry_out(self, request: Begin | Run) -> Iterator[Message]:
        driver, device = self._context = self._context or self._made()
        if isinstance(request, Begin):
            yield Begun(driver.name(device))
            return
        order = request.order
        try:
            memory = GuardedMemory(driver, order.launch, order.folder)
        except CudaError as error:
            raise UsageError(f"no memory for {order.launch.bytes:,} bytes of buffers, twice: {error}") from None
        try:
            one = _OneOrder(order, driver, memory)
            for name in order.inputs:
                memory.set_input(name, order.keep)
                one.reference = None
                for number, build in enumerate(order.builds):
                    yield from one.runs(name, number, build)
            one.unload()
        finally:
            with suppress(CudaError):  # nothing can be freed after a launch that lost the GPU
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


class _OneOrder:
    """An order while it is carried out. reference: the contents that the first build stored for the present input."""

    def __init__(self, order: Order, driver: Driver, memory: GuardedMemory) -> None:
        self.order, self.driver, self.memory = order, driver, memory
        self.reference: list[bytes] | None = None
        self._loaded: dict[str, LoadedKernel] = {}

    def runs(self, name: str, number: int, build: Build) -> Iterator[Message]:
        """Run one build on the present input."""
        try:
            kernel = self._kernel(build)
        except CudaError as error:
            yield _refused(name, build, error)
            return
        first: list[bytes] = []
        unsteady: dict[int, Difference] = {}
        outside: tuple[Outside, ...] = ()
        us: float | None = None
        stored = 0
        for turn in range(self.order.runs):
            self.memory.restore()
            self.driver.synchronize()
            yield At(build.label)
            started = time.perf_counter()
            try:
                kernel.launch()
            except CudaError as error:
                yield After()
                yield _refused(name, build, error)
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
                self._save(name, number, contents)
                continue
            for found in self._differences(first, contents):
                if found.buffer not in unsteady or found.differing > unsteady[found.buffer].differing:
                    unsteady[found.buffer] = found
        differences: tuple[Difference, ...] = ()
        if self.reference is None:
            self.reference = first
        else:
            differences = tuple(self._differences(self.reference, first))
        yield Result(Ran(name, build.label, differences, tuple(unsteady.values()), outside, None, us, stored))

    def _kernel(self, build: Build) -> LoadedKernel:
        if build.label not in self._loaded:
            try:
                image = build.path.read_bytes()
            except OSError as error:
                raise UsageError(f"{build.path}: {error.strerror}") from None
            self._loaded[build.label] = LoadedKernel(image, build.entry, self.memory, self.driver)
        return self._loaded[build.label]

    def _differences(self, reference: list[bytes], other: list[bytes]) -> Iterator[Difference]:
        for number, (a, b) in enumerate(zip(reference, other, strict=True)):
            found = difference(number, self.order.launch.buffers[number].dtype, a, b)
            if found is not None:
                yield found

    def _save(self, name: str, number: int, contents: list[bytes]) -> None:
        if self.order.save is not None:
            for buffer, data in enumerate(contents):
                Path(self.order.save, f"{name}-{number}-{buffer}.bin").write_bytes(data)

    def unload(self) -> None:
        for kernel in self._loaded.values():
            kernel.unload()


def _refused(name: str, build: Build, error: CudaError) -> Result:
    return Result(Ran(name, build.label, failure=Failure(FailureKind.REFUSED, str(error))))


def main() -> None:
    serve(sys.stdin, own_output(), Worker().carry_out, Begin, Run)


if __name__ == "__main__":
    main()
