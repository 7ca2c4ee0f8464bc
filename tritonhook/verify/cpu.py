"""Carry out orders on the CPU: each build is executed by the emulator, and so is the PTX, which is the reference.

Only a few CTAs of a launch are executed: those at its edges, and some between them.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from tritonhook.capture.launches.contents import before
from tritonhook.capture.launches.record import Launch, Scratch
from tritonhook.cubin.image import Cubin
from tritonhook.errors import NotUnderstood, TritonHookError, UsageError
from tritonhook.ptx.module import Ptx
from tritonhook.ptxas.toolchain import reading_toolchain
from tritonhook.verify.contents import difference
from tritonhook.verify.differential import Built
from tritonhook.verify.model import Build, Difference, Failure, FailureKind, Order, Ran

if TYPE_CHECKING:
    from tritonhook.cubin.sass import Sass
    from tritonhook.emulate.counters.metrics import Counted
    from tritonhook.emulate.ptx.kernel import Kernel
    from tritonhook.emulate.run import Ran as Emulated
    from tritonhook.emulate.run import Run
    from tritonhook.emulate.sanitizer.run import Sanitized
    from tritonhook.emulate.sass.kernel import SassKernel
    from tritonhook.verify.differential import Case

CTAS = 2
LIMIT_S = 120.0
DEVICE = "CPU (emulated)"
PTX_LABEL = "PTX"
_SUFFIX = ".ptx"
_READ = 64  # builds whose kernels stay read: each input executes all builds of an order


def with_ptx(built: Built, ptx: Ptx, entry: str, folder: Path) -> Built:
    """Put the PTX before the builds, as their reference."""
    path = folder / f"reference{_SUFFIX}"
    path.write_text(ptx.text)
    return replace(built, builds=(Build(PTX_LABEL, path, entry), *built.builds))


class CpuExecutor:
    """Replaces an Executor. ctas: number of a launch's CTAs that are executed."""

    def __init__(self, ctas: int = CTAS, limit_s: float = LIMIT_S) -> None:
        self.ctas, self.limit_s = ctas, limit_s
        self.device: str | None = DEVICE

    def __enter__(self) -> CpuExecutor:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the executor; there is nothing to release."""

    def run_until_lost(self, order: Order) -> tuple[Ran, ...]:
        """Run as `run` does, but stop after the first build that fails."""
        return self.run(order, lambda ran: ran.failure is not None)

    def run(self, order: Order, stop: Callable[[Ran], bool] = lambda ran: False) -> tuple[Ran, ...]:
        """Carry out an order, as Executor.run does."""
        results = []
        for name in order.inputs:
            for ran in _on_input(order, name, self.ctas, self.limit_s):
                results.append(ran)
                if stop(ran):
                    return tuple(results)
        return tuple(results)


class _Before(Sequence[bytes]):
    """Contents of a launch's buffers before it, each made on first use. Raises UsageError if they exceed the emulator's
    limit."""

    def __init__(self, source: Case | Order, name: str) -> None:
        from tritonhook.emulate.run import MOST_BUFFER_BYTES

        self.source, self.name, launch = source, name, source.launch
        size = launch.bytes + sum(one.size for one in launch.parameters if isinstance(one, Scratch))
        if size > MOST_BUFFER_BYTES:
            raise UsageError(f"{size:,} bytes in the buffers of the launch: at most {MOST_BUFFER_BYTES:,} are emulated")

    def __len__(self) -> int:
        return len(self.source.launch.buffers)

    def __getitem__(self, number: Any) -> Any:
        if number >= len(self):
            raise IndexError(number)
        return before(self.source.launch, self.source.folder, number, self.name, self.source.keep)


def sanitized(
    case: Case, ptx: Ptx, name: str, ctas: int | None, limit_s: float = LIMIT_S, seed: int = 0,
    began: float | None = None,
) -> Sanitized:  # fmt: skip
    """Execute the PTX of a launch on one input, and look for faults of the kernel itself. ctas: None: all of them.
    began: when its time began; None: now.

    Raises NotUnderstood, UsageError."""
    from tritonhook.emulate.sanitizer.run import sanitize

    return sanitize(ptx, _run(case, ctas, limit_s, seed, began), _Before(case, name), case.kernel)


def counted(
    case: Case, cubin: Cubin, name: str, ctas: int | None, limit_s: float = LIMIT_S, seed: int = 0,
    began: float | None = None,
) -> tuple[Counted, Emulated]:  # fmt: skip
    """Execute the machine code of a launch on one input, and count. The arguments are those of `sanitized`.

    Raises NotUnderstood, UsageError, Fault, Hang, Unfinished."""
    from tritonhook.emulate.counters.run import count

    sass = _disassembled(cubin, case.kernel)
    return count(cubin, sass, _run(case, ctas, limit_s, seed, began), _Before(case, name))


def _run(case: Case, ctas: int | None, limit_s: float, seed: int, began: float | None) -> Run:
    from tritonhook.emulate.launch import edges
    from tritonhook.emulate.run import Run

    launch = case.launch
    chosen = edges(launch, ctas or math.prod(launch.grid))
    return Run(launch, chosen, seed, limit_s=limit_s, began=began or time.monotonic())


def _on_input(order: Order, name: str, ctas: int, limit_s: float) -> Iterator[Ran]:
    """Run each build on one input and yield what it stores. The first build that ends is the reference for the
    others."""
    launch = order.launch
    if launch.cooperative:  # CTAs wait for one another
        ctas = math.prod(launch.grid)
    reference: tuple[bytes, ...] | None = None
    for number, build in enumerate(order.builds):
        started = time.perf_counter()
        try:
            given = _Before(order, name)
            stored = [_stored(build, launch, given, ctas, limit_s, seed) for seed in range(_runs(order, build))]
        except TritonHookError as error:
            yield Ran(name, build.label, failure=_failure(error, ctas, launch, reference is None))
            continue
        if order.save is not None:
            for buffer, data in enumerate(stored[0]):
                (order.save / f"{name}-{number}-{buffer}.bin").write_bytes(data)
        reference = reference or stored[0]
        unsteady = [differing for other in stored[1:] for differing in _differences(launch, stored[0], other)]
        changed = sum(a != b for a, b in zip(given, stored[0], strict=True))
        differences = tuple(_differences(launch, reference, stored[0]))
        by_nans = frozenset[int]()
        if any(not one.only_nans for one in differences) and (ptx := order.builds[0]).path.suffix == _SUFFIX:
            by_nans = _by_nans(ptx, launch, given, ctas, limit_s, reference, stored[0])
        us = 1e6 * (time.perf_counter() - started) / len(stored)
        yield Ran(name, build.label, differences, tuple(unsteady), us=us, stored=changed, by_nans=by_nans)


def _by_nans(
    ptx: Build, launch: Launch, given: Sequence[bytes], ctas: int, limit_s: float, wanted: Sequence[bytes],
    stored: Sequence[bytes],
) -> frozenset[int]:  # fmt: skip
    """Find the buffers that differ from what the PTX stores only where it stores something else with other NaNs."""
    from tritonhook.emulate.numbers import open_by_nans

    try:
        other = _stored(ptx, launch, given, ctas, limit_s, 0, other_nan=True)
    except TritonHookError:
        return frozenset()
    both = enumerate(zip(wanted, stored, other, strict=True))
    return frozenset(number for number, (a, b, c) in both if a != b and open_by_nans(a, b, c))


def _runs(order: Order, build: Build) -> int:
    """Return how often a build runs: PTX with atomics runs again, with its atomics in another order."""
    if build.path.suffix != _SUFFIX or not any(word in build.path.read_text() for word in ("atom.", "red.")):
        return 1
    return min(order.runs, 2)


def _stored(
    build: Build, launch: Launch, given: Sequence[bytes], ctas: int, limit_s: float, seed: int, other_nan: bool = False
) -> tuple[bytes, ...]:
    from tritonhook.emulate.launch import edges
    from tritonhook.emulate.run import Run, run_code, run_ptx

    run = Run(launch, edges(launch, ctas), seed, limit_s=limit_s, other_nan=other_nan)
    if build.path.suffix == _SUFFIX:
        return run_ptx(_ptx_kernel(build.path.read_text(), build.entry), run, given).contents
    return run_code(_code_kernel(build.path.read_bytes(), build.entry), run, given).contents


@lru_cache(maxsize=_READ)
def _ptx_kernel(text: str, entry: str) -> Kernel:
    from tritonhook.emulate.ptx.kernel import read_kernel

    return read_kernel(Ptx(text), entry)


@lru_cache(maxsize=_READ)
def _code_kernel(image: bytes, entry: str) -> SassKernel:
    from tritonhook.emulate.sass.kernel import read_sass_kernel

    cubin = Cubin.from_bytes(image)
    return read_sass_kernel(cubin, _disassembled(cubin, entry))


def _disassembled(cubin: Cubin, entry: str) -> Sass:
    return reading_toolchain().disassemble(cubin, [entry])[entry]


def run_cubin(cubin: Cubin, entry: str, run: Run, contents: Sequence[bytes]) -> Emulated:
    """Disassemble a kernel and execute it. Raises as `run_code`."""
    from tritonhook.emulate.run import run_code
    from tritonhook.emulate.sass.kernel import read_sass_kernel

    return run_code(read_sass_kernel(cubin, _disassembled(cubin, entry)), run, contents)


def _failure(error: TritonHookError, ctas: int, launch: Launch, is_first: bool) -> Failure:
    from tritonhook.emulate.errors import Fault, Hang, Unfinished

    if isinstance(error, Hang):
        total = launch.grid[0] * launch.grid[1] * launch.grid[2]
        if is_first and ctas < total:
            return Failure(FailureKind.NOT_UNDERSTOOD, f"{error}; only {ctas} of {total:,} CTAs were executed")
        return Failure(FailureKind.HANG, str(error))
    if isinstance(error, Fault):
        return Failure(FailureKind.CRASH, str(error))
    if isinstance(error, (NotUnderstood, Unfinished)):
        return Failure(FailureKind.NOT_UNDERSTOOD, str(error))
    return Failure(FailureKind.REFUSED, str(error))


def _differences(launch: Launch, reference: Sequence[bytes], other: Sequence[bytes]) -> Iterator[Difference]:
    for number, (a, b) in enumerate(zip(reference, other, strict=True)):
        differing = difference(number, launch.buffers[number].dtype, a, b)
        if differing is not None:
            yield differing
