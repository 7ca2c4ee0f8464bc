"""A limit for ptxas in a dry run: a kernel for which it takes minutes is named, and the program goes on without it."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tritonhook.capture.dry_run.autotuner import tuners
from tritonhook.capture.dry_run.gpu import notes
from tritonhook.capture.patching import patched
from tritonhook.errors import PtxError
from tritonhook.ptx.module import Ptx


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """End a ptxas that Triton runs for longer, and note each kernel that has no machine code. An autotuner that tries a
    configuration gets the error, and passes it over."""
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
                return None  # as where a hook of Triton has it not compiled: nothing is launched
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
    """Wait for a program without pipes, and return its status; None if it took too long, and was ended. Python's own
    limit asks again and again, and sees the end up to 50 ms late: a tenth of what ptxas takes for small kernels."""
    late = threading.Event()

    def end() -> None:
        late.set()
        process.kill()

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()
    with process:  # waits also where this thread is interrupted
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
    """Remove the files that Triton leaves behind with this error."""
    for path in (_source(command), getattr(options.get("stderr"), "name", None)):
        with suppress(OSError, TypeError):
            Path(path or "").unlink()
