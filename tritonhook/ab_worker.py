"""One process of a timed comparison: `python -m tritonhook.ab_worker`, started by ab_run.

It reads one line of JSON that says what to compare, answers with what it prepared, and then takes as many blocks
as each further line asks for. One JSON document per line both ways; what the target prints goes to stderr.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TextIO

from tritonhook.errors import DeviceError, TritonHookError, UsageError
from tritonhook.inductor_tuning import forget_compiled, inductor_choices
from tritonhook.measurement import CANDIDATE, CONTROL, REFERENCE
from tritonhook.ptx import Ptx
from tritonhook.rename import Control, Rename, Rewrite
from tritonhook.subject import load_function

_PTXAS_VARIABLES = ("TRITON_PTXAS_PATH", "TRITON_PTXAS_BLACKWELL_PATH")
BASELINE_RTOL = 0.02  # of the largest value: two ways to compute attention in bf16 differ by about half of it
_CALLS_BEFORE = 2  # the first compiles and tunes, the second shows that it is over


@dataclass(frozen=True, slots=True)
class Image:
    """A side that is a cubin. path: the file. entry: the kernel in it. kernel: what it is called in the report."""

    side: str
    path: str
    entry: str
    kernel: str


@dataclass(frozen=True, slots=True)
class Plan:
    """What one comparison consists of.

    target: MODULE:FUNCTION, the reference. The candidate is the same launch with its kernels renamed (`rename`), or
    another MODULE:FUNCTION (`candidate`). baselines: timed beside them.
    ptxas: the ptxas for all kernels that Triton compiles; candidate_ptxas: another one for the candidate. Paths.
    out: the folder that gets each side's captures. only: rename only kernels whose name it matches.
    rtol: how far outputs may differ, as a share of the largest value; None asks for equal bits. check: compare them.
    path: entries for sys.path, where the targets are found.
    even_same: time the sides even if they have the same code, as a calibration does.
    candidate_options: further options for the candidate's ptxas. fixes: rewrites, by name, for the candidate.
    tune_each: autotuned kernels are tuned on each side; else all take the reference's configuration.
    baseline_rtol: how far a baseline's outputs may differ from the reference's before that is reported.
    images: instead of a target that launches, a cubin for each side, launched as recorded in the file `launch`.
    """

    target: str
    out: Path
    rename: Rename | None = None
    candidate: str | None = None
    baselines: tuple[str, ...] = ()
    ptxas: str | None = None
    candidate_ptxas: str | None = None
    only: str | None = None
    cold: bool = True
    rtol: float | None = None
    check: bool = True
    seed: int = 0
    path: tuple[str, ...] = ()
    even_same: bool = False
    candidate_options: str | None = None
    fixes: tuple[str, ...] = ()
    tune_each: bool = False
    baseline_rtol: float = BASELINE_RTOL
    images: tuple[Image, ...] = ()
    launch: Path | None = None

    def __post_init__(self) -> None:
        differs = (self.rename, self.candidate, self.candidate_ptxas, self.candidate_options)
        if all(item is None for item in differs) and not self.fixes and not self.images:
            raise UsageError("nothing to compare with: a rename, a candidate, a rewrite or another ptxas is needed")

    @property
    def control(self) -> Rename | Control:
        """What gives the reference's kernels a name that means nothing."""
        return Rename(prefix="control_") if self.rename is None else Control(self.rename)

    def to_json(self) -> str:
        paths = {"out": str(self.out), "launch": None if self.launch is None else str(self.launch)}
        return json.dumps(asdict(self) | paths)

    @classmethod
    def from_json(cls, text: str) -> Plan:
        fields: dict[str, Any] = json.loads(text)
        fields["rename"] = None if fields["rename"] is None else Rename(**fields["rename"])
        fields["out"] = Path(fields["out"])
        fields["launch"] = None if fields["launch"] is None else Path(fields["launch"])
        fields["images"] = tuple(Image(**image) for image in fields["images"])
        fields |= {name: tuple(fields[name]) for name in ("baselines", "path", "fixes")}
        return cls(**fields)


@dataclass(frozen=True, slots=True)
class AssembledBy:
    """Changes no PTX: it gives kernels of another ptxas, or of other options, cache keys of their own."""

    path: str
    options: str = ""

    @property
    def key(self) -> str:
        stat = Path(self.path).stat()
        return f"assembled-by-1:{self.path}:{stat.st_size}:{stat.st_mtime_ns}:{self.options}"

    def apply(self, ptx: Ptx) -> Ptx:
        return ptx


@contextlib.contextmanager
def triton_ptxas(path: str | None) -> Iterator[None]:
    """Triton compiles with this ptxas for the length of a `with` block; None changes nothing."""
    if path is None:
        yield
        return
    before = {name: os.environ.get(name) for name in _PTXAS_VARIABLES}
    os.environ.update(dict.fromkeys(_PTXAS_VARIABLES, path))
    _forget_ptxas_version()
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        _forget_ptxas_version()


def _forget_ptxas_version() -> None:
    """Triton asks ptxas for its version once per process and derives the PTX version from it."""
    from triton.backends.nvidia import compiler

    for name in ("get_ptxas_version", "get_features"):
        forget = getattr(getattr(compiler, name, None), "cache_clear", None)
        if forget is not None:
            forget()


def with_options(ptxas: str, options: str, folder: Path) -> str:
    """A program that is this ptxas with further options, which stand last. Triton takes options for a kernel only from
    its source, or from the environment at import."""
    program = folder / f"ptxas-{hashlib.sha256(f'{ptxas} {options}'.encode()).hexdigest()[:12]}"
    folder.mkdir(parents=True, exist_ok=True)
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(ptxas)} "$@" {shlex.join(shlex.split(options))}\n')
    program.chmod(0o755)
    return str(program)


def _own_ptxas() -> str:
    """The ptxas that Triton would take for the current device."""
    import torch

    from tritonhook.triton_compile import assembler_of

    major, minor = torch.cuda.get_device_capability()
    path = assembler_of(10 * major + minor, {}).path
    assert path is not None
    return path


class Variant:
    """One side of the comparison: a launch under a session that rewrites, or takes another ptxas, or does neither."""

    def __init__(
        self,
        name: str,
        plan: Plan,
        launch: Callable[[], Any],
        rewrites: Sequence[Rewrite | str],
        chosen: Mapping[str, str] | None = None,
    ) -> None:
        """chosen: what the reference's kernels were tuned to, which is to hold for this side."""
        from tritonhook.ptx_capture import make_settings, new_session

        other = plan.candidate_ptxas if name == CANDIDATE else None
        options = plan.candidate_options if name == CANDIDATE else None
        self.name = name
        self.launch = launch
        self.ptxas = other or plan.ptxas
        real = self.ptxas
        if options is not None:
            real = real or _own_ptxas()
            self.ptxas = with_options(real, options, plan.out)
        told_apart = (AssembledBy(real, options or ""),) if real else ()
        self.session = new_session(make_settings(plan.out / name, only=plan.only, rewrites=(*rewrites, *told_apart)))
        self.choices: dict[str, str] = {}
        self._own: dict[int, Any] | None = {} if plan.tune_each else None
        self._chosen = None if plan.tune_each or chosen is None else dict(chosen)

    @contextlib.contextmanager
    def active(self) -> Iterator[None]:
        with triton_ptxas(self.ptxas), self._tuned(), inductor_choices(self.choices, self._chosen):
            self.session.install()
            try:
                yield
            finally:
                self.session.leave()

    def _tuned(self) -> contextlib.AbstractContextManager[None]:
        from tritonhook.triton_autotune import choices_of

        with_triton = "triton" in self.session.front_ends
        return choices_of(self.choices, self._own) if with_triton else contextlib.nullcontext()

    def first_calls(self, target: str) -> list[Any]:
        """Compile, and return the outputs. If this side's session meets no kernel, the launch keeps compiled code,
        as torch.compile's and CuTe's do: then the target makes a launch anew, with buffers of its own."""
        result = self._call()
        if not self.session.seen:
            forget_compiled()
            os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(self.session.out.with_name(f"inductor-{self.name}"))
            with self.active():
                self.launch = load_launch(target)
            result = self._call()
            self.session.note(f"the {self.name} has a launch and buffers of its own: the target keeps compiled code")
        return outputs_of(result)

    def _call(self) -> Any:
        import torch

        with self.active():
            for _ in range(_CALLS_BEFORE):
                result = self.launch()
            torch.cuda.synchronize()
        return result

    def check_names(self, rename: Rename | Control | None) -> None:
        """Raises UsageError if a kernel that runs kept a name which the rename changes: it would be compared with
        itself."""
        from tritonhook.store import CaptureFolder

        if rename is None:
            return
        folder = CaptureFolder.open(self.session.out)
        for record in self.session.kernels:
            capture = folder.capture(record)
            if record in folder.lost or capture.rewritten_from is not None:
                continue
            if (new := rename.new_name(capture.kernel)) != capture.kernel:
                why = "".join(f"; {note}" for note in self.session.notes)
                raise UsageError(f"{capture.kernel} was not renamed to {new} as the {self.name}{why}")

    def kernels(self) -> dict[str, list[dict[str, Any]]]:
        """Code (its digest), registers and stack of each kernel it launches, by the name in the source; one entry per
        configuration. Those that lost an autotuning are left out."""
        from tritonhook.store import CaptureFolder

        folder = CaptureFolder.open(self.session.out)
        found: dict[str, list[dict[str, Any]]] = {}
        for record in self.session.kernels:
            if record in folder.lost:
                continue
            capture = folder.capture(record)
            entry = described(capture.cubin, capture.kernel)
            found.setdefault(capture.rewritten_from or capture.kernel, []).append(entry)
        return {name: sorted(entries, key=lambda entry: str(entry["code"])) for name, entries in found.items()}


def described(image: bytes, kernel: str) -> dict[str, Any]:
    """A kernel's code (its digest), registers and stack."""
    from tritonhook.cubin import Cubin

    cubin = Cubin.from_bytes(image, kernel)
    used = cubin.resources[kernel]
    digest = hashlib.sha256(cubin.text(kernel)).hexdigest()
    return {"code": digest, "registers": used.registers, "stack": used.stack}


def load_launch(target: str) -> Callable[[], Any]:
    """The launch behind MODULE:FUNCTION. The function is called once: if it returns a function, that launches;
    else the function itself does. A launch returns its output tensors, or nothing."""
    function = load_function(target)
    made: Any = function()
    launch: Callable[[], Any] = made if callable(made) else function
    return launch


def outputs_of(result: Any) -> list[Any]:
    """Copies of the tensors a launch returned, in order, so that the next launch cannot change them."""
    import torch

    if isinstance(result, torch.Tensor):
        return [result.detach().clone()]
    if isinstance(result, dict):
        result = list(result.values())
    if isinstance(result, (list, tuple)):
        return [tensor for item in result for tensor in outputs_of(item)]
    return []


def difference(reference: list[Any], candidate: list[Any], rtol: float | None) -> str | None:
    """How the outputs differ, in a sentence; None if they are equal (bit for bit, or within `rtol`)."""
    import torch

    if len(reference) != len(candidate):
        return f"{len(candidate)} output tensors instead of {len(reference)}"
    for index, (a, b) in enumerate(zip(reference, candidate, strict=True)):
        if a.shape != b.shape or a.dtype != b.dtype:
            return f"output {index} is {b.dtype} {tuple(b.shape)}, not {a.dtype} {tuple(a.shape)}"
        bits_a, bits_b = (t.contiguous().reshape(-1).view(torch.uint8) for t in (a, b))  # a number has no view
        if torch.equal(bits_a, bits_b):
            continue
        x, y = ((torch.view_as_real(t) if t.is_complex() else t).double() for t in (a, b))
        worst = (x - y).abs().max().item()
        if rtol is None:
            return f"output {index} differs in its bits (largest difference {worst:.3g})"
        scale = x.abs().max().item()
        if not worst <= rtol * max(scale, torch.finfo(torch.float32).tiny):  # NaN is a difference too
            return f"output {index} differs by {worst:.3g} where the largest value is {scale:.3g} (rtol {rtol:g})"
    return None


def shaped_as(outputs: list[Any], reference: list[Any]) -> list[Any]:
    """A baseline's outputs in the reference's shapes and types, where they hold as many values: [4, 16, S, D] is
    [64, S, D] to whom it does not matter. Outputs that the reference does not have are left out."""
    fitting = []
    for ours, theirs in zip(outputs, reference, strict=False):
        same = ours.numel() == theirs.numel() and ours.is_floating_point() == theirs.is_floating_point()
        fitting.append(ours.reshape(theirs.shape).to(theirs.dtype) if same else ours)
    return fitting


_Timed = tuple[str, Callable[[], Any], Callable[[], contextlib.AbstractContextManager[Any]]]


class Worker:
    """The comparison in this process."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.timer: Any = None
        self._outputs: list[Any] = []  # the reference's, until the baselines have been compared

    def prepare(self) -> dict[str, Any]:
        """Run every side, compare outputs and code, and make the timer ready. Times nothing that is wrong."""
        try:
            import torch
        except ModuleNotFoundError:
            raise DeviceError(
                "torch is not installed: a timed comparison needs it, and a GPU; `tritonhook ab FILE` needs neither"
            ) from None
        if not torch.cuda.is_available():
            raise DeviceError(
                "no GPU that torch can use: a timed comparison needs one; `tritonhook ab FILE` needs none"
            )
        from tritonhook.gpu_timer import Side, Timer, device_errors

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
            timed = [Side(name, launch, within) for name, launch, within in (*sides, *baselines)]
            self.timer = Timer(timed, plan.cold, plan.seed)
            self.timer.prepare()
        report["flushes"] = self.timer.flushes
        report["sides"] = {
            side.name: {"copies": side.copies, "graph": side.graph is not None, "why_eager": side.why_eager}
            for side in timed
        }
        return report

    def _launches(self) -> tuple[list[_Timed], dict[str, Any]]:
        """The sides of a target that launches by itself."""
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
        candidate = Variant(CANDIDATE, plan, other, (*rename, *plan.fixes), reference.choices)
        outputs[CANDIDATE] = candidate.first_calls(plan.candidate or plan.target)
        control = Variant(CONTROL, plan, launch, (plan.control,), reference.choices)
        outputs[CONTROL] = control.first_calls(plan.target)
        variants = [reference, candidate, control]
        candidate.check_names(plan.rename)
        control.check_names(plan.control)
        report: dict[str, Any] = {"kernels": {variant.name: variant.kernels() for variant in variants}}
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

    def _images(self) -> tuple[list[_Timed], dict[str, Any]]:
        """The sides of two cubins and a record of a launch: all on the same buffers."""
        import torch

        from tritonhook.launch_replay import Buffers, Kernel
        from tritonhook.store import read_launch

        plan = self.plan
        assert plan.launch is not None
        buffers = Buffers(read_launch(plan.launch), plan.launch.parent)
        images = {image.side: Path(image.path).read_bytes() for image in plan.images}
        kernels = [(image.side, Kernel(images[image.side], image.entry, buffers)) for image in plan.images]
        report: dict[str, Any] = {
            "kernels": {
                image.side: {image.kernel: [described(images[image.side], image.entry)]} for image in plan.images
            },
            "wrong": {},
            "outputs": len(buffers.tensors) if plan.check else 0,
            "notes": list(buffers.notes),
        }
        reference: list[Any] | None = None
        for name, kernel in kernels:
            buffers.restore()
            for _ in range(_CALLS_BEFORE if not plan.check else 1):
                kernel.launch()
            torch.cuda.synchronize()
            if plan.check:
                contents = buffers.contents()
                reference = contents if reference is None else reference
                if (text := difference(reference, contents, plan.rtol)) is not None:
                    report["wrong"][name] = text
                del contents
        del reference
        buffers.restore()
        return [(name, kernel.launch, contextlib.nullcontext) for name, kernel in kernels], report

    def take(self, count: int, process: int) -> list[dict[str, Any]]:
        from tritonhook.gpu_timer import device_errors

        with device_errors():
            return [asdict(self.timer.take_block(process)) for _ in range(count)]

    def _baseline(self, name: str, report: dict[str, Any]) -> _Timed:
        """A baseline is timed even if it computes something else, and the report says that it does."""
        import torch

        launch = load_launch(name)
        for _ in range(_CALLS_BEFORE):
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
    """Until the target has been loaded."""


def _check_kernels(plan: Plan, kernels: dict[str, dict[str, Any]]) -> None:
    """Without kernels there is nothing to rename, and equal names would pass for equal code."""
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
            return  # it was started ahead and is not needed
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
    os.dup2(2, 1)  # what the target prints must not stand between the answers
    with contextlib.suppress(ImportError):
        import torch  # noqa: F401  (seconds of work that needs no plan yet)
    serve(sys.stdin, answers)


if __name__ == "__main__":
    main()
