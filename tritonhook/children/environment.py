"""Make the environment variables with which unchanged child processes capture kernels or watch memory.

A private folder with a `sitecustomize` is first in PYTHONPATH, and another variable has the settings. The sitecustomize
runs bootstrap.py. For processes that ignore PYTHONPATH, the user can install a .pth file, which runs it too.
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
    """Make the environment for a child process that captures, and for its own children. Raises UsageError for rewrites
    that cannot be passed on.

    base: the environment to extend. command: the command of this run; by it, a later run of the same command is
    recognised. Dry runs for different architectures count as different commands, because their kernels differ.
    """
    arch = [] if settings.dry_run is None else [settings.dry_run.arch]
    own = {RUN_ID: _run_id(command, *arch), "PYTHONPATH": _path(base)}
    return {**base, **settings.to_run_config().to_environment(), **own}


def run_environment(settings: Settings, command: Sequence[str]) -> tuple[dict[str, str], Path]:
    """Return (environment of a whole run, log file of the ptxas wrappers). The environment is made by
    capture_environment; in addition, PATH has the ptxas wrappers. Raises UsageError as capture_environment does, and
    CaptureError if the folder for captures cannot be written."""
    environment = capture_environment(settings, os.environ, command)
    CaptureWriter(settings.out).close()
    home = WrapperHome.for_run(settings.out)
    return path_environment(environment, home), home.log


def _run_id(command: Sequence[str], *arch: str) -> str:
    """Make the id of a run. It has three parts: a hash of command, working folder and architecture; the start time; the
    command's name. capture.store.reader.Run parses it."""
    program = hashlib.sha256(json.dumps([str(Path.cwd()), *arch, *command]).encode()).hexdigest()
    return f"{program[:16]}-{time.time_ns()} {visible(_name(command))}".rstrip()


def _name(command: Sequence[str]) -> str:
    """Return the name of a command: its script or module, without arguments, which may be secret, and without folders
    that differ between machines. "" for no command."""
    words = command[command[:1] == [sys.executable] :]
    if not words or words[0] == "-m":
        return " ".join(words[:2])
    path = Path(os.path.normpath(words[0]))
    if path.is_absolute():
        path = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else Path(path.name)
    return path.as_posix()


def watch_environment(folder: Path, period_ms: float, base: Mapping[str, str]) -> dict[str, str]:
    """Make the environment for a child process whose GPU memory is watched, and for its own children. folder,
    period_ms: see memwatch.begin_run."""
    return {**base, WATCH: json.dumps({"folder": str(folder), "period_ms": period_ms}), "PYTHONPATH": _path(base)}


def _path(base: Mapping[str, str]) -> str:
    """Return PYTHONPATH with the private folder first, and without duplicates of it."""
    given = base.get("PYTHONPATH", "").split(os.pathsep)
    return os.pathsep.join([str(SITE), *(entry for entry in given if entry and entry != str(SITE))])


# --- the .pth file --------------------------------------------------------------------------------


PTH = "tritonhook-run.pth"


def pth_text() -> str:
    """Return the text of the .pth file, one line of code. Python's site.py runs it in every process of the
    installation. Without the variable TRITONHOOK_RUN it does nothing."""
    script = str(SITE / "sitecustomize.py")
    started = "{'__name__': 'tritonhook_startup', '__file__': _file}"
    return (
        f"import os; _file = {script!r}; "
        f"{RUN!r} in os.environ and os.path.isfile(_file) and exec(open(_file).read(), {started})\n"
    )


def site_folder(python: str = sys.executable) -> Path:
    """Return the site-packages folder of a Python interpreter. Raises StartupError if the interpreter cannot print
    it."""
    code = "import sysconfig; print(sysconfig.get_path('purelib'))"
    environment = {name: value for name, value in os.environ.items() if name != RUN}
    try:
        done = subprocess.run([python, "-c", code], capture_output=True, text=True, timeout=60, env=environment)
    except (OSError, subprocess.SubprocessError) as error:
        raise StartupError(f"{python}: cannot be run: {error}; give another Python") from None
    if done.returncode or not done.stdout.strip():
        raise StartupError(f"{python}: did not print its site-packages folder; give another Python")
    return Path(done.stdout.splitlines()[-1])


def install_pth(folder: Path) -> Path:
    """Write the .pth file into a folder, and return its path. Raises StartupError if it cannot be written."""
    path = folder / PTH
    try:
        write_whole(path, pth_text())
    except OSError as error:
        raise StartupError(f"{path}: cannot be written: {error.strerror}; give another Python") from None
    return path


def uninstall_pth(folder: Path) -> bool:
    """Remove the .pth file. Returns False if there was none. Raises StartupError if it cannot be removed."""
    path = folder / PTH
    try:
        path.unlink()
    except FileNotFoundError:
        return False
    except OSError as error:
        raise StartupError(f"{path}: cannot be removed: {error.strerror}; remove it by hand") from None
    return True


def pth_state(folder: Path) -> str:
    """Return the state of the .pth file: "installed", "not installed" or "of another tritonhook"."""
    try:
        text = (folder / PTH).read_text()
    except OSError:
        return "not installed"
    return "installed" if text == pth_text() else "of another tritonhook"
