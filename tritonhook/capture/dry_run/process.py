"""A process of a dry run, from its beginning to its end: what is replaced in Triton and torch once they are
imported."""

from __future__ import annotations

from contextlib import AbstractContextManager, ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tritonhook.capture.dry_run.gpu import DryRun


def check_assembled(dry: DryRun) -> None:
    """Raises ToolError if no ptxas of this Python's Triton knows the architecture."""
    if find_spec("triton") is not None:
        from tritonhook.capture.triton.metadata import assembler_of
        from tritonhook.ptxas.tool import check_targets, tool_at

        check_targets([dry.arch], [tool_at(Path(assembler_of(dry.capability, {}).path or ""), "Triton")])


def begin_triton(dry: DryRun) -> ExitStack:
    """Let Triton compile for the GPU of the dry run, and launch nothing, until the stack is closed."""
    from tritonhook.capture.dry_run.autotuner import choosing
    from tritonhook.capture.dry_run.driver import DryDriver, active, room_for_all, without_cublas, without_measuring
    from tritonhook.capture.dry_run.ptxas_limit import limited

    changes = without_measuring(), without_cublas(), room_for_all(), limited(dry.ptxas_seconds), choosing(dry.autotune)
    return _begun(active(DryDriver(dry)), *changes)


def begin_torch(dry: DryRun) -> ExitStack:
    """Let torch say that there is that GPU, and keep tensors in the CPU's memory, until the stack is closed."""
    from tritonhook.capture.dry_run.torch_compile import awaited_inductor
    from tritonhook.capture.dry_run.torch_cuda import cuda_answers
    from tritonhook.capture.dry_run.torch_distributed import without_nccl
    from tritonhook.capture.dry_run.torch_tensors import tensors_on_the_gpu

    return _begun(cuda_answers(dry), without_nccl(), awaited_inductor(dry), tensors_on_the_gpu(dry.memory))


def _begun(*changes: AbstractContextManager[Any]) -> ExitStack:
    with ExitStack() as stack:
        for change in changes:
            stack.enter_context(change)
        return stack.pop_all()


def begin_cute(dry: DryRun) -> ExitStack:
    """Let the CuTe DSL launch nothing, until the stack is closed."""
    from tritonhook.capture.dry_run.cute import nothing_launched

    return nothing_launched()
