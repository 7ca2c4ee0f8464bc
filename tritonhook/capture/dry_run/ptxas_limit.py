"""A limit for ptxas in a dry run: a kernel for which it takes minutes is named, and the program goes on without it."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tritonhook.capture.patching import Patch
from tritonhook.errors import PtxError
from tritonhook.ptx.module import Ptx


@contextmanager
def limited(seconds: float, note: Callable[[str], None], trying: Callable[[], bool]) -> Iterator[None]:
    """End a ptxas that Triton runs for longer. note: takes a line for each kernel that has no machine code. trying:
    whether an autotuner tries a configuration now: then it gets the error, and passes it over."""
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
                note(error.error_message)
                if trying():
                    raise
                left.add((id(kernel), key))
                return None

        return do_compile

    calls = Patch(compiler, "subprocess", lambda own: SimpleNamespace(**vars(own) | {"run": run}))
    patches = (calls, Patch(JITFunction, "_do_compile", wrap))
    try:
        yield
    finally:
        for patch in patches:
            patch.undo()


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
    try:
        code = process.wait()
    except BaseException:
        process.kill()
        process.wait()
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
