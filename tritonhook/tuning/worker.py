"""The child process that has the GPU: `python -m tritonhook.tuning.worker`, started by gpu.py.

It loads torch at once, then carries out the requests of messages.py.
"""

from __future__ import annotations

import contextlib
import gc
import os
import sys
from collections.abc import Generator, Iterator
from typing import Any

from tritonhook.device.child import After, At, Begin, Begun, ContextLost, Message, own_output, serve
from tritonhook.errors import DeviceError, TritonHookError
from tritonhook.timing.messages import Take, Taken
from tritonhook.tuning.messages import Free, Freed, LoadCodes, Ready


class GpuCodes:
    """Codes of one kernel, on the buffers of one launch, in torch's memory."""

    def __init__(self) -> None:
        self._kernels: dict[str, Any] = {}
        self._timer: Any = None

    def carry_out(self, request: Begin | LoadCodes | Take | Free) -> Iterator[Message]:
        if isinstance(request, Begin):
            yield self.begin()
        elif isinstance(request, LoadCodes):
            yield from self.load(request)
        elif isinstance(request, Take):
            yield self.take(request)
        else:
            self.free()
            yield Freed()

    def begin(self) -> Begun:
        try:
            import torch
        except ModuleNotFoundError:
            raise DeviceError("torch is not installed: tuning needs it, and a GPU") from None
        if not torch.cuda.is_available():
            raise DeviceError("no GPU that torch can use: tuning needs one; --assemble-only needs none")
        torch.cuda.synchronize()
        return Begun(torch.cuda.get_device_name())

    def load(self, wanted: LoadCodes) -> Iterator[Message]:
        from tritonhook.capture.store import read_launch
        from tritonhook.timing.replay import Buffers
        from tritonhook.timing.timer import TimedSide, Timer

        self.free()
        with _gpu_errors():
            buffers = Buffers(read_launch(wanted.launch), wanted.launch.parent)
            failed, unsteady = yield from self._checked(wanted, buffers)
            if not unsteady and len(self._kernels) > 1:
                sides = [TimedSide(name, kernel.launch) for name, kernel in self._kernels.items()]
                self._timer = Timer(sides, seed=wanted.seed, racing=wanted.racing)
                self._timer.prepare()
        yield Ready(failed, unsteady, buffers.notes)

    def _checked(self, wanted: LoadCodes, buffers: Any) -> Generator[Message, None, tuple[dict[str, str], bool]]:
        """Load and launch each code. Returns why some cannot be timed; and whether the reference is unsteady."""
        from tritonhook.timing.replay import LoadedKernel, OutputCheck

        check = OutputCheck(buffers, wanted.rtol)
        failed: dict[str, str] = {}
        for number, code in enumerate(wanted.codes):
            yield At(code.name)
            try:
                kernel = LoadedKernel(code.path.read_bytes(), code.entry, buffers)
                text = check.difference(kernel)
                if not number and check.difference(kernel) is not None:
                    return {}, True
            except TritonHookError as error:  # the driver refuses it, and nothing is lost
                text = str(error)
                if not number:
                    return {code.name: text}, False
            yield After()
            if text is None:
                self._kernels[code.name] = kernel
            else:
                failed[code.name] = text
        return failed, False

    def take(self, wanted: Take) -> Taken:
        with _gpu_errors():
            self._timer.keep(wanted.sides)
            return Taken(tuple(self._timer.take_block(wanted.process) for _ in range(wanted.blocks)))

    def free(self) -> None:
        import torch

        kernels, self._kernels, self._timer = self._kernels, {}, None
        gc.collect()
        with _gpu_errors():
            torch.cuda.synchronize()
            for kernel in kernels.values():
                kernel.unload()
            kernels.clear()
            torch.cuda.empty_cache()


@contextlib.contextmanager
def _gpu_errors() -> Any:
    """Raise DeviceError where memory is short, ContextLost where the GPU is lost."""
    import torch

    failed: type[Exception] = getattr(torch, "AcceleratorError", RuntimeError)  # since torch 2.8
    try:
        yield
    except torch.cuda.OutOfMemoryError as error:
        raise DeviceError(f"the GPU has too little memory: {str(error).splitlines()[0]}") from None
    except failed as error:
        raise ContextLost(str(error).splitlines()[0]) from None


def main() -> None:
    answers = own_output()
    with contextlib.suppress(ImportError):
        import torch  # noqa: F401  (takes seconds, and touches no GPU)
    serve(sys.stdin, answers, GpuCodes().carry_out, Begin, LoadCodes, Take, Free)
    # A GPU that is lost makes torch's own end noisy, or hang.
    answers.close()
    os._exit(0)


if __name__ == "__main__":
    main()
