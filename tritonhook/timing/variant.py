"""One side of a timed comparison of a target function, which launches its kernels itself.

The function runs under the side's own capture session, which renames, rewrites or uses another ptxas, and captures the
compiled kernels.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from tritonhook._util.imports import load_function
from tritonhook.capture.patching import patched
from tritonhook.errors import UsageError
from tritonhook.rename import Control, Rename, Rewrite
from tritonhook.timing.inductor_choices import forget_compiled, inductor_choices
from tritonhook.timing.output_check import outputs_of
from tritonhook.timing.plan import Compiled, KernelCode, Kernels, Plan
from tritonhook.timing.statistics import CANDIDATE

if TYPE_CHECKING:
    from tritonhook.capture.model import Capture

CALLS_BEFORE = 2  # the first call compiles and tunes; after the second nothing is left to compile


class Variant:
    """One side of the comparison: a launch under its own capture session."""

    def __init__(
        self,
        name: str,
        plan: Plan,
        launch: Callable[[], Any],
        rewrites: Sequence[Rewrite | str],
        chosen: Mapping[str, str] | None = None,
    ) -> None:
        """Set up a side. launch: the function to time. chosen: configurations of the reference's autotuned kernels, to
        use on this side; None: this side is tuned."""
        from tritonhook.capture.front_ends import new_session
        from tritonhook.capture.settings import make_settings

        is_candidate = name == CANDIDATE
        self.name = name
        self.launch = launch
        settings = make_settings(
            plan.out / name,
            rewrites=rewrites,
            ptxas=(plan.candidate_ptxas if is_candidate else None) or plan.ptxas,
            options=plan.candidate_options if is_candidate else None,
        )
        self.session = new_session(settings)
        self.choices: dict[str, str] = {}
        self._loaded: dict[int, Any] = {}
        self._own: dict[int, Any] | None = {} if plan.tune_each else None
        self._chosen = None if plan.tune_each or chosen is None else dict(chosen)

    @contextmanager
    def active(self) -> Iterator[None]:
        with ExitStack() as stack:
            if "triton" in self.session.front_ends:
                from tritonhook.capture.triton.autotuner import choices_of

                stack.enter_context(choices_of(self.choices, self._own))
                stack.enter_context(noting_loads(self._loaded))
            stack.enter_context(inductor_choices(self.choices, self._chosen))
            stack.callback(self.session.leave)
            self.session.install()
            yield

    def load_again(self) -> None:
        """Load the side's Triton kernels again, so that they get new addresses."""
        if self._loaded:
            forget_loaded(self._loaded)
            self._call()

    def first_calls(self, target: str) -> list[Any]:
        """Call the launch until everything is compiled, and return its outputs.

        If the session sees no kernel, the launch keeps code that was compiled for another side, as with torch.compile
        and CuTe. Then the target is called again to make a new launch, with its own buffers.
        """
        result = self._call()
        if not self.session.seen:
            forget_compiled()
            os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(self.session.out.with_name(f"inductor-{self.name}"))
            with self.active():
                self.launch = load_launch(target)
            result = self._call()
            self.session.note(
                f"the {self.name} has its own launch and buffers, because the target keeps compiled code; the target "
                "must fill these buffers with the same values on every call"
            )
        return outputs_of(result)

    def _call(self) -> Any:
        import torch

        with self.active():
            for _ in range(CALLS_BEFORE):
                result = self.launch()
            torch.cuda.synchronize()
        return result

    def _captures(self) -> list[Capture]:
        """Read the captured kernels, without those that lost an autotuning."""
        from tritonhook.capture.store import CaptureFolder

        folder = CaptureFolder.open(self.session.out)
        return [folder.capture(record) for record in self.session.records if record not in folder.lost]

    def check_names(self, rename: Rename | Control | None) -> None:
        """Raise UsageError if a launched kernel still has a name that the rename changes, since it would be compared
        with itself."""
        for capture in self._captures():
            new = capture.kernel if rename is None else rename.new_name(capture.kernel)
            if capture.rewritten_from is None and new != capture.kernel:
                why = "".join(f"; {note}" for note in self.session.notes)
                raise UsageError(f"{capture.kernel} was not renamed to {new} for the {self.name}{why}")

    def compiled(self) -> Compiled:
        """List the names of the compiled kernels, and the versions of ptxas that made them, if known."""
        captures = self._captures()
        versions = {capture.assembler.version for capture in captures} - {None}
        return Compiled(tuple(sorted({c.kernel for c in captures})), tuple(sorted(map(str, versions))))

    def kernels(self) -> Kernels:
        """Map each launched kernel's source name to its code, one entry for each configuration. Configurations that
        lost an autotuning are omitted."""
        codes: dict[str, list[KernelCode]] = {}
        for capture in self._captures():
            entry = described(capture.cubin, capture.kernel)
            codes.setdefault(capture.rewritten_from or capture.kernel, []).append(entry)
        return {name: tuple(sorted(entries, key=lambda entry: entry.code)) for name, entries in codes.items()}


def described(image: bytes, kernel: str) -> KernelCode:
    """Compute the hash of a kernel's code, and read its registers and stack."""
    from tritonhook.cubin.image import Cubin

    cubin = Cubin.from_bytes(image, kernel)
    used = cubin.resources[kernel]
    digest = hashlib.sha256(cubin.text(kernel)).hexdigest()
    return KernelCode(digest, used.registers, used.stack)


def load_launch(target: str) -> Callable[[], Any]:
    """Load MODULE:FUNCTION, call it once, and return the launch: the function that FUNCTION returned. If it returned no
    function, the launch is FUNCTION itself. A launch returns its output tensors, or nothing."""
    function = load_function(target)
    made: Any = function()
    launch: Callable[[], Any] = made if callable(made) else function
    return launch


# --- loading kernels again -----------------------------------------------------------------------


@contextmanager
def noting_loads(kernels: dict[int, Any]) -> Iterator[None]:
    """Add each kernel that Triton loads in the `with` block to `kernels`: id(kernel) -> kernel. Triton does not load
    kernels of torch.compile's static launcher and of the CuTe DSL."""
    from triton.compiler import CompiledKernel

    def noting(original: Callable[..., Any]) -> Callable[..., Any]:
        def init(kernel: Any, *arguments: Any) -> Any:
            kernels[id(kernel)] = kernel
            return original(kernel, *arguments)

        return init

    with patched((CompiledKernel, "_init_handles", noting)):
        yield


def forget_loaded(kernels: dict[int, Any]) -> None:
    """Make Triton load these kernels again at their next launch. Their old code stays in GPU memory."""
    for kernel in kernels.values():
        kernel.module = kernel.function = kernel._run = None
