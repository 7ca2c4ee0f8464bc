"""The child process that has the GPU: `python -m tritonhook.verify.worker`, started by executor.py.

It needs the driver only. protocol.py says what it reads and writes; what else is printed goes to standard error.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, TextIO

from tritonhook.device.cuda_driver import CudaError, Driver
from tritonhook.errors import DeviceError, TritonHookError, UsageError
from tritonhook.timing.replay import LoadedKernel
from tritonhook.verify.compare import difference
from tritonhook.verify.memory import GuardedMemory
from tritonhook.verify.model import Build, Difference, Failure, FailureKind, Order, Outside, Ran
from tritonhook.verify.protocol import order_from_json


class ContextLost(Exception):
    """A launch ended with an error after which the process can use the GPU no more."""


class Worker:
    """Carries out orders. answers: where the lines go."""

    def __init__(self, answers: TextIO, driver: Driver | None = None) -> None:
        self._answers = answers
        self._given = driver
        self._driver: Driver | None = None

    def say(self, document: dict[str, Any]) -> None:
        self._answers.write(json.dumps(document) + "\n")
        self._answers.flush()

    def carry_out(self, order: Order) -> None:
        driver = self.ready()
        try:
            memory = GuardedMemory(driver, order.launch, order.folder)
        except CudaError as error:
            raise UsageError(f"no memory for {order.launch.bytes:,} bytes of buffers, twice: {error}") from None
        try:
            self._run(_OneOrder(order, driver, memory))
        finally:
            with suppress(CudaError):  # nothing can be freed after a launch that lost the GPU
                memory.free()
        self.say({"done": True})

    def _run(self, one: _OneOrder) -> None:
        for name in one.order.inputs:
            one.memory.set_input(name, one.order.keep)
            one.reference = None
            for number, build in enumerate(one.order.builds):
                at = [name, build.label]
                ran = None
                for step in one.runs(name, number, build):
                    if isinstance(step, Ran):
                        ran = step
                    else:
                        self.say({step: at})
                assert ran is not None
                self.say({"ran": asdict(ran)})
        one.unload()

    def ready(self) -> Driver:
        """The driver, with a context of its own."""
        if self._driver is None:
            driver = self._given or Driver()
            driver.init()
            if not driver.device_count():
                raise DeviceError("CUDA_VISIBLE_DEVICES leaves no GPU")
            device = driver.device(0)
            driver.create_context(device)
            self._driver = driver
            self.say({"device": driver.name(device)})
        return self._driver


class _OneOrder:
    """An order while it is carried out. reference: the contents that the first build stored for the present input."""

    def __init__(self, order: Order, driver: Driver, memory: GuardedMemory) -> None:
        self.order, self.driver, self.memory = order, driver, memory
        self.reference: list[bytes] | None = None
        self._loaded: dict[str, LoadedKernel] = {}

    def runs(self, name: str, number: int, build: Build) -> Iterator[str | Ran]:
        """Run one build on the present input. Yields "at" before each launch, "after" it, and the results last."""
        try:
            kernel = self._kernel(build)
        except CudaError as error:
            yield Ran(name, build.label, failure=Failure(FailureKind.REFUSED, str(error)))
            return
        first: list[bytes] = []
        unsteady: dict[int, Difference] = {}
        outside: tuple[Outside, ...] = ()
        us: float | None = None
        stored = 0
        for turn in range(self.order.runs):
            self.memory.restore()
            self.driver.synchronize()
            yield "at"
            started = time.perf_counter()
            try:
                kernel.launch()
            except CudaError as error:
                yield "after"
                yield Ran(name, build.label, failure=Failure(FailureKind.REFUSED, str(error)))
                return
            try:
                self.driver.synchronize()
            except CudaError as error:
                raise ContextLost(str(error)) from None
            us = us or 1e6 * (time.perf_counter() - started)
            yield "after"
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
        yield Ran(name, build.label, differences, tuple(unsteady.values()), outside, None, us, stored)

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


def serve(orders: TextIO, answers: TextIO, driver: Driver | None = None) -> None:
    """Carry out each line of `orders` until they end, or the GPU is lost."""
    worker = Worker(answers, driver)
    with suppress(TritonHookError):  # before the first order, which tells what is wrong
        worker.ready()
    try:
        for line in orders:
            worker.carry_out(order_from_json(line))
    except ContextLost as error:
        worker.say({"lost": str(error)})
    except TritonHookError as error:
        worker.say({"error": str(error), "kind": type(error).__name__})


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a kernel prints must not mix with the answers
    serve(sys.stdin, answers)


if __name__ == "__main__":
    main()
