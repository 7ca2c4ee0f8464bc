"""The child process that has the GPU: `python -m tritonhook.tuning.worker`, started by gpu.py.

It loads torch at once, then answers lines of JSON with lines of JSON. What else is printed goes to standard error.

    {"begin": true}          {"device": name}, once there is a context
    {"codes": [[name, cubin file, entry], ...], "launch": file, "rtol": ..., "seed": n, "racing": bool}
                             {"at": name} before each code's first launch, {"after": name} when it has come to its end,
                             then {"ready": {"failed": {name: why}, "unsteady": bool, "notes": [...]}}
    {"blocks": n, "process": i, "sides": [name, ...]}      {"taken": [block, ...]}
    {"free": true}           {"freed": true}, without the buffers

The first code is the reference: the others must store the same. {"error": text} where an order cannot be carried out;
the next one can. {"lost": text} after a launch that lost the GPU: the process ends.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol, TextIO

from tritonhook.errors import DeviceError, TritonHookError


class Codes(Protocol):
    """What carries out orders."""

    def begin(self) -> str:
        """Make a context. Returns the GPU's name. Raises DeviceError without a GPU."""

    def ready(self, order: Mapping[str, Any], say: Any) -> dict[str, Any]:
        """Load the codes, check what they store, and prepare to time those that can be timed."""

    def take(self, count: int, process: int, sides: list[str]) -> list[dict[str, Any]]:
        """Take blocks of some of the codes."""

    def free(self) -> None: ...


class ContextLost(Exception):
    """A launch ended with an error after which the process can use the GPU no more."""


class GpuCodes:
    """Codes of one kernel, on the buffers of one launch, in torch's memory."""

    def __init__(self) -> None:
        self._kernels: dict[str, Any] = {}
        self._timer: Any = None

    def begin(self) -> str:
        try:
            import torch
        except ModuleNotFoundError:
            raise DeviceError("torch is not installed: tuning needs it, and a GPU") from None
        if not torch.cuda.is_available():
            raise DeviceError("no GPU that torch can use: tuning needs one; --assemble-only needs none")
        torch.cuda.synchronize()
        return str(torch.cuda.get_device_name())

    def ready(self, order: Mapping[str, Any], say: Any) -> dict[str, Any]:
        from tritonhook.capture.store import read_launch
        from tritonhook.timing.replay import Buffers
        from tritonhook.timing.timer import TimedSide, Timer

        self.free()
        launch = Path(order["launch"])
        with _gpu_errors():
            buffers = Buffers(read_launch(launch), launch.parent)
            failed, unsteady = self._checked(order, buffers, say)
            if not unsteady and len(self._kernels) > 1:
                sides = [TimedSide(name, kernel.launch) for name, kernel in self._kernels.items()]
                self._timer = Timer(sides, seed=order["seed"], racing=order["racing"])
                self._timer.prepare()
        return {"failed": failed, "unsteady": unsteady, "notes": list(buffers.notes)}

    def _checked(self, order: Mapping[str, Any], buffers: Any, say: Any) -> tuple[dict[str, str], bool]:
        """Load and launch each code. Returns why some cannot be timed; and whether the reference is unsteady."""
        from tritonhook.timing.replay import LoadedKernel, OutputCheck

        check = OutputCheck(buffers, order["rtol"])
        failed: dict[str, str] = {}
        for number, (name, path, entry) in enumerate(order["codes"]):
            say({"at": name})
            try:
                kernel = LoadedKernel(Path(path).read_bytes(), entry, buffers)
                text = check.difference(kernel)
                if not number and check.difference(kernel) is not None:
                    return {}, True
            except TritonHookError as error:  # the driver refuses it, and nothing is lost
                text = str(error)
                if not number:
                    return {name: text}, False
            say({"after": name})
            if text is None:
                self._kernels[name] = kernel
            else:
                failed[name] = text
        return failed, False

    def take(self, count: int, process: int, sides: list[str]) -> list[dict[str, Any]]:
        with _gpu_errors():
            self._timer.keep(sides)
            return [asdict(self._timer.take_block(process)) for _ in range(count)]

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


def serve(orders: TextIO, answers: TextIO, codes: Codes) -> None:
    """Answer each line of `orders` until they end, or the GPU is lost."""

    def say(document: Mapping[str, Any]) -> None:
        answers.write(json.dumps(document) + "\n")
        answers.flush()

    for line in orders:
        order = json.loads(line)
        try:
            if "begin" in order:
                say({"device": codes.begin()})
            elif "codes" in order:
                say({"ready": codes.ready(order, say)})
            elif "blocks" in order:
                say({"taken": codes.take(order["blocks"], order["process"], order["sides"])})
            else:
                codes.free()
                say({"freed": True})
        except ContextLost as error:
            say({"lost": str(error)})
            return
        except TritonHookError as error:
            say({"error": str(error)})


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a kernel prints must not mix with the answers
    with contextlib.suppress(ImportError):
        import torch  # noqa: F401  (takes seconds, and touches no GPU)
    serve(sys.stdin, answers, GpuCodes())
    # A GPU that is lost makes torch's own end noisy, or hang.
    answers.close()
    os._exit(0)


if __name__ == "__main__":
    main()
