"""One process of a timed comparison: `python -m tritonhook.timing.worker`, started by coordinator.py.

It reads a plan, answers with what it prepared, and then takes as many blocks as each further line asks for. Each way
one JSON document per line; what the target prints goes to standard error.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, TextIO

from tritonhook.errors import DeviceError, TritonHookError, UsageError
from tritonhook.timing.output_check import difference, outputs_of, shaped_as
from tritonhook.timing.plan import Plan
from tritonhook.timing.statistics import CANDIDATE, CONTROL, REFERENCE
from tritonhook.timing.variant import CALLS_BEFORE, Variant, described, load_launch

_ToTime = tuple[str, Callable[[], Any], Callable[[], contextlib.AbstractContextManager[Any]]]


class Worker:
    """The part of the comparison that runs in this process."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.timer: Any = None
        self._outputs: list[Any] = []  # the reference's, until the baselines have been compared

    def prepare(self) -> dict[str, Any]:
        """Run every side, compare outputs and code; unless they are wrong or equal, make the timer ready."""
        try:
            import torch
        except ModuleNotFoundError:
            raise DeviceError(
                "torch is not installed: a timed comparison needs it, and a GPU; `tritonhook ab FILE` needs neither"
            ) from None
        if not torch.cuda.is_available():
            raise DeviceError(
                "no GPU that torch can use: a timed comparison needs one; `tritonhook ab FILE` needs no GPU"
            )
        from tritonhook.timing.timer import TimedSide, Timer, device_errors

        plan = self.plan
        sys.path[:0] = [entry for entry in plan.path if entry not in sys.path]
        with device_errors():
            sides, report = self._images() if plan.images else self._launches()
            report["device"] = torch.cuda.get_device_name()
            report["versions"] = {"torch": torch.__version__, "cuda": torch.version.cuda, **_triton()}
            same = report["kernels"][REFERENCE] == report["kernels"][CANDIDATE]
            if report["wrong"] or (same and not plan.even_same):
                return report
            baselines = [self._baseline(name, report) for name in plan.baselines]
            self._outputs = []
            timed = [TimedSide(name, launch, within) for name, launch, within in (*sides, *baselines)]
            self.timer = Timer(timed, plan.cold, plan.seed)
            self.timer.prepare()
        report["flushes"] = self.timer.flushes
        report["sides"] = {
            side.name: {"copies": side.copies, "graph": side.graph is not None, "why_eager": side.why_eager}
            for side in timed
        }
        return report

    def _launches(self) -> tuple[list[_ToTime], dict[str, Any]]:
        """Prepare the sides of a target that launches by itself; they, and the report."""
        plan = self.plan
        # What torch.compile leaves on disk would make the next process tune and compile something else.
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(plan.out / "inductor")
        os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
        reference = Variant(REFERENCE, plan, _no_launch, ())
        with reference.active():  # a target may compile before it launches
            reference.launch = launch = load_launch(plan.target)
        outputs = {REFERENCE: reference.first_calls(plan.target)}
        other = launch if plan.candidate is None else load_launch(plan.candidate)
        rename = () if plan.rename is None else (plan.rename,)
        candidate = Variant(CANDIDATE, plan, other, (*rename, *plan.rewrites), reference.choices)
        outputs[CANDIDATE] = candidate.first_calls(plan.candidate or plan.target)
        control = Variant(CONTROL, plan, launch, (plan.control,), reference.choices)
        outputs[CONTROL] = control.first_calls(plan.target)
        variants = [reference, candidate, control]
        candidate.check_names(plan.rename)
        control.check_names(plan.control)
        report: dict[str, Any] = {"kernels": {variant.name: variant.kernels() for variant in variants}}
        report["compiled"] = {variant.name: variant.compiled() for variant in variants}
        _check_kernels(plan, report["kernels"])
        report["wrong"] = {
            name: text
            for name, tensors in outputs.items()
            if plan.check and (text := difference(outputs[REFERENCE], tensors, plan.rtol)) is not None
        }
        report["outputs"] = len(outputs[REFERENCE]) if plan.check else 0
        report["notes"] = sorted({note for variant in variants for note in variant.session.notes})
        report["tuning"] = {variant.name: variant.choices for variant in variants if variant.choices}
        self._outputs = outputs[REFERENCE]
        return [(variant.name, variant.launch, variant.active) for variant in variants], report

    def _images(self) -> tuple[list[_ToTime], dict[str, Any]]:
        """Prepare the sides that are cubins with a recorded launch, all on the same buffers; they, and the report."""
        import torch

        from tritonhook.capture.store import read_launch
        from tritonhook.timing.replay import Buffers, LoadedKernel, OutputCheck

        plan = self.plan
        assert plan.launch is not None
        buffers = Buffers(read_launch(plan.launch), plan.launch.parent)
        images = {image.side: Path(image.path).read_bytes() for image in plan.images}
        kernels = [(image.side, LoadedKernel(images[image.side], image.entry, buffers)) for image in plan.images]
        report: dict[str, Any] = {
            "kernels": {
                image.side: {image.kernel: [described(images[image.side], image.entry)]} for image in plan.images
            },
            "compiled": {
                image.side: {"kernels": [image.entry], "ptxas": [image.ptxas] if image.ptxas else []}
                for image in plan.images
            },
            "wrong": {},
            "outputs": len(buffers.tensors) if plan.check else 0,
            "notes": list(buffers.notes),
        }
        outputs = OutputCheck(buffers, plan.rtol)
        for name, kernel in kernels:
            if plan.check and (text := outputs.difference(kernel)) is not None:
                report["wrong"][name] = text
            for _ in range(0 if plan.check else CALLS_BEFORE):
                kernel.launch()
        del outputs
        torch.cuda.synchronize()
        buffers.restore()
        return [(name, kernel.launch, contextlib.nullcontext) for name, kernel in kernels], report

    def take(self, count: int, process: int) -> list[dict[str, Any]]:
        from tritonhook.timing.timer import device_errors

        with device_errors():
            return [asdict(self.timer.take_block(process)) for _ in range(count)]

    def _baseline(self, name: str, report: dict[str, Any]) -> _ToTime:
        """Prepare a baseline. It is timed even if it computes something else; then the report says so."""
        import torch

        launch = load_launch(name)
        for _ in range(CALLS_BEFORE):
            result = launch()
        torch.cuda.synchronize()
        outputs = outputs_of(result)
        text: str | None = "outputs not compared"
        if self._outputs and outputs and self.plan.check:
            fitting = shaped_as(outputs, self._outputs)
            text = difference(self._outputs[: len(fitting)], fitting, self.plan.baseline_rtol)
        if text is not None:
            report.setdefault("baselines", {})[name] = text
        return name, launch, contextlib.nullcontext


def _no_launch() -> None:
    """Stands for the launch until the target is loaded."""


def _check_kernels(plan: Plan, kernels: dict[str, dict[str, Any]]) -> None:
    """Raises UsageError where a side compiled no kernel: there would be nothing to rename, and no code to compare."""
    for side in (REFERENCE, CANDIDATE, CONTROL):
        if not kernels[side] and not (side == CANDIDATE and plan.candidate is not None):
            only = f" whose name matches {plan.only!r}" if plan.only else ""
            raise UsageError(
                f"{plan.target}: the {side} compiled no kernel{only} that tritonhook saw; "
                "let the function return a new launch each time it is called"
            )


def _triton() -> dict[str, str]:
    try:
        import triton
    except ImportError:
        return {}
    return {"triton": triton.__version__}


def serve(orders: TextIO, answers: TextIO, worker_of: Callable[[Plan], Any] = Worker) -> None:
    """Answer each line of `orders`: first the plan, then {"blocks": n, "process": i} until the input ends."""

    def answer(document: dict[str, Any]) -> None:
        answers.write(json.dumps(document) + "\n")
        answers.flush()

    try:
        plan = orders.readline()
        if not plan:
            return  # started in advance, and not needed
        worker = worker_of(Plan.from_json(plan))
        answer({"prepared": worker.prepare()})
        for line in orders:
            order = json.loads(line)
            answer({"blocks": worker.take(order["blocks"], order["process"])})
    except TritonHookError as error:
        answer({"error": str(error), "kind": type(error).__name__})
    except KeyboardInterrupt:
        answer({"error": "interrupted", "kind": "KeyboardInterrupt"})
    except Exception as error:
        import traceback

        traceback.print_exc()
        answer({"error": f"the target failed: {type(error).__name__}: {error}", "kind": "UsageError"})


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what the target prints must not mix with the answers
    with contextlib.suppress(ImportError):
        import torch  # noqa: F401  (takes seconds, and needs no plan)
    serve(sys.stdin, answers)


if __name__ == "__main__":
    main()
