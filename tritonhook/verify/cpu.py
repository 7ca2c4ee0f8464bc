"""Run builds on the CPU: the emulator executes each build, and the PTX as their reference.

Only a few CTAs of a launch are executed: at the edges of the grid, and some between.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tritonhook.capture.dry_run.gpu import GPUS
from tritonhook.capture.dry_run.room import room_of
from tritonhook.capture.launches.contents import NORMAL, RECORDED, before
from tritonhook.capture.launches.record import Launch, Scratch
from tritonhook.capture.launches.views import STORAGE, views_of
from tritonhook.cubin.image import Cubin
from tritonhook.errors import NotUnderstood, TritonHookError, UsageError
from tritonhook.ptx.module import Ptx
from tritonhook.ptxas.toolchain import reading_toolchain
from tritonhook.verify.contents import difference, differences
from tritonhook.verify.differential import Built
from tritonhook.verify.judgement import apart, buffer_name
from tritonhook.verify.model import TRIAL_LIMIT_S, Build, Difference, Failure, FailureKind, Order, Ran, Runner

if TYPE_CHECKING:
    from tritonhook.cubin.sass import Sass
    from tritonhook.emulate.counters.metrics import Counted
    from tritonhook.emulate.ptx.kernel import Kernel
    from tritonhook.emulate.run import Ran as Emulated
    from tritonhook.emulate.run import Run
    from tritonhook.emulate.sanitizer.findings import Place
    from tritonhook.emulate.sanitizer.run import Sanitized
    from tritonhook.emulate.sass.kernel import SassKernel
    from tritonhook.verify.differential import Case

CTAS = 2  # number of CTAs of a launch that are executed
LIMIT_S = 120.0  # time limit of a launch
_SLOWER = 10  # a trial of minimise.py may take this many times as long as on a GPU
DEVICE = "CPU (emulated)"
PTX_LABEL = "PTX"
_SUFFIX = ".ptx"
_READ = 64  # kernels in the cache, because all builds are executed again for each input
_KEPT_BYTES = 32 << 20  # contents of a launch's buffers are kept for all builds up to this size
_listed: dict[tuple[bytes, str], Sass] = {}  # disassembled code, by cubin and kernel name


def with_ptx(built: Built, ptx: Ptx, entry: str, folder: Path) -> Built:
    """Write the PTX to `folder`, and put it before the builds, as their reference."""
    path = folder / f"reference{_SUFFIX}"
    path.write_text(ptx.text)
    return replace(built, builds=(Build(PTX_LABEL, path, entry), *built.builds))


class CpuExecutor(Runner):
    """Runs builds on the CPU. ctas: number of CTAs of a launch to execute. orders: number of orders in which the PTX is
    executed, with all CTAs. With 1 the PTX is still executed in a second order if it has atomics or shared memory."""

    def __init__(self, ctas: int = CTAS, limit_s: float = LIMIT_S, orders: int = 1) -> None:
        self.ctas, self.limit_s, self.orders = ctas, limit_s, orders
        self.device: str | None = DEVICE

    def trials(self) -> CpuExecutor:
        return CpuExecutor(self.ctas, min(self.limit_s, _SLOWER * TRIAL_LIMIT_S), self.orders)

    def run(self, order: Order, stop: Callable[[Ran], bool] = lambda ran: False) -> tuple[Ran, ...]:
        """Run the builds of an Order on its inputs, as Executor.run does."""
        results = []
        _read_together(order.builds)
        # All CTAs are executed if they may wait for one another, or if orders of CTAs are compared.
        ctas = None if order.launch.cooperative or self.orders > 1 else self.ctas
        inputs = _Inputs(order, _run(order.launch, ExecutionSettings(ctas=ctas, limit_s=self.limit_s)))
        for name in order.inputs:
            for ran in self._on_input(inputs, name):
                results.append(ran)
                if stop(ran):
                    return tuple(results)
        return tuple(results)

    def _on_input(self, inputs: _Inputs, name: str) -> Iterator[Ran]:
        """Run each build on one input. The first build that finishes is the reference for the next ones."""
        order, run = inputs.order, inputs.run
        reference: tuple[bytes, ...] | None = None
        for number, build in enumerate(order.builds):
            try:
                stored = inputs.stored(build, run, name)
                changes = _unsteady(inputs, build, name, self.orders, stored)
            except TritonHookError as error:
                yield Ran(name, build.label, failure=_failure(error, run, reference is None))
                continue
            if order.save is not None:
                for buffer, data in enumerate(stored):
                    (order.save / f"{name}-{number}-{buffer}.bin").write_bytes(data)
            reference = reference or stored
            given = inputs.given(name)
            changed = sum(a != b for a, b in zip(given, stored, strict=True))
            apart = tuple(differences(order.launch, reference, stored))
            by_nans = frozenset[int]()
            if any(not one.only_nans for one in apart) and (ptx := order.builds[0]).path.suffix == _SUFFIX:
                by_nans = _by_nans(ptx, run, given, reference, stored)
            yield Ran(name, build.label, apart, changes, stored=changed, by_nans=by_nans)


class _Inputs:
    """The inputs of an Order. A build is executed on all inputs together, which takes little longer than on one input.
    If that fails, e.g. because the build crashes on one input, it is executed on each input separately."""

    def __init__(self, order: Order, run: Run) -> None:
        self.order, self.run = order, run
        self._given: dict[str, _Before] = {}
        self._together: dict[tuple[Build, int], dict[str, tuple[bytes, ...]]] = {}

    def given(self, name: str) -> _Before:
        """Return the contents of the buffers before the launch. name: name of the input. Raises UsageError."""
        if name not in self._given:
            self._given[name] = _Before(self.order, name)
        return self._given[name]

    def stored(self, build: Build, run: Run, name: str) -> tuple[bytes, ...]:
        """Execute a build on an input. Returns the contents of the buffers afterwards. Raises NotUnderstood,
        UsageError, Fault, Hang, Unfinished."""
        key = build, run.seed
        if key not in self._together:
            self._together[key] = self._on_all(build, run)
        return self._together[key].pop(name, None) or _stored(build, run, self.given(name))

    def _on_all(self, build: Build, run: Run) -> dict[str, tuple[bytes, ...]]:
        from tritonhook.emulate.run import run_together

        names = self.order.inputs
        if len(names) == 1 or len(names) * run.launch.bytes > _KEPT_BYTES:
            return {}
        with suppress(TritonHookError):
            contents = [tuple(self.given(name)) for name in names]
            run = replace(run, began=time.monotonic())
            return dict(zip(names, run_together(_kernel(build), run, contents), strict=True))
        return {}


class _Before(Sequence[bytes]):
    """Contents of the buffers before a launch. Each is made when it is first read; they are kept if all are small.
    Raises UsageError if they exceed the emulator's limit."""

    def __init__(self, source: Case | Order, name: str) -> None:
        from tritonhook.emulate.run import MOST_BUFFER_BYTES

        self.source, self.name, launch = source, name, source.launch
        self._kept: dict[int, bytes] = {}
        size = launch.bytes + sum(one.size for one in launch.parameters if isinstance(one, Scratch))
        if size > MOST_BUFFER_BYTES:
            raise UsageError(f"{size:,} bytes in the buffers of the launch: at most {MOST_BUFFER_BYTES:,} are emulated")

    def __len__(self) -> int:
        return len(self.source.launch.buffers)

    def __getitem__(self, number: Any) -> Any:
        if number >= len(self):
            raise IndexError(number)
        if number in self._kept:
            return self._kept[number]
        made = before(self.source.launch, self.source.folder, number, self.name, self.source.keep)
        if self.source.launch.bytes <= _KEPT_BYTES:
            self._kept[number] = made
        return made


@dataclass(frozen=True, slots=True)
class ExecutionSettings:
    """How to execute a launch on the CPU.

    input: contents of the buffers, one of INPUTS. ctas: number of CTAs; None for all. limit_s: time limit in seconds.
    began: start of this time, a value of time.monotonic(); None: the start of the execution. seed: decides the order of
    CTAs, warps and atomics.
    """

    input: str = RECORDED
    ctas: int | None = None
    limit_s: float = LIMIT_S
    seed: int = 0
    began: float | None = None


def sanitized(
    case: Case,
    ptx: Ptx,
    how: ExecutionSettings,
    orders: int = 1,
    cubin: Cubin | None = None,
    bounds: str = STORAGE,
    is_triton: bool = False,
) -> Sanitized:
    """Execute the PTX of a launch, and look for faults of the kernel.

    orders: number of orders to execute; a buffer with other bits in another order is a finding. cubin: the kernel's
    machine code, from which the number of registers is read; None if unknown. bounds: what a pointer may access, as in
    capture/launches/views.py. is_triton: as in sanitize.

    Raises NotUnderstood, UsageError. Errors of the kernel are findings; but in the second and further orders Fault,
    Hang and Unfinished are raised."""
    from tritonhook.emulate.ptx.kernel import read_kernel
    from tritonhook.emulate.sanitizer.findings import ORDER, Finding
    from tritonhook.emulate.sanitizer.run import sanitize

    whole, views = _Before(case, how.input), views_of(case.launch, bounds)
    run = replace(_run(case.launch, how), launch=views.launch)
    given = views.split(whole)
    kernel = read_kernel(ptx, case.kernel)
    gpu = GPUS.get(int(re.sub(r"\D", "", kernel.target)))
    registers = cubin.resources[case.kernel].registers if cubin and case.kernel in cubin.resources else None
    room = room_of(gpu, kernel.target, case.launch, kernel.shared.size, registers)
    done = sanitize(ptx, run, given, kernel=kernel, room=room, is_triton=is_triton)
    if done.ran is None:
        return done
    joined = replace(done.ran, contents=views.joined(whole, done.ran.contents))
    if orders < 2:
        return replace(done, ran=joined)
    differing = unsteady(ptx, kernel, run, given, done.ran.contents, orders)
    found = (
        Finding(ORDER, f"{buffer_name(views.launch, one.buffer)} holds other bits in another order: {apart([one])}", at)
        for one, at in differing
    )
    return replace(done, ran=joined, findings=(*done.findings, *found))


def unsteady(
    ptx: Ptx, kernel: Kernel, run: Run, given: Sequence[bytes], stored: Sequence[bytes], orders: int,
    storing: Callable[[Run], Sequence[bytes]] | None = None,
) -> list[tuple[Difference, tuple[Place, ...]]]:  # fmt: skip
    """Execute a launch in several orders. Returns, for each buffer that differs, its largest difference from `stored`,
    and the instructions that stored the differing element. stored: contents after an execution in program order.
    storing: as in in_orders. Raises as run_ptx."""
    from tritonhook.emulate.orders import in_orders

    largest: dict[int, tuple[Difference, tuple[Place, ...]]] = {}
    for one in in_orders(ptx, kernel, run, given, stored, orders, storing):
        for number, places in one.differing.items():
            change = difference(number, run.launch.buffers[number].dtype, stored[number], one.contents[number])
            assert change is not None
            if number not in largest or (change.share or 0.0) > (largest[number][0].share or 0.0):
                largest[number] = change, places
    return [largest[number] for number in sorted(largest)]


def counted(case: Case, cubin: Cubin, how: ExecutionSettings) -> tuple[Counted, Emulated]:
    """Execute the machine code of a launch, and compute its counters, as Nsight Compute names them.

    Raises NotUnderstood, UsageError, Fault, Hang, Unfinished."""
    from tritonhook.emulate.counters.run import count

    sass = _disassembled(cubin, case.kernel)
    return count(cubin, sass, _run(case.launch, how), _Before(case, how.input))


def stored_by(cubin: Cubin, case: Case, ctas: int | None = CTAS, name: str = NORMAL) -> tuple[bytes, ...]:
    """Execute the machine code of a launch. Returns the contents of the buffers afterwards. ctas, name: as `ctas` and
    `input` in ExecutionSettings.

    Raises NotUnderstood, UsageError, Fault, Hang, Unfinished."""
    how = ExecutionSettings(name, ctas)
    return run_cubin(cubin, case.kernel, _run(case.launch, how), _Before(case, name)).contents


def how_far(launch: Launch, reference: Sequence[bytes], other: Sequence[bytes]) -> str:
    """Describe each buffer that differs from the reference, and how far; "" if all are equal."""
    found = differences(launch, reference, other)
    return "; ".join(f"{buffer_name(launch, one.buffer)}: {apart([one])}" for one in found)


def _run(launch: Launch, how: ExecutionSettings) -> Run:
    """Choose the CTAs to execute of a launch."""
    from tritonhook.emulate.launch import edges
    from tritonhook.emulate.run import Run

    ctas, began = how.ctas or math.prod(launch.grid), how.began or time.monotonic()
    return Run(launch, edges(launch, ctas), how.seed, limit_s=how.limit_s, began=began)


def _by_nans(
    ptx: Build, run: Run, given: Sequence[bytes], wanted: Sequence[bytes], stored: Sequence[bytes]
) -> frozenset[int]:
    """Find the buffers that differ from the PTX's buffers only in elements that depend on the bits of NaNs, which PTX
    does not define. To find these elements, execute the PTX with other bits in its NaNs. wanted: contents that the PTX
    stores."""
    from tritonhook.emulate.numbers import OTHER_NANS, open_by_nans

    try:
        others = [_stored(ptx, replace(run, other_nan=which), given) for which in OTHER_NANS]
    except TritonHookError:
        return frozenset()
    each = enumerate(zip(wanted, stored, *others, strict=True))
    return frozenset(number for number, (a, b, *c) in each if a != b and open_by_nans(a, b, c))


def _unsteady(inputs: _Inputs, build: Build, name: str, orders: int, stored: Sequence[bytes]) -> tuple[Difference, ...]:
    """Execute PTX in `orders` orders, and return the buffers that differ. PTX with atomics or shared memory is executed
    in two orders at least, if the Order has more than one run of each build. Machine code is not executed again."""
    if build.path.suffix != _SUFFIX:
        return ()
    text = build.path.read_text()
    if any(word in text for word in ("atom.", "red.", ".shared")):
        orders = max(orders, min(inputs.order.runs, 2))
    run, given = replace(inputs.run, began=time.monotonic()), inputs.given(name)
    again = partial(inputs.stored, build, name=name)
    found = unsteady(Ptx(text), _ptx_kernel(text, build.entry), run, given, stored, orders, again)
    return tuple(replace(change, at=tuple(map(str, places))) for change, places in found)


def _stored(build: Build, run: Run, given: Sequence[bytes]) -> tuple[bytes, ...]:
    from tritonhook.emulate.ptx.kernel import Kernel
    from tritonhook.emulate.run import run_code, run_ptx

    run, kernel = replace(run, began=time.monotonic()), _kernel(build)
    return (run_ptx(kernel, run, given) if isinstance(kernel, Kernel) else run_code(kernel, run, given)).contents


def _kernel(build: Build) -> Kernel | SassKernel:
    if build.path.suffix == _SUFFIX:
        return _ptx_kernel(build.path.read_text(), build.entry)
    return _code_kernel(build.path.read_bytes(), build.entry)


@lru_cache(maxsize=_READ)
def _ptx_kernel(text: str, entry: str) -> Kernel:
    from tritonhook.emulate.ptx.kernel import read_kernel

    return read_kernel(Ptx(text), entry)


def _read_together(builds: Sequence[Build]) -> None:
    """Disassemble all builds by one run of nvdisasm, because its start takes longer than a kernel. Errors are ignored
    here: a build that cannot be read raises again when it is executed."""
    all_of_them = dict.fromkeys((one.path.read_bytes(), one.entry) for one in builds if one.path.suffix != _SUFFIX)
    images = [one for one in all_of_them if one not in _listed]
    if len(images) + len(_listed) > _READ:
        _listed.clear()
    with suppress(TritonHookError):
        kernels = [(Cubin.from_bytes(image), entry) for image, entry in images]
        _listed.update(zip(images, reading_toolchain().disassemble_many(kernels), strict=True))


@lru_cache(maxsize=_READ)
def _code_kernel(image: bytes, entry: str) -> SassKernel:
    from tritonhook.emulate.sass.kernel import read_sass_kernel

    cubin = Cubin.from_bytes(image)
    return read_sass_kernel(cubin, _listed.get((image, entry)) or _disassembled(cubin, entry))


def _disassembled(cubin: Cubin, entry: str) -> Sass:
    return reading_toolchain().disassemble(cubin, [entry])[entry]


def run_cubin(cubin: Cubin, entry: str, run: Run, contents: Sequence[bytes]) -> Emulated:
    """Disassemble a kernel of a cubin, and execute it. Raises as `run_code`."""
    from tritonhook.emulate.run import run_code
    from tritonhook.emulate.sass.kernel import read_sass_kernel

    return run_code(read_sass_kernel(cubin, _disassembled(cubin, entry)), run, contents)


def _failure(error: TritonHookError, run: Run, is_first: bool) -> Failure:
    """Convert an error of the emulator. is_first: no build has finished yet. A hang is then no finding if CTAs were
    left out: the kernel may wait for them."""
    from tritonhook.emulate.errors import Fault, Hang, Unfinished

    if isinstance(error, Hang):
        ctas, total = len(run.ctas), math.prod(run.launch.grid)
        if is_first and ctas < total:
            return Failure(FailureKind.NOT_UNDERSTOOD, f"{error}; only {ctas} of {total:,} CTAs were executed")
        return Failure(FailureKind.HANG, str(error))
    if isinstance(error, Fault):
        return Failure(FailureKind.CRASH, str(error))
    if isinstance(error, (NotUnderstood, Unfinished)):
        return Failure(FailureKind.NOT_UNDERSTOOD, str(error))
    return Failure(FailureKind.REFUSED, str(error))
