"""The opt-in .pth file: it starts tritonhook in processes of an environment that PYTHONPATH does not reach.

Outside of `tritonhook run` it does nothing; under it, it runs the private sitecustomize (bootstrap.py).
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tritonhook._util.files import write_whole
from tritonhook._util.variables import RUN
from tritonhook.children import SITE
from tritonhook.errors import StartupError

PTH = "tritonhook-run.pth"


def pth_text() -> str:
    """The file's one line. Python's site.py runs it in every process of the environment; without TRITONHOOK_RUN it does
    nothing."""
    script = str(SITE / "sitecustomize.py")
    started = "{'__name__': 'tritonhook_startup', '__file__': _file}"
    return (
        f"import os; _file = {script!r}; "
        f"{RUN!r} in os.environ and os.path.isfile(_file) and exec(open(_file).read(), {started})\n"
    )


def site_folder(python: str = sys.executable) -> Path:
    """The folder site-packages of an interpreter. Raises StartupError if the interpreter cannot be asked."""
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
    """The state of the .pth file: "installed", "not installed" or "of another tritonhook"."""
    try:
        text = (folder / PTH).read_text()
    except OSError:
        return "not installed"
    return "installed" if text == pth_text() else "of another tritonhook"
