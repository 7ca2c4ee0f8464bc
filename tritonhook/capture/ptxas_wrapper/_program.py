"""The ptxas wrapper: run the real ptxas with the same arguments, and keep its input and output.

The shell script made by script.py starts it:

    python -I -S _program.py REAL VERSION SIZE MTIME_NS LOG KIND argument ...

The caller sees no difference from the real ptxas: streams, arguments, environment, working folder, exit status and
death by signal are the same. Errors of the wrapper itself go only to LOG. tritonhook is imported while ptxas runs;
before that, only the standard library.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from typing import Any, NoReturn

_PASSED_ON = ("SIGTERM", "SIGHUP", "SIGINT", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGALRM")
_STDIN = ("-", "/dev/stdin")
_PDEATHSIG = 1  # PR_SET_PDEATHSIG, <linux/prctl.h>


def main(words: list[str]) -> NoReturn:
    """Run ptxas, and exit with its status or signal."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # end without a KeyboardInterrupt, as ptxas does
    real, version, size, mtime_ns, log, kind = words[:6]
    arguments = words[6:]
    environment = _original_environment()
    stdin = _guarded(log, _spool_stdin) if any(word in _STDIN for word in arguments) else None
    about = {"real": real, "version": version, "stat": (int(size), int(mtime_ns)), "stdin": stdin, "kind": kind}
    if not os.environ.get("TRITONHOOK_RUN"):  # only the PTX is kept, so no process must wait for the cubin
        _guarded(log, _dump, arguments, about)
        _become(real, arguments, environment)
    try:
        child = _start(real, arguments, environment)
    except OSError:
        _become(real, arguments, environment)
    call = _guarded(log, _prepare, arguments, about)
    status = _wait(child)
    if call is not None:
        _guarded(log, call.finish, status)
    _end_as(status)


def _dump(arguments: list[str], about: dict[str, Any]) -> None:
    _find_package()
    from tritonhook.ptxas.command_line import dump

    dump(arguments, about)


def _prepare(arguments: list[str], about: dict[str, Any]) -> Any:
    _find_package()
    from tritonhook.capture.ptxas_wrapper.recorder import WrappedCall

    return WrappedCall(arguments, about)


def _find_package() -> None:
    """Make tritonhook importable: only its own folder is added to the path."""
    sys.path.insert(0, os.path.realpath(f"{__file__}/../../../.."))


def _guarded(log: str, action: Callable[..., Any], *values: Any) -> Any:
    """Run `action`; return None and log the error if it fails. script.troubles reads the log. Nothing of tritonhook is
    imported here, because an import of tritonhook may be what failed."""
    try:
        return action(*values)
    except BaseException as error:
        try:
            import json
            import time

            item = {
                "time_ns": time.time_ns(),
                "run": os.environ.get("TRITONHOOK_RUN"),
                "dumps": os.path.realpath(os.environ.get("PTX_DUMP_DIR") or "ptx_dumps"),
                "what": f"{type(error).__name__}: {error}",
            }
            file = os.open(log, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)
            os.write(file, f"{json.dumps(item)}\n".encode())
            os.close(file)
        except BaseException:
            pass
        return None


def _original_environment() -> dict[bytes, bytes]:
    """Return the caller's environment with two changes: the LC_CTYPE that Python adds in the C locale is removed, and
    the wrapper is turned off."""
    environment = dict(os.environb)
    try:
        file = os.open("/proc/self/environ", os.O_RDONLY)
        given = b""
        while piece := os.read(file, 1 << 20):
            given += piece
        os.close(file)
        if not any(item.startswith(b"LC_CTYPE=") for item in given.split(b"\0")):
            environment.pop(b"LC_CTYPE", None)
    except OSError:
        pass
    environment[b"TRITONHOOK_PTXAS_WRAPPER"] = b"off"  # if the real ptxas is a wrapper too, it must keep nothing
    return environment


def _become(real: str, arguments: list[str], environment: dict[bytes, bytes]) -> NoReturn:
    try:
        os.execve(real, [real, *arguments], environment)
    except FileNotFoundError:  # uninstalled a moment ago: the original has its name ptxas again
        own = real.removesuffix(".real")
        os.execve(own, [own, *arguments], environment)


def _spool_stdin() -> bytes:
    """Read standard input, and replace it by a copy for ptxas."""
    import stat

    if stat.S_ISREG(os.fstat(0).st_mode):
        size, start = os.fstat(0).st_size, os.lseek(0, 0, os.SEEK_CUR)
        return os.pread(0, size - start, start)
    pieces = []
    while piece := os.read(0, 1 << 20):
        pieces.append(piece)
    data = b"".join(pieces)
    spool = os.memfd_create("ptxas-stdin")
    view = memoryview(data)
    while view:
        view = view[os.write(spool, view) :]
    os.lseek(spool, 0, os.SEEK_SET)
    os.dup2(spool, 0)
    return data


def _start(real: str, arguments: list[str], environment: dict[bytes, bytes]) -> int:
    """Start the real ptxas as a child process. It gets our signals, and is killed if this process dies."""
    numbers = [getattr(signal, name) for name in _PASSED_ON]
    numbers = [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    unwaited = signal.getsignal(signal.SIGCHLD)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # with SIG_IGN, the exit status would be lost
    parent = os.getpid()
    child = os.fork()
    if child == 0:
        try:
            _die_with(parent)
            for name in ("SIGPIPE", "SIGXFSZ"):  # Python sets these to SIG_IGN
                signal.signal(getattr(signal, name), signal.SIG_DFL)
            signal.signal(signal.SIGCHLD, unwaited)
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            _become(real, arguments, environment)
        except OSError as error:
            os.write(2, f"{real}: {error.strerror}\n".encode())
        finally:
            os._exit(127)

    def pass_on(number: int, frame: object) -> None:
        os.kill(child, number)

    for number in numbers:
        signal.signal(number, pass_on)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    return child


def _die_with(parent: int) -> None:
    try:
        import ctypes

        ctypes.CDLL(None).prctl(_PDEATHSIG, signal.SIGKILL)
    except Exception:
        return
    if os.getppid() != parent:
        os._exit(127)


def _wait(child: int) -> int:
    _, status = os.waitpid(child, 0)
    for name in _PASSED_ON:  # send no more signals to the child: another process may have its process id now
        if signal.getsignal(getattr(signal, name)) is not signal.SIG_IGN:
            signal.signal(getattr(signal, name), signal.SIG_DFL)
    return status


def _end_as(status: int) -> NoReturn:
    if os.WIFSIGNALED(status):
        import resource

        number = os.WTERMSIG(status)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # ptxas has written its core file; write no second one
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
        os._exit(128 + number)
    os._exit(os.WEXITSTATUS(status))


main(sys.argv[1:])
