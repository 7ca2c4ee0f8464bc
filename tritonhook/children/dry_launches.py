"""Execute the launches of a dry run on the CPU: after each launch, the tensors contain the results of the kernel's PTX.

`launches` has statistics and errors of the launches, for the pytest plugin.
"""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace, TracebackType
from typing import Any

import numpy as np

from tritonhook._util.text import say
from tritonhook.capture.dry_run.autotuner import tuners
from tritonhook.capture.dry_run.gpu import DryRun, Emulation, notes
from tritonhook.capture.dry_run.room import room_of
from tritonhook.capture.dry_run.suppressions import found
from tritonhook.capture.launches.live_tensors import cpu_bytes
from tritonhook.capture.launches.record import Launch
from tritonhook.capture.launches.recorder import Describe, around_launches, of_triton
from tritonhook.capture.launches.views import views_of
from tritonhook.capture.patching import Patch
from tritonhook.children.bits import begin_comparing, bits
from tritonhook.children.stream_races import races
from tritonhook.cubin.image import Cubin
from tritonhook.emulate.errors import Fault, Hang, Late, NotExecuted, Unfinished
from tritonhook.emulate.launch import element_names, names_of
from tritonhook.emulate.ptx.kernel import Kernel, read_kernel
from tritonhook.emulate.run import Run, run_ptx
from tritonhook.emulate.sanitizer.findings import source_lines
from tritonhook.emulate.sanitizer.run import sanitize
from tritonhook.errors import EmulationError, KernelFault, NotUnderstood, TritonHookError, listed
from tritonhook.ptx.module import Ptx

_LAUNCH_FAILURE = 719  # cudaErrorLaunchFailure
_LAUNCHERS = "tritonhook", "triton"
NOT_UNDERSTOOD, TOO_LONG, UNFINISHED = "NOT UNDERSTOOD", "over the time limit", "not finished"

# The launches of this process since `begin_test`. executed: number of executed launches. seconds: their total time.
# left: (kind, reason) of each launch that could not be executed. findings: findings of the sanitizer. dry: reason why
# launches are no longer executed; "" if they are.
launches = SimpleNamespace(executed=0, seconds=0.0, left=[], findings=found.texts, dry="")


def begin_test() -> None:
    """Reset `launches` and the findings before a test."""
    found.forget()
    vars(launches).update(executed=0, seconds=0.0, left=[], dry="")


def begin_triton(emulation: Emulation) -> ExitStack:
    """Execute each launch of a Triton kernel, until the returned stack is closed."""
    from triton.compiler import CompiledKernel

    emulator = Emulator(emulation)

    def execute(kernel: Any, grid: Sequence[int], arguments: Sequence[Any]) -> None:
        bits.compiled = kernel
        emulator.execute(
            kernel.name, kernel.hash, lambda: kernel.asm["ptx"], partial(of_triton, kernel, grid, arguments),
            lambda: kernel.asm["cubin"], is_triton="ttir" in kernel.asm,  # False for Gluon, which has no TTIR
        )  # fmt: skip

    stack = begin_comparing(emulation.compared) if emulation.compared is not None else ExitStack()
    if emulation.compared is not None and emulation.compared.rows:
        from tritonhook.children.rows import begin_rows

        begin_rows(emulation.compared, stack)
    stack.callback(Patch(CompiledKernel, "run", partial(around_launches, execute, True)).undo)
    stack.callback(Patch(sys, "excepthook", _without_frames_of_ours).undo)
    return stack


def begin_cute(emulation: Emulation) -> ExitStack:
    """Execute each launch of the CuTe DSL, until the returned stack is closed. The dry run of the DSL must have
    begun."""
    from tritonhook.capture.cute import launches as cute_launches
    from tritonhook.capture.cute import runtime
    from tritonhook.capture.cute.modules import known_ptx
    from tritonhook.capture.launches.live_tensors import LIVE_TENSORS

    emulator = Emulator(emulation)

    def launched(*given: int) -> int:
        """Execute a launch. Returns 0, or a CUDA error code, which the DSL turns into an exception."""
        try:
            (recording,) = cute_launches.recordings
            one, bits.compiled = recording.called(*given), None
            key, described = one.kernel.hash, partial(one.described, LIVE_TENSORS)
            emulator.execute(one.kernel.name, key, partial(_known_text, one.kernel.name, known_ptx.get(key)), described)
        except Exception as error:
            say(f"tritonhook: {error}")
            return _LAUNCH_FAILURE
        return 0

    stack = ExitStack()
    for name, count in ((runtime.LAUNCH, 3), (runtime.PLAIN_LAUNCH, 10)):
        stack.callback(runtime.of_process().stand_in(name, count, launched))
    return stack


def _known_text(name: str, ptx: Ptx | None) -> str:
    """Return the PTX of a CuTe kernel. Raises NotUnderstood if the kernel came from a cache."""
    if ptx is None:
        raise NotUnderstood(name, why="it came from a cache without PTX; clear the cache, so that it is compiled again")
    return ptx.text


class Emulator:
    """Executes launches. The PTX of each kernel is parsed once."""

    def __init__(self, emulation: Emulation) -> None:
        self._emulation = emulation
        found.begin(emulation)
        self._kernels: dict[str, Kernel] = {}
        self._dry = DryRun.from_environment(os.environ)
        self._registers: dict[str, int | None] = {}

    def execute(
        self,
        name: str,
        key: str,
        text: Callable[[], str],
        described: Describe,
        cubin: Callable[[], bytes] | None = None,
        is_triton: bool = False,
    ) -> None:
        """Execute one launch, and write its results to its tensors. Raises NotExecuted if the emulator cannot execute
        the kernel, KernelFault if the kernel has a fault, and another EmulationError for other errors, because the
        program cannot go on with wrong numbers.

        key: hash of the kernel. text, cubin: functions that return its PTX and cubin. described: function that
        describes the launch. is_triton: False for Gluon and CuTe kernels."""
        if launches.dry:
            return
        if self._emulation.sanitize and cubin and key not in self._registers:
            self._registers[key] = Cubin.from_bytes(cubin()).resources[name].registers
        began, limit_s = time.monotonic(), self._emulation.limit_s
        try:
            launch, storages = described()
            size = sum(size for *_, size in storages)
            if size > self._emulation.most_bytes:
                launches.dry = f"{name}: its tensors have {size:,} bytes, over the limit"
                return
            contents = [_bytes_of(*storage) for storage in storages]
            if tuners.trial is not None:
                tuners.trial.launched(names_of(launch), [one.dtype for one in launch.buffers], contents)
            run = Run(launch, range(math.prod(launch.grid)), limit_s=limit_s, began=began - launches.seconds)
            try:
                before = [one.tobytes() for one in contents]
                after = self._executed(name, key, text, run, before, is_triton, storages)
                if bits.compared is not None:
                    bits.launched(name, Ptx(text()), self._kernels[key], run, before, after)
            except Fault:
                if _have_pointers(launch, contents):
                    raise NotUnderstood(name, why="it gets a tensor of pointers, which are not followed") from None
                raise
        except (NotUnderstood, Late, Unfinished) as error:
            is_late = launches.seconds + time.monotonic() - began >= limit_s
            kind = NOT_UNDERSTOOD if isinstance(error, NotUnderstood) else TOO_LONG if is_late else UNFINISHED
            launches.left.append((kind, f"{name} cannot be emulated: {error}"))
            raise NotExecuted(*launches.left[-1]) from None
        except (Fault, Hang) as error:
            fault = KernelFault(f"{name}: {_in_words(error, Ptx(text()))}")
            notes.add(str(fault))
            raise fault from None
        except Exception as error:
            if isinstance(error, TritonHookError):
                raise EmulationError(f"{name} cannot be emulated: {error}") from None
            raise EmulationError(f"{name} cannot be emulated: {type(error).__name__}: {error}") from error
        finally:
            launches.seconds += time.monotonic() - began
        launches.executed += 1
        for one, data in zip(contents, after, strict=True):
            one[:] = np.frombuffer(data, np.uint8)

    def _executed(
        self, name: str, key: str, text: Callable[[], str], run: Run, contents: Sequence[bytes], is_triton: bool,
        storages: Sequence[tuple[Any, int, int]],
    ) -> Sequence[bytes]:  # fmt: skip
        """Return the contents of the buffers after a launch. contents: contents of the buffers before the launch.
        storages: (tensor, begin and size in bytes) of each buffer."""
        if key not in self._kernels:
            self._kernels[key] = read_kernel(Ptx(text()), name)
        if self._emulation.sanitize:
            kernel, gpu = self._kernels[key], self._dry.gpu if self._dry else None
            room = room_of(gpu, kernel.target, run.launch, kernel.shared.size, self._registers.get(key))
            views = views_of(run.launch, self._emulation.bounds)
            cut = replace(run, launch=views.launch), views.split(contents)
            done = sanitize(Ptx(text()), *cut, kernel=kernel, is_poisoned=True, room=room, is_triton=is_triton)
            if isinstance(done.error, Fault) and _have_pointers(run.launch, contents):
                raise done.error  # the kernel follows pointers in a buffer: the findings may be wrong
            for one in done.findings:
                lines = [place.source or str(place.line) for place in one.places]
                found.add(name, one.kind, lines, f"{name}: {one}", tuners.trial.label if tuners.trial else "")
            if done.unwatched:
                found.note(f"{name}: {done.unwatched}")
            if done.ran is None:
                assert done.error is not None
                raise done.error
            pieces = views.pieces or [(number, 0, 0) for number in range(len(storages))]
            begins = [(storages[number][0], storages[number][1] + begin) for number, begin, _ in pieces]
            named = zip(begins, names_of(views.launch), element_names(views.launch), strict=True)
            places = [(*begin, name, element) for begin, name, element in named]
            races.launched(name, places, done.accesses())
            return views.joined(contents, done.ran.contents)
        return run_ptx(self._kernels[key], run, contents).contents


def _in_words(error: Fault | Hang, ptx: Ptx) -> str:
    """Describe a fault or hang with the lines of the source, or with the lines of the PTX if the source is not
    known."""
    source = source_lines(ptx)

    def at(line: int) -> str:
        return source(line) or f"line {line} of its PTX"

    if isinstance(error, Hang):
        return f"hang at {listed([at(line) for line in error.lines])}: {error}"
    wrapped = f"; at {at(error.wrapped_line)} {error.origin.wrapped}" if error.origin.wrapped else ""
    return f"{error.kind} at {at(error.line or 0)}: {error.text}, by {error.who}{wrapped}"


def end_at_the_launch(traceback: TracebackType | None) -> None:
    """Remove the innermost frames of a traceback, which belong to Triton and tritonhook. So it ends at the program's
    line that launched the kernel."""
    last = None
    while traceback is not None:
        if traceback.tb_frame.f_globals.get("__name__", "").partition(".")[0] not in _LAUNCHERS:
            last = traceback
        traceback = traceback.tb_next
    if last is not None:
        last.tb_next = None


def _without_frames_of_ours(original: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap sys.excepthook: the traceback of a kernel's fault ends at the program's line that launched the kernel."""

    def shown(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
        if isinstance(error, KernelFault):
            end_at_the_launch(traceback)
        original(kind, error, traceback)

    return shown


def _have_pointers(launch: Launch, contents: Sequence[Any]) -> bool:
    """Check whether a buffer of 64-bit integers contains an address in this process, e.g. of another tensor."""
    numbers = [
        np.frombuffer(data, np.uint64, len(data) // 8)
        for buffer, data in zip(launch.buffers, contents, strict=True)
        if buffer.dtype in ("int64", "uint64")
    ]
    if not (numbers := [one for one in numbers if len(one)]):
        return False
    lines = (line.split() for line in Path("/proc/self/maps").read_text().splitlines())
    mapped = [word[0].split("-") for word in lines if word[1].startswith("rw")]
    begins, ends = (np.array([int(pair[at], 16) for pair in mapped], np.uint64) for at in (0, 1))
    every = np.unique(np.concatenate(numbers))
    places = np.searchsorted(begins, every, "right")
    return bool(((places > 0) & (every < ends[places - 1])).any())


def _bytes_of(tensor: Any, start: int, size: int) -> Any:
    """Return a writable view of an allocation in the CPU's memory, as bytes. Raises EmulationError for a tensor without
    memory."""
    if not size:
        return np.zeros(0, np.uint8)
    if (view := cpu_bytes(tensor, start, size)) is None:
        raise EmulationError(f"an argument of shape {tuple(tensor.shape)} has no memory; pass a tensor on the GPU")
    return np.frombuffer(view, np.uint8)
