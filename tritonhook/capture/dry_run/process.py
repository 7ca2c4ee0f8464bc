"""Begin and end a dry run in a process: replace functions of Triton, torch and the CuTe DSL after their import. The
time of ptxas is limited too: a note names each kernel that takes longer, and the program continues without the kernel's
machine code."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tritonhook._util.imports import AfterImport
from tritonhook.capture.dry_run.autotuner import tuners
from tritonhook.capture.dry_run.gpu import DryRun, Emulation, notes
from tritonhook.capture.patching import patched
from tritonhook.errors import PtxError
from tritonhook.ptx.module import Ptx


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Stop Triton's ptxas after this time, and add a note for each kernel that therefore has no machine code. In an
    autotuner's trial the error is raised, so that the autotuner skips the configuration."""
    from triton.backends.nvidia import compiler
    from triton.runtime.errors import PTXASError
    from triton.runtime.jit import JITFunction

    TooLong: Any = type("TooLong", (PTXASError,), {})
    left: set[tuple[int, Any]] = set()

    def run(command: Any, *rest: Any, check: bool = False, **options: Any) -> Any:
        code = _status(subprocess.Popen(command, *rest, **options), seconds)
        if code is None:
            kernel = _kernel(command)
            _remove(command, options)
            raise TooLong(f"{kernel}: ptxas was ended after {seconds:g} s (--ptxas-limit): no machine code")
        if check and code:
            raise subprocess.CalledProcessError(code, command)
        return subprocess.CompletedProcess(command, code)

    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def do_compile(kernel: Any, key: Any, *rest: Any, **named: Any) -> Any:
            if (id(kernel), key) in left:
                return None  # as if a hook of Triton had skipped the compile; Triton then launches nothing
            try:
                return original(kernel, key, *rest, **named)
            except TooLong as error:
                notes.add(error.error_message)
                if tuners.trying:
                    raise
                left.add((id(kernel), key))
                return None

        return do_compile

    calls = lambda own: SimpleNamespace(**vars(own) | {"run": run})  # noqa: E731
    with patched((compiler, "subprocess", calls), (JITFunction, "_do_compile", wrap)):
        yield


def _status(process: subprocess.Popen[Any], seconds: float) -> int | None:
    """Wait for a process that has no pipes. Returns its exit status; None if it was killed at the limit. Popen.wait
    with a timeout is not used: it polls and returns up to 50 ms late, which is a tenth of the time of ptxas for small
    kernels."""
    late = threading.Event()

    def end() -> None:
        late.set()
        process.kill()

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()
    with process:  # waits for the process even after an interrupt
        try:
            code = process.wait()
        except BaseException:
            process.kill()
            raise
        finally:
            timer.cancel()
    return None if late.is_set() else code


def _source(command: Any) -> Path | None:
    return next((Path(word) for word in command if str(word).endswith(".ptx")), None)


def _kernel(command: Any) -> str:
    with suppress(OSError, TypeError, PtxError):
        if (source := _source(command)) is not None:
            return Ptx(source.read_text()).only_entry()
    return "a kernel"


def _remove(command: Any, options: dict[str, Any]) -> None:
    """Remove the temporary files of ptxas, which Triton does not remove if ptxas was ended."""
    for path in (_source(command), getattr(options.get("stderr"), "name", None)):
        with suppress(OSError, TypeError):
            Path(path or "").unlink()


def assembled(dry: DryRun) -> DryRun:
    """Return the dry run unchanged. Raises ToolError if the ptxas of the installed Triton does not support its
    architecture."""
    if find_spec("triton") is not None:
        from tritonhook.capture.triton.metadata import assembler_of
        from tritonhook.ptxas.tool import check_targets, tool_at

        ptxas = assembler_of(dry.capability, {}).path
        tool = tool_at(Path(ptxas or ""), "Triton")
        check_targets([dry.arch], [tool])
    return dry


def begin_triton(dry: DryRun) -> ExitStack:
    """Make Triton compile for the GPU of the dry run and launch nothing, until the returned stack is closed."""
    from tritonhook.capture.dry_run.autotuner import choosing
    from tritonhook.capture.dry_run.driver import DryDriver, active, room_for_all, without_cublas, without_measuring

    changes = without_measuring(), without_cublas(), room_for_all(dry.launch_anyway), limited(dry.ptxas_seconds)
    return _begun(active(DryDriver(dry)), *changes, choosing(dry.autotune))


def begin_torch(dry: DryRun) -> ExitStack:
    """Make torch report the GPU of the dry run and allocate in the CPU's memory, until the returned stack is closed."""
    from tritonhook.capture.dry_run.torch_compile import awaited_inductor
    from tritonhook.capture.dry_run.torch_cuda import cuda_answers
    from tritonhook.capture.dry_run.torch_distributed import without_nccl
    from tritonhook.capture.dry_run.torch_precision import autocast_of_the_gpu, rounded_once
    from tritonhook.capture.dry_run.torch_tensors import tensors_on_the_gpu

    emulation = Emulation.from_environment(os.environ)
    real = [rounded_once(), autocast_of_the_gpu()] if emulation is not None else []
    if emulation is not None and emulation.compared is not None:
        import torch

        torch.manual_seed(0)  # so that a program that sets no seed draws the same inputs in each execution
    return _begun(*real, cuda_answers(dry), without_nccl(), awaited_inductor(dry), tensors_on_the_gpu(dry.memory))


def _begun(*changes: AbstractContextManager[Any]) -> ExitStack:
    with ExitStack() as stack:
        for change in changes:
            stack.enter_context(change)
        return stack.pop_all()


def begin_cute(dry: DryRun) -> ExitStack:
    """Make the CuTe DSL launch nothing, and refuse launches that the GPU would refuse, until the returned stack is
    closed."""
    from tritonhook.capture.dry_run.cute import nothing_launched

    return nothing_launched(dry)


@contextmanager
def dry_program(arch: str) -> Iterator[DryRun]:
    """Make this program compile for an architecture and launch nothing during a `with` block. This includes libraries
    that are imported in the block. Raises UsageError for an unknown architecture, ToolError if ptxas does not support
    it."""
    dry = assembled(DryRun.of(arch))
    with ExitStack() as stack:
        for name, begin in (("torch", begin_torch), ("triton", begin_triton), ("cutlass", begin_cute)):
            waiting = AfterImport(name, lambda begin=begin: stack.enter_context(begin(dry)))  # type: ignore[misc]
            stack.callback(waiting.end)
            waiting.begin()
        yield dry
