"""One process of a timed comparison: `python -m tritonhook.timing.worker`, started by coordinator.py.

It answers the requests of plan.py: first Prepare, which compiles and checks the sides, then any number of Take, each
for some blocks of samples.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from tritonhook.device.child import Message, own_output, serve
from tritonhook.errors import DeviceError, TritonHookError, UsageError
from tritonhook.timing.output_check import difference, outputs_of, shaped_as
from tritonhook.timing.places import PLACES, CodePlaces
from tritonhook.timing.plan import BASELINE_RTOL, Compiled, HowLaunched, Kernels, Plan, Prepare, Prepared, Take, Taken
from tritonhook.timing.statistics import CANDIDATE, CONTROL, REFERENCE
from tritonhook.timing.variant import CALLS_BEFORE, Variant, described, load_launch

_ToTime = tuple[str, Callable[[], Any], Callable[[], contextlib.AbstractContextManager[Any]]]


class TimingWorker:
    """Carries out the requests to this process."""

    plan: Plan
    timer: Any

    def __init__(self) -> None:
        self._outputs: list[Any] = []  # outputs of the reference, until the baselines have been compared

    def carry_out(self, request: Prepare | Take) -> Iterator[Message]:
        with _errors_of_the_target():
            yield self.prepare(request.plan) if isinstance(request, Prepare) else self.take(request)

    def prepare(self, plan: Plan) -> Prepared:
        """Run each side, and compare outputs and code. Prepare the timer, unless an output is wrong or the code is
        equal."""
        try:
            import torch
        except ModuleNotFoundError:
            raise DeviceError(
                "a timed comparison needs torch, which is not installed, and a GPU; `tritonhook diff FILE --rename` "
                "needs neither"
            ) from None
        if not torch.cuda.is_available():
            raise DeviceError(
                "a timed comparison needs a GPU that torch can use; `tritonhook diff FILE --rename` needs no GPU"
            )
        from tritonhook.timing.timer import TimedSide, Timer, device_errors

        self.plan = plan
        sys.path[:0] = [entry for entry in plan.path if entry not in sys.path]
        with device_errors():
            sides, prepared = self._images() if plan.images else self._launches()
            versions = {"torch": str(torch.__version__), "cuda": torch.version.cuda, **_triton()}
            prepared = replace(prepared, device=torch.cuda.get_device_name(), versions=versions)
            if prepared.wrong or (prepared.kernels[REFERENCE] == prepared.kernels[CANDIDATE] and not plan.even_same):
                return prepared
            baselines = [self._baseline(name, prepared.baselines) for name in plan.baselines]
            self._outputs = []
            timed = [TimedSide(name, launch, within) for name, launch, within in (*sides, *baselines)]
            self.timer = Timer(timed, seed=plan.seed)
            self.timer.prepare()
        how = {side.name: HowLaunched(side.copies, side.graph is not None, side.why_eager) for side in timed}
        return replace(prepared, flushes=self.timer.flushes, sides=how)

    def _launches(self) -> tuple[list[_ToTime], Prepared]:
        """Prepare the sides of a target function. Returns the sides and the report."""
        plan = self.plan
        # torch.compile's cache on disk would change what the next process tunes and compiles.
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(plan.out / "inductor")
        os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
        reference = Variant(REFERENCE, plan, _no_launch, ())
        with reference.active():  # the target may compile already while it makes the launch
            reference.launch = launch = load_launch(plan.target)
        outputs = {REFERENCE: reference.first_calls(plan.target)}
        other = launch if plan.candidate is None else load_launch(plan.candidate)
        rename = () if plan.rename is None else (plan.rename,)
        candidate = Variant(CANDIDATE, plan, other, (*rename, *plan.rewrites), reference.choices)
        control = Variant(CONTROL, plan, launch, (plan.control,), reference.choices)
        variants = [reference, candidate, control]
        places = CodePlaces(plan.seed)
        for variant in places.order([candidate, control]):
            outputs[variant.name] = variant.first_calls((candidate is variant and plan.candidate) or plan.target)
        for variant in places.order(variants):
            places.pad()
            variant.load_again()
        candidate.check_names(plan.rename)
        control.check_names(plan.control)
        prepared = Prepared(
            {variant.name: variant.kernels() for variant in variants},
            {variant.name: variant.compiled() for variant in variants},
            len(outputs[REFERENCE]) if plan.check else 0,
            {
                name: text
                for name, tensors in outputs.items()
                if plan.check and (text := difference(outputs[REFERENCE], tensors, plan.rtol)) is not None
            },
            tuple(sorted({note for variant in variants for note in variant.session.notes})),
            tuning={variant.name: variant.choices for variant in variants if variant.choices},
        )
        _check_kernels(plan, prepared.kernels)
        self._outputs = outputs[REFERENCE]
        return [(variant.name, variant.launch, variant.active) for variant in variants], prepared

    def _images(self) -> tuple[list[_ToTime], Prepared]:
        """Prepare the sides of cubins with a recorded launch, all on the same buffers. Returns the sides and the
        report."""
        import torch

        from tritonhook.capture.store import read_launch
        from tritonhook.timing.replay import Buffers, LoadedKernel, OutputCheck

        plan = self.plan
        assert plan.launch is not None
        buffers = Buffers(read_launch(plan.launch), plan.launch.parent)
        images = {image.side: Path(image.path).read_bytes() for image in plan.images}
        load = {image.side: partial(LoadedKernel, images[image.side], image.entry, buffers) for image in plan.images}
        placed = list(CodePlaces(plan.seed).load(load, PLACES))
        kernels = [(name, kernel) for name in load for side, kernel in placed if side == name]  # reference comes first
        prepared = Prepared(
            {image.side: {image.kernel: (described(images[image.side], image.entry),)} for image in plan.images},
            {image.side: Compiled((image.entry,), (image.ptxas,) if image.ptxas else ()) for image in plan.images},
            len(buffers.tensors) if plan.check else 0,
            notes=buffers.notes,
        )
        outputs = OutputCheck(buffers, plan.rtol)
        for name, kernel in kernels:
            if plan.check and (text := outputs.difference(kernel)) is not None:
                prepared.wrong[name] = text
            for _ in range(0 if plan.check else CALLS_BEFORE):
                kernel.launch()
        del outputs
        torch.cuda.synchronize()
        buffers.restore()
        return [(name, kernel.launch, contextlib.nullcontext) for name, kernel in kernels], prepared

    def take(self, wanted: Take) -> Taken:
        from tritonhook.timing.timer import device_errors

        with device_errors():
            return Taken(tuple(self.timer.take_block(wanted.process) for _ in range(wanted.blocks)))

    def _baseline(self, name: str, differ: dict[str, str]) -> _ToTime:
        """Prepare a baseline. It is timed even if its outputs differ, which the report then states."""
        import torch

        launch = load_launch(name)
        for _ in range(CALLS_BEFORE):
            result = launch()
        torch.cuda.synchronize()
        outputs = outputs_of(result)
        text: str | None = "outputs not compared"
        if self._outputs and outputs and self.plan.check:
            fitting = shaped_as(outputs, self._outputs)
            text = difference(self._outputs[: len(fitting)], fitting, BASELINE_RTOL)
        if text is not None:
            differ[name] = text
        return name, launch, contextlib.nullcontext


def _no_launch() -> None:
    """Do nothing; replaces the launch until the target is loaded."""


def _check_kernels(plan: Plan, kernels: dict[str, Kernels]) -> None:
    """Raise UsageError if a side compiled no kernel: then there is nothing to rename and no code to compare."""
    for side in (REFERENCE, CANDIDATE, CONTROL):
        if not kernels[side] and not (side == CANDIDATE and plan.candidate is not None):
            raise UsageError(
                f"{plan.target}: tritonhook saw no kernel that was compiled for the {side}; "
                "the function must return a new launch each time it is called"
            )


def _triton() -> dict[str, str]:
    try:
        import triton
    except ImportError:
        return {}
    return {"triton": triton.__version__}


@contextlib.contextmanager
def _errors_of_the_target() -> Iterator[None]:
    """Convert exceptions of the user's code to UsageError, and print their traceback."""
    try:
        yield
    except TritonHookError:
        raise
    except KeyboardInterrupt:
        raise TritonHookError("interrupted") from None
    except Exception as error:
        import traceback

        traceback.print_exc()
        raise UsageError(f"the target failed: {type(error).__name__}: {error}") from None


def main() -> None:
    answers = own_output()
    with contextlib.suppress(ImportError):
        import torch  # noqa: F401  (takes seconds, so it is done while the process waits for the plan)
    serve(sys.stdin, answers, TimingWorker().carry_out, Prepare, Take)


if __name__ == "__main__":
    main()
