"""A process of a dry run, from its beginning to its end: what is replaced in Triton and torch once they are
imported."""

from __future__ import annotations

from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path

from tritonhook.capture.dry_run.gpu import DryRun
from tritonhook.capture.dry_run.notes import notes


def check_assembled(dry: DryRun) -> None:
    """Raises ToolError if no ptxas of this Python's Triton knows the architecture."""
    if find_spec("triton") is not None:
        from tritonhook.capture.triton.metadata import assembler_of
        from tritonhook.ptxas.tool import check_targets, tool_at

        check_targets([dry.arch], [tool_at(Path(assembler_of(dry.capability, {}).path or ""), "Triton")])


def begin_triton(dry: DryRun) -> ExitStack:
    """Let Triton compile for the GPU of the dry run, and launch nothing, until the stack is closed."""
    from tritonhook.capture.dry_run.autotuner import choosing, tuners
    from tritonhook.capture.dry_run.driver import DryDriver, active, room_for_all, without_cublas, without_measuring
    from tritonhook.capture.dry_run.ptxas_limit import limited

    with ExitStack() as stack:
        stack.enter_context(active(DryDriver(dry)))
        stack.enter_context(without_measuring())
        stack.enter_context(without_cublas(notes.add))
        stack.enter_context(room_for_all(notes.add, lambda: tuners.trying))
        stack.enter_context(limited(dry.ptxas_seconds, notes.add, lambda: tuners.trying))
        stack.enter_context(choosing(dry.autotune))
        return stack.pop_all()


def begin_torch(dry: DryRun) -> ExitStack:
    """Let torch say that there is that GPU, and keep tensors in the CPU's memory, until the stack is closed."""
    from tritonhook.capture.dry_run.torch_compile import await_inductor
    from tritonhook.capture.dry_run.torch_cuda import cuda_answers
    from tritonhook.capture.dry_run.torch_distributed import without_nccl
    from tritonhook.capture.dry_run.torch_tensors import tensors_on_the_gpu

    with ExitStack() as stack:
        stack.enter_context(cuda_answers(dry))
        stack.enter_context(without_nccl(notes.add))
        await_inductor(stack, dry.autotune)
        stack.enter_context(tensors_on_the_gpu(dry.memory))
        return stack.pop_all()


def begin_cute(dry: DryRun) -> ExitStack:
    """Let the CuTe DSL launch nothing, until the stack is closed."""
    from tritonhook.capture.dry_run.cute import nothing_launched

    return nothing_launched()
