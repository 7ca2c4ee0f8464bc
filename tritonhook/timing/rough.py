"""Measure rough times of recorded launches, to find the launches that take most time. Runs in a child process with the
GPU, `python -m tritonhook.timing.rough`.

timer.py measures the precise times for verdicts.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from tritonhook.capture.selection import Launched, launches_of
from tritonhook.capture.store import CaptureFolder, read_launch
from tritonhook.device.child import START_S, After, At, Begin, Begun, Child, Lost, Message, own_output, serve
from tritonhook.errors import DeviceError, TritonHookError
from tritonhook.timing.plan import Measure, Measured
from tritonhook.timing.replay import Buffers, LoadedKernel

WORKER = (sys.executable, "-m", "tritonhook.timing.rough")
_RUNS = 3
_QUEUE_CLOCKS = 2_000_000  # GPU clock cycles, about 1 ms: more time than Python needs to queue the launches


def rough_times(
    captures: Path, command: Sequence[str] = WORKER, limit_s: float = START_S, others: Sequence[Launched] = ()
) -> list[dict[str, Any]]:
    """Measure each recorded launch of a capture folder in a child process. Returns a dict per launch, with `us`, the
    microseconds per launch; sorted by total time, largest first. Kernels that lost an autotuning are omitted.

    others: further launches to measure. A launch that crashes or hangs has `us` None and the reason in `why`; another
    child process measures the remaining launches. Raises DeviceError without a GPU.
    """
    waiting = [*launches_of(CaptureFolder.open(captures)), *others]
    times: list[dict[str, Any]] = []
    while len(times) < len(waiting):
        for measured in _measured(captures, waiting[len(times) :], command, limit_s):
            launch = waiting[len(times)]
            told = {"us": None, "why": measured.why} if measured.us is None else {"us": measured.us}
            times.append({"record": launch.record, "launch": launch.key, "count": launch.count, **told})
    return sorted(times, key=lambda entry: -(entry["us"] or 0) * entry["count"])


def _measured(
    captures: Path, launches: Sequence[Launched], command: Sequence[str], limit_s: float
) -> Iterator[Measured]:
    """Yield the measurements of one child process, until all launches are done or a launch ends the process."""
    child = Child(command, limit_s)
    try:
        child.begin()
        _ = child.device  # waits for the context
        for launch in launches:
            yield child.ask(Measure(captures, launch.record, launch.path), Measured, rest_s=limit_s)
    except Lost as lost:
        if lost.at is None:
            raise DeviceError(f"measuring the launches: {lost}; its output is above") from None
        yield Measured(why=f"its launch: {lost}")
    except TritonHookError as error:
        raise DeviceError(
            f"{error}: a recorded launch needs torch and a GPU; `tritonhook diff KERNEL --rename` needs neither"
        ) from None
    finally:
        child.end()


# --- the process with the GPU --------------------------------------------------------------------


def carry_out(request: Begin | Measure) -> Iterator[Message]:
    try:
        import torch
    except ModuleNotFoundError:
        raise DeviceError("torch is not installed") from None
    if isinstance(request, Begin):
        if not torch.cuda.is_available():
            raise DeviceError("no GPU that torch can use")
        yield Begun(torch.cuda.get_device_name())
        return
    yield At(request.record)
    try:
        capture = _opened(request.captures).capture(request.record)
        buffers = Buffers(read_launch(request.launch), request.launch.parent)
        kernel = LoadedKernel(capture.cubin, capture.kernel, buffers)
        measured = Measured(_rough_us(kernel))
    except (TritonHookError, torch.cuda.OutOfMemoryError) as error:
        measured = Measured(why=str(error).splitlines()[0])
    yield After()
    yield measured


_opened = functools.cache(CaptureFolder.open)


def _rough_us(kernel: LoadedKernel) -> float:
    import torch

    kernel.launch()
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    # While the GPU sleeps, the launches are queued. Otherwise Python's time would count for short kernels.
    torch.cuda._sleep(_QUEUE_CLOCKS)
    start.record()
    for _ in range(_RUNS):
        kernel.launch()
    end.record()
    torch.cuda.synchronize()
    return float(start.elapsed_time(end)) * 1000 / _RUNS


def main() -> None:
    answers = own_output()
    with suppress(ImportError):
        import torch  # noqa: F401  (takes seconds)
    serve(sys.stdin, answers, carry_out, Begin, Measure)


if __name__ == "__main__":
    main()
