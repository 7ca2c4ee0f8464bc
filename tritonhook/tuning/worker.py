"""The child process that uses the GPU: `python -m tritonhook.tuning.worker`, started by gpu.py.

It imports torch first, then handles the requests that gpu.py sends.
"""

from __future__ import annotations

import contextlib
import gc
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from tritonhook.capture.launches.contents import SPECIAL, before
from tritonhook.device.child import After, At, Begin, Begun, ContextLost, Message, own_output, serve
from tritonhook.errors import DeviceError, TritonHookError
from tritonhook.timing.places import PLACES, RACE_PLACES, CodePlaces
from tritonhook.timing.plan import Take, Taken
from tritonhook.tuning.gpu import UNSTEADY, Free, Freed, LeverCode, LoadCodes, RaceReady


class GpuCodes:
    """Machine codes of one kernel, loaded with the buffers of one launch, in memory that torch allocates."""

    def __init__(self) -> None:
        self._kernels: dict[str, list[Any]] = {}  # by name of a code: copies of it at several addresses
        self._loaded: list[Any] = []
        self._timer: Any = None
        self._places: CodePlaces | None = None

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
            placed, refused = self._placed(wanted, buffers)
            failed = dict(refused)
            yield from self._check(wanted, buffers, placed, failed)
            if wanted.keep is not None and wanted.codes[0].name not in failed:
                special = [before(buffers.launch, None, n, SPECIAL, ()) for n in range(len(buffers.launch.buffers))]
                buffers.hold([None if n in wanted.keep else made for n, made in enumerate(special)])
                yield from self._check(wanted, buffers, placed, failed, special=True)
                buffers.hold(None)
            self._kernels = {name: kernels for name, kernels in placed.items() if name not in failed}
            unsteady = failed.get(wanted.codes[0].name) == UNSTEADY
            if wanted.codes[0].name not in failed and len(self._kernels) > 1:
                sides = [TimedSide(name, k.launch) for name, kernels in self._kernels.items() for k in kernels]
                self._timer = Timer(sides, seed=wanted.seed, racing=wanted.racing)
                self._timer.prepare()
        yield RaceReady({} if unsteady else failed, unsteady, buffers.notes)

    def _placed(self, wanted: LoadCodes, buffers: Any) -> tuple[dict[str, list[Any]], dict[str, str]]:
        """Load each code at several addresses. Also return, by name, why a code cannot be loaded."""
        from tritonhook.capture.store import read_launch
        from tritonhook.timing.replay import LoadedKernel, OtherLaunch

        refused: dict[str, str] = {}

        def load(code: LeverCode) -> Any:
            memory = buffers if code.launch is None else OtherLaunch(buffers, read_launch(code.launch))
            try:
                self._loaded.append(LoadedKernel(code.path.read_bytes(), code.entry, memory))
                return self._loaded[-1]
            except TritonHookError as error:  # the driver refused this code; the CUDA context still works
                refused[code.name] = str(error)

        self._places = CodePlaces(wanted.seed)
        placed: dict[str, list[Any]] = {code.name: [] for code in wanted.codes}
        codes = {code.name: partial(load, code) for code in wanted.codes}
        for name, kernel in self._places.load(codes, RACE_PLACES if wanted.racing else PLACES):
            placed[name].append(kernel)
        return placed, refused

    def _check(
        self,
        wanted: LoadCodes,
        buffers: Any,
        placed: Mapping[str, Sequence[Any]],
        failed: dict[str, str],
        special: bool = False,
    ) -> Iterator[Message]:
        """Launch each code at each of its addresses, and compare what it stores with the code that it must equal. Adds
        the reason to `failed` for a code that differs. special: the buffers hold special numbers. If two runs of the
        same reference differ on these, nothing is compared with this reference."""
        from tritonhook.timing.replay import OutputCheck

        check: Any = None
        for code in wanted.codes:
            plain = code.like is None
            if plain:
                check = OutputCheck(buffers, wanted.rtol, any_nan=special)
            elif code.like in failed and code.name not in failed:
                failed[code.name] = f"its configuration's own code: {failed[code.like]}"
            if code.name in failed or check is None:
                continue
            yield At(SPECIAL if plain and special else code.name)
            text: str | None = None
            try:
                for kernel in placed[code.name]:
                    text = text or check.difference(kernel)
            except TritonHookError as error:
                failed[code.name] = str(error)
            yield After()
            if text is not None and plain and special:
                check = None
            elif text is not None:
                failed[code.name] = UNSTEADY if plain else f"on special numbers: {text}" if special else text

    def take(self, wanted: Take) -> Taken:
        with _gpu_errors():
            self._timer.keep(wanted.sides)
            return Taken(tuple(self._timer.take_block(wanted.process) for _ in range(wanted.blocks)))

    def free(self) -> None:
        import torch

        kernels, places = self._loaded, self._places
        self._kernels, self._loaded, self._timer, self._places = {}, [], None, None
        gc.collect()
        with _gpu_errors():
            torch.cuda.synchronize()
            for kernel in kernels:
                kernel.unload()
            if places is not None:
                places.free()
            kernels.clear()
            torch.cuda.empty_cache()


@contextlib.contextmanager
def _gpu_errors() -> Any:
    """Convert torch's errors: DeviceError if the GPU has too little memory, ContextLost for any other."""
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
        import torch  # noqa: F401  (takes seconds; does not use the GPU yet)
    serve(sys.stdin, answers, GpuCodes().carry_out, Begin, LoadCodes, Take, Free)
    # After an error of the GPU, torch's cleanup at exit prints errors or hangs.
    answers.close()
    os._exit(0)


if __name__ == "__main__":
    main()
