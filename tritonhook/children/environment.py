"""The environment of child processes, that makes them capture kernels or watch memory without a change to them.

A private folder with a `sitecustomize` is first on PYTHONPATH, and a variable holds the settings. The sitecustomize
runs bootstrap.py. Where PYTHONPATH does not reach a process, a .pth file can run it, which users opt in to.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from tritonhook._util.files import write_whole
from tritonhook._util.text import visible
from tritonhook._util.variables import RUN, RUN_ID, WATCH
from tritonhook.capture.ptxas_wrapper.linked_toolkit import WrapperHome, path_environment
from tritonhook.capture.settings import Settings
from tritonhook.capture.store.writer import CaptureWriter
from tritonhook.children import SITE
from tritonhook.errors import StartupError


def capture_environment(settings: Settings, base: Mapping[str, str], command: Sequence[str] = ()) -> dict[str, str]:
    """Make the environment for a child process that captures, and for its children. Raises UsageError for rewrites that
    cannot be passed on to them.

    command: the command of this run, so that a later run of it into the same folder is recognised. Dry runs for several
    architectures are separate commands: each compiles kernels of its own.
    """
    arch = [] if settings.dry_run is None else [settings.dry_run.arch]
    own = {RUN_ID: _run_id(command, *arch), "PYTHONPATH": _path(base)}
    return {**base, **settings.to_run_config().to_environment(), **own}


def run_environment(settings: Settings, command: Sequence[str]) -> tuple[dict[str, str], Path]:
    """Make the environment of a whole run: what capture_environment makes, and wrappers of ptxas first on PATH. Also
    return the log of the wrappers. Raises UsageError as capture_environment, and CaptureError, before anything runs, if
    the folder for captures cannot be written."""
    environment = capture_environment(settings, os.environ, command)
    CaptureWriter(settings.out).close()
    home = WrapperHome.for_run(settings.out)
    return path_environment(environment, home), home.log


def _run_id(command: Sequence[str], *arch: str) -> str:
    """Make a run's id: a hash of its command, folder and architecture, its start time, and the name of its command;
    capture.store.reader.Run parses it."""
    program = hashlib.sha256(json.dumps([str(Path.cwd()), *arch, *command]).encode()).hexdigest()
    return f"{program[:16]}-{time.time_ns()} {visible(_name(command))}".rstrip()


def _name(command: Sequence[str]) -> str:
    """Name a command without its arguments, which may be secret, equally on every machine; "" for no command."""
    words = command[command[:1] == [sys.executable] :]
    if not words or words[0] == "-m":
        return " ".join(words[:2])
    path = Path(os.path.normpath(words[0]))
    if path.is_absolute():
        path = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else Path(path.name)
    return path.as_posix()


def watch_environment(folder: Path, period_ms: float, base: Mapping[str, str]) -> dict[str, str]:
    """Make the environment for a child whose GPU memory is watched, and for its children; see memwatch.begin_run."""
    return {**base, WATCH: json.dumps({"folder": str(folder), "period_ms": period_ms}), "PYTHONPATH": _path(base)}


def _path(base: Mapping[str, str]) -> str:
    """Make PYTHONPATH with the private folder first, once."""
    given = base.get("PYTHONPATH", "").split(os.pathsep)
    return os.pathsep.join([str(SITE), *(entry for entry in given if entry and entry != str(SITE))])


# --- the .pth file --------------------------------------------------------------------------------


PTH = "tritonhook-run.pth"


def pth_text() -> str:
    """Write the one line of the .pth file. Python's site.py runs it in every process of the environment; without
    TRITONHOOK_RUN it does nothing."""
    script = str(SITE / "sitecustomize.py")
    started = "{'__name__': 'tritonhook_startup', '__file__': _file}"
    return (
        f"import os; _file = {script!r}; "
        f"{RUN!r} in os.environ and os.path.isfile(_file) and exec(open(_file).read(), {started})\n"
    )


def site_folder(python: str = sys.executable) -> Path:
    """Find the site-packages folder of a Python interpreter. Raises StartupError if the interpreter does not answer."""
    code = "import sysconfig; print(sysconfig.get_path('purelib'))"
    environment = {name: value for name, value in os.environ.items() if name != RUN}
    try:
        done = subprocess.run([python, "-c", code], capture_output=True, text=True, timeout=60, env=environment)
    except (OSError, subprocess.SubprocessError) as error:
        raise StartupError(f"{python}: cannot be run: {error}; name another Python") from None
    if done.returncode or not done.stdout.strip():
        raise StartupError(f"{python}: did not print its site-packages folder; name another Python")
    return Path(done.stdout.splitlines()[-1])


def install_pth(folder: Path) -> Path:
    """Write the .pth file into a folder, whole or not at all. Raises StartupError."""
    path = folder / PTH
    try:
        write_whole(path, pth_text())
    except OSError as error:
        raise StartupError(f"{path}: cannot be written: {error.strerror}; name another Python") from None
    return path


def uninstall_pth(folder: Path) -> bool:
    """Remove the .pth file; False if there was none. Raises StartupError."""
    path = folder / PTH
    try:
        path.unlink()
    except FileNotFoundError:
        return False
    except OSError as error:
        raise StartupError(f"{path}: cannot be removed: {error.strerror}; remove it by hand") from None
    return True


def pth_state(folder: Path) -> str:
    """Check the .pth file: "installed", "not installed" or "of another tritonhook"."""
    try:
        text = (folder / PTH).read_text()
    except OSError:
        return "not installed"
    return "installed" if text == pth_text() else "of another tritonhook"
