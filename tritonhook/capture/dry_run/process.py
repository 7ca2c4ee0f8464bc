"""A process of a dry run, from its beginning to its end: what is replaced in Triton and torch once they are
imported. NCCL too: gloo carries what processes send each other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tritonhook.capture.dry_run.gpu import DryRun, notes
from tritonhook.capture.patching import patched


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


_NOTE = "NCCL needs GPUs: gloo carried the program's collectives, and kernels of NCCL are not captured"


@contextmanager
def without_nccl() -> Iterator[None]:
    """Begin process groups with gloo, whatever is asked for, and note it."""
    import torch.distributed

    if not torch.distributed.is_available():
        yield
        return
    from torch.distributed import distributed_c10d

    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def begin(*given: Any, **named: Any) -> Any:
            named.pop("device_id", None)  # its group would begin on that GPU at once
            if original.__name__ == "init_process_group":
                given, named["backend"] = given[1:], _gloo((*given, named.get("backend"))[0])
            elif named.get("backend") is not None:
                named["backend"] = _gloo(named["backend"])
            return original(*given, **named)

        return begin

    names = ("init_process_group", "new_group")
    owners = (distributed_c10d, torch.distributed)
    with patched(*((owner, name, wrap) for owner in owners for name in names)):
        yield


def _gloo(backend: Any) -> str:
    """The backend to begin with: gloo, also where none is named, as then torch begins NCCL too."""
    if "nccl" not in str(backend).lower():
        return str(backend or "gloo")
    notes.add(_NOTE)
    return "gloo"
