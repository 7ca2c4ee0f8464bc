"""Python processes that one process forks after it has imported what they all import, which takes longer than all else
that most of them do. `python warm.py SOCKET` is the one that forks; `served` starts it. `start` and `run` fork from it,
as does `python warm.py -m MODULE`.

A child differs from a process of its own: modules are loaded already, it shares the seed of hashes, and it ignores the
signals that the server ignores. A test of any of these starts a process of its own. Stops at commands other than
`python SCRIPT`, `python -m MODULE` and `python -c CODE`: these are never forked.
"""

from __future__ import annotations

import atexit
import builtins
import gc
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
import types
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from hangs import HANG_S

SERVER = "WARM_SERVER"  # the server's socket, where it may be used; children have it too, and fork from the same server
_LOADED = (
    "pytest",
    "execnet",
    "hypothesis",
    "pdb",
    "email.parser",
    "numpy",
    "platformdirs.unix",
    *(("torch",) if find_spec("triton") else ()),  # programs in the CuTe DSL were not tried with it
    "triton.compiler.code_generator",
    "triton_kernels",
    "fake_tensors",
    *(
        f"tritonhook.cli.{verb}"
        for verb in ("run", "lock", "check", "emulate", "show", "verify", "_programs", "_results")
    ),
    "tritonhook.testing.emulated_tests",
    "tritonhook.testing.lock_run",
    "tritonhook.report.render.terminal",
    "tritonhook.report.results.captures",
    "tritonhook.children.bootstrap",
    "tritonhook.children.dry_launches",
    "tritonhook.capture.dry_run.process",
    "tritonhook.capture.dry_run.autotuner",
    "tritonhook.capture.dry_run.driver",
    "tritonhook.capture.policy.winners",
    "tritonhook.capture.session",
    "tritonhook.capture.front_ends",
    "tritonhook.capture.store.writer",
    "tritonhook.ptx.miscompiles",
    "tritonhook.report.results.counters",
    "tritonhook.report.results.snapshot",
    "tritonhook.snapshot.schema",
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
    python = len(words) > 1 and words[0] == sys.executable and (words[1] in ("-m", "-c") or words[1].endswith(".py"))
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


def _serve(address: str, disassembled: Path) -> int:
    """Answer until nobody asks any more. A child returns from here, too: its exit code."""
    atexit.register(_end)  # the first of all: it is called last
    given = os.environ["PYTHONPATH"].split(os.pathsep)
    base = [path for path in sys.path[1:] if path not in given]
    for name in (*_LOADED, *(f"_pytest.{plugin}" for plugin in _plugins())):
        with suppress(ImportError):
            importlib.import_module(name)
    _patch(disassembled)
    with suppress(ImportError, AttributeError):
        importlib.import_module("triton.runtime.cache").triton_key()  # Triton keeps it: it hashes 400 MB
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those that wait
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(address)
    listening.listen(64)
    gc.collect()
    gc.freeze()  # children never look at what is here already
    os.write(1, b"listening\n")
    while True:
        ready, _, _ = select.select([listening, 0], [], [])
        if 0 in ready:
            return 0
        if (asked := _answer(listening)) is not None:
            listening.close()
            return _be(asked["words"], asked["env"], asked["cwd"], base)


def _plugins() -> tuple[str, ...]:
    """Pytest's own plugins."""
    with suppress(ImportError):
        return tuple(importlib.import_module("_pytest.config").default_plugins)
    return ()


def _answer(listening: socket.socket) -> Any:
    """Take one request. Returns it in the child that it asks for, None in the server; a process between them waits for
    the child's end."""
    asking, _ = listening.accept()
    if _fork():
        asking.close()
        return None
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    _, descriptors, _, _ = socket.recv_fds(asking, 1, 3)
    lines = asking.makefile("rw")
    request = json.loads(lines.readline())
    child = _fork()
    if child == 0:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for number, descriptor in enumerate(descriptors):
            os.dup2(descriptor, number)
            os.close(descriptor)
        lines.close()
        asking.close()
        return request
    listening.close()
    for number in (0, 1, 2, *descriptors):
        os.close(number)
    print(child, file=lines, flush=True)
    _, status = os.waitpid(child, 0)
    with suppress(OSError):
        print(os.waitstatus_to_exitcode(status), file=lines, flush=True)
    os._exit(0)


def _fork() -> int:
    """Fork. Python 3.12 warns where libraries have started threads; these wait for work."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def _patch(disassembled: Path) -> None:
    """Let children fork from this server too, and disassemble each code once."""
    from known_disassembly import remembering

    from tritonhook.cli import _programs
    from tritonhook.ptxas import toolchain

    _programs.subprocess = types.SimpleNamespace(Popen=start)  # type: ignore[assignment]
    toolchain.run_tool = remembering(toolchain.run_tool, disassembled)  # type: ignore[assignment]


_ended_with: list[int] = []  # a child's exit code


def _end() -> None:
    """End a child at once, behind its threads and all else that is called at its end: nothing needs to be freed."""
    for code in _ended_with:
        with suppress(OSError):
            sys.stdout.flush()
        os._exit(code & 0xFF)


def _be(words: list[str], environment: dict[str, str], folder: str, base: list[str]) -> int:
    """Be `python WORDS`; its exit code."""
    sys.stdin, sys.stdout = os.fdopen(0, closefd=False), os.fdopen(1, "w", closefd=False)
    sys.stderr = os.fdopen(2, "w", 1, errors="backslashreplace", closefd=False)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    paths = [path for path in environment.get("PYTHONPATH", "").split(os.pathsep) if path]
    script = not words[0].startswith("-")
    sys.path[:] = [str(Path(words[0]).resolve().parent) if script else folder, *paths, *base]
    importlib.invalidate_caches()
    code = 0
    try:
        from tritonhook.children import bootstrap

        bootstrap.begin(then_users=False)
        _run(words)
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException as error:
        trace = error.__traceback__
        while trace and trace.tb_frame.f_code.co_filename == __file__:
            trace = trace.tb_next
        sys.last_type, sys.last_value, sys.last_traceback = type(error), error.with_traceback(trace), trace
        sys.excepthook(type(error), error, trace)
        code = 1
    _ended_with.append(code)
    return code


def _run(words: list[str]) -> None:
    main = types.ModuleType("__main__")
    main.__dict__["__builtins__"] = builtins
    sys.modules["__main__"] = main
    option, *others = words
    if option == "-m":
        sys.argv = others
        runpy.run_module(others[0], run_name="__main__", alter_sys=True)
    elif option == "-c":
        sys.argv = ["-c", *others[1:]]
        exec(compile(others[0], "<string>", "exec"), main.__dict__)
    else:
        sys.argv = words
        main.__file__ = str(Path(option).absolute())
        exec(compile(Path(option).read_bytes(), main.__file__, "exec"), main.__dict__)


if __name__ == "__main__":
    if sys.argv[1] == "-m":
        sys.exit(start([sys.executable, *sys.argv[1:]], os.environ).wait())
    sys.modules["warm"] = sys.modules["__main__"]
    sys.exit(_serve(sys.argv[1], Path(sys.argv[2])))
