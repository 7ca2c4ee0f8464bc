"""Python processes that one process forks after it has imported what they all import, which takes longer than all else
that most of them do. `python warm.py SOCKET` is the one that forks; `served` starts it. `start` and `run` fork from it,
as does `python warm.py -m MODULE`.

A child differs from a process of its own: modules are loaded already, it shares the seed of hashes, and it ignores the
signals that the server ignores. A test of any of these starts a process of its own. Stops at commands other than
`python SCRIPT` and `python -m MODULE`: these are never forked.
"""

from __future__ import annotations

import atexit
import builtins
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
import types
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from hangs import HANG_S

SERVER = "WARM_SERVER"  # the server's socket, where it may be used; children have it too, and fork from the same server
_LOADED = (
    "pytest",
    "numpy",
    "triton_kernels",
    "fake_tensors",
    "tritonhook.cli",
    "tritonhook.cli._programs",
    "tritonhook.testing.lock_run",
    "tritonhook.report.render.terminal",
    "tritonhook.report.results.captures",
    "tritonhook.children.bootstrap",
    "tritonhook.children.dry_launches",
    "tritonhook.capture.dry_run.process",
    "tritonhook.capture.dry_run.autotuner",
    "tritonhook.capture.session",
    "tritonhook.capture.front_ends",
    "tritonhook.capture.store.writer",
    "tritonhook.ptx.miscompiles",
)


# --- those that ask ------------------------------------------------------------------------------


@contextmanager
def served(disassembled: Path) -> Iterator[str]:
    """Run a server; its socket. disassembled: where its children keep what nvdisasm wrote."""
    from repository import ROOT, SUPPORT

    kept = {name: text for name, text in os.environ.items() if not name.startswith(("TRITON", "PYTEST"))}
    with tempfile.TemporaryDirectory(prefix="warm") as folder:
        address = f"{folder}/socket"
        words = [sys.executable, str(SUPPORT / "warm.py"), address, str(disassembled)]
        paths = {"PYTHONPATH": os.pathsep.join([str(SUPPORT), str(ROOT), kept.get("PYTHONPATH", "")]).strip(os.pathsep)}
        server = subprocess.Popen(words, env=kept | paths, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert server.stdin is not None and server.stdout is not None
        server.stdout.readline()  # it listens
        try:
            yield address
        finally:
            server.stdin.close()  # it ends, also if this process is killed
            server.wait()
            server.stdout.close()


def forks(command: Sequence[str | Path]) -> bool:
    """Say whether a command is one that the server can fork, and a server may be used."""
    words = [str(word) for word in command]
    python = len(words) > 1 and words[0] == sys.executable and (words[1] == "-m" or words[1].endswith(".py"))
    return python and SERVER in os.environ


class Child:
    """A forked process, with what tests and `cli._programs` use of subprocess.Popen."""

    def __init__(
        self,
        command: Sequence[str | Path],
        env: Mapping[str, str],
        stdout: int | None = None,
        stderr: int | None = None,
        cwd: str | Path = ".",
    ) -> None:
        self._server = socket.socket(socket.AF_UNIX)
        self._server.settimeout(HANG_S)
        self._server.connect(os.environ[SERVER])
        sys.stdout.flush()
        descriptors = [0, 1 if stdout is None else stdout, 2 if stderr is None else stderr]
        socket.send_fds(self._server, [b"+"], descriptors)
        folder = os.path.realpath(cwd)
        asked = {"words": [str(word) for word in command[1:]], "env": dict(env), "cwd": folder}
        self._server.sendall(json.dumps(asked).encode() + b"\n")
        self._lines = self._server.makefile()
        self.pid = int(self._lines.readline())

    def wait(self) -> int:
        try:
            return int(self._lines.readline())
        except TimeoutError:
            self.send_signal(signal.SIGKILL)
            raise
        finally:
            self._lines.close()
            self._server.close()

    def send_signal(self, number: int) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)


def start(command: Sequence[str], env: Mapping[str, str], stdout: int | None = None) -> Any:
    """Start a command as subprocess.Popen does; fork it if the server can."""
    make: Any = Child if forks(command) else subprocess.Popen
    return make(command, env=env, stdout=stdout)


def run(command: Sequence[str | Path], folder: Path, env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Fork a command; what it printed at its end."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as error:
        code = Child(command, env, out.fileno(), error.fileno(), folder).wait()
        out.seek(0)
        error.seek(0)
        return subprocess.CompletedProcess(command, code, out.read(), error.read())


# --- the server ----------------------------------------------------------------------------------


def _serve(address: str, disassembled: Path) -> None:
    base = sys.path[1 + len(os.environ["PYTHONPATH"].split(os.pathsep)) :]
    for name in _LOADED:
        with suppress(ImportError):
            importlib.import_module(name)
    _patch(disassembled)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those that wait
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(address)
    listening.listen(64)
    os.write(1, b"listening\n")
    while True:
        ready, _, _ = select.select([listening, 0], [], [])
        if 0 in ready:
            return
        _answer(listening, base)


def _answer(listening: socket.socket, base: list[str]) -> None:
    """Take one request, in a process that waits for the child of it."""
    asking, _ = listening.accept()
    if os.fork() == 0:
        listening.close()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        _, descriptors, _, _ = socket.recv_fds(asking, 1, 3)
        with asking.makefile("rw") as lines:
            request = json.loads(lines.readline())
            child = os.fork()
            if child == 0:
                signal.signal(signal.SIGINT, signal.default_int_handler)
                for number, descriptor in enumerate(descriptors):
                    os.dup2(descriptor, number)
                    os.close(descriptor)
                asking.close()
                lines.detach()
                _be(request["words"], request["env"], request["cwd"], base)
            for number in (0, 1, 2, *descriptors):
                os.close(number)
            print(child, file=lines, flush=True)
            _, status = os.waitpid(child, 0)
            with suppress(OSError):
                print(os.waitstatus_to_exitcode(status), file=lines, flush=True)
        os._exit(0)
    asking.close()


def _patch(disassembled: Path) -> None:
    """Let children fork from this server too, and disassemble each code once."""
    from known_disassembly import remembering

    from tritonhook.cli import _programs
    from tritonhook.ptxas import toolchain

    _programs.subprocess = types.SimpleNamespace(Popen=start)  # type: ignore[assignment]
    toolchain.run_tool = remembering(toolchain.run_tool, disassembled)  # type: ignore[assignment]


def _be(words: list[str], environment: dict[str, str], folder: str, base: list[str]) -> None:
    """Be `python WORDS` from its start to its end."""
    sys.stdin, sys.stdout = os.fdopen(0, closefd=False), os.fdopen(1, "w", closefd=False)
    sys.stderr = os.fdopen(2, "w", 1, errors="backslashreplace", closefd=False)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    paths = [path for path in environment.get("PYTHONPATH", "").split(os.pathsep) if path]
    module = words[0] == "-m"
    sys.path[:] = [folder if module else str(Path(words[0]).resolve().parent), *paths, *base]
    importlib.invalidate_caches()
    code = 0
    try:
        from tritonhook.children import bootstrap

        bootstrap.begin(then_users=False)
        _run(words[1:] if module else words, module)
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException as error:
        traceback.print_exception(error.with_traceback(error.__traceback__ and error.__traceback__.tb_next))
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    with suppress(OSError):
        sys.stdout.flush()
    os._exit(code & 0xFF)


def _run(words: list[str], module: bool) -> None:
    main = types.ModuleType("__main__")
    main.__dict__["__builtins__"] = builtins
    sys.modules["__main__"] = main
    sys.argv = words
    if module:
        runpy._run_module_as_main(words[0])  # type: ignore[attr-defined]
        return
    main.__file__ = str(Path(words[0]).absolute())
    exec(compile(Path(words[0]).read_bytes(), main.__file__, "exec"), main.__dict__)


if __name__ == "__main__":
    if sys.argv[1] == "-m":
        sys.exit(start([sys.executable, *sys.argv[1:]], os.environ).wait())
    sys.modules["warm"] = sys.modules["__main__"]
    _serve(sys.argv[1], Path(sys.argv[2]))
