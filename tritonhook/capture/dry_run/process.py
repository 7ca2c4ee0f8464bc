"""A process of a dry run, from its beginning to its end: what is replaced in Triton and torch once they are
imported."""

from __future__ import annotations

from contextlib import ExitStack

from tritonhook.capture.dry_run.gpu import DryRun
from tritonhook.capture.triton.listener import listening


def begin_triton(dry: DryRun) -> ExitStack:
    """Let Triton compile for the GPU of the dry run, and launch nothing, until the stack is closed."""
    from tritonhook.capture.dry_run.autotuner import choosing, tuners
    from tritonhook.capture.dry_run.driver import DryDriver, active, room_for_all, without_measuring

    with ExitStack() as stack:
        stack.enter_context(active(DryDriver(dry)))
        stack.enter_context(without_measuring())
        stack.enter_context(room_for_all(_note, lambda: tuners.trying))
        stack.enter_context(choosing(dry.autotune))
        return stack.pop_all()


def begin_torch(dry: DryRun) -> ExitStack:
    """Let torch say that there is that GPU, and keep tensors in the CPU's memory, until the stack is closed."""
    from tritonhook.capture.dry_run.torch_cuda import cuda_answers
    from tritonhook.capture.dry_run.torch_tensors import tensors_on_the_gpu

    with ExitStack() as stack:
        stack.enter_context(cuda_answers(dry))
        stack.enter_context(tensors_on_the_gpu())
        return stack.pop_all()


def _note(text: str) -> None:
    for session in listening.sessions:
        session.note(text)
