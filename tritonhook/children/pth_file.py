"""The opt-in .pth file: starts tritonhook in processes of an environment whose PYTHONPATH does not get through.

It only acts under `tritonhook run`, and then does what the private sitecustomize does (startup.py).
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tritonhook._util.files import write_whole
from tritonhook.children.startup import FOLDER, VARIABLE
from tritonhook.errors import StartupError

PTH = "tritonhook-run.pth"


def pth_text() -> str:
    """One line that site.py runs in every Python of the environment; without TRITONHOOK_RUN it does nothing."""
    script = str(FOLDER / "sitecustomize.py")
    started = "{'__name__': 'tritonhook_startup', '__file__': _file}"
    return (
        f"import os; _file = {script!r}; "
        f"{VARIABLE!r} in os.environ and os.path.isfile(_file) and exec(open(_file).read(), {started})\n"
    )


def site_folder(python: str = sys.executable) -> Path:
    """Where that interpreter's site-packages are. Raises StartupError if it cannot be asked."""
    code = "import sysconfig; print(sysconfig.get_path('purelib'))"
    environment = {name: value for name, value in os.environ.items() if name != VARIABLE}
    try:
        done = subprocess.run([python, "-c", code], capture_output=True, text=True, timeout=60, env=environment)
    except (OSError, subprocess.SubprocessError) as error:
        raise StartupError(f"{python}: cannot be run: {error}; give an interpreter with --python") from None
    if done.returncode or not done.stdout.strip():
        raise StartupError(f"{python}: does not say where its site-packages are; give another with --python")
    return Path(done.stdout.splitlines()[-1])


def install_pth(folder: Path) -> Path:
    """Put the .pth file there, whole or not at all. Raises StartupError."""
    path = folder / PTH
    try:
        write_whole(path, pth_text())
    except OSError as error:
        raise StartupError(f"{path}: cannot be written: {error.strerror}; give another Python with --python") from None
    return path


def uninstall_pth(folder: Path) -> bool:
    """Remove it; False if there was none. Raises StartupError."""
    path = folder / PTH
    try:
        path.unlink()
    except FileNotFoundError:
        return False
    except OSError as error:
        raise StartupError(f"{path}: cannot be removed: {error.strerror}; remove it by hand") from None
    return True


def pth_state(folder: Path) -> str:
    """ "installed", "not installed", or "of another tritonhook"."""
    try:
        text = (folder / PTH).read_text()
    except OSError:
        return "not installed"
    return "installed" if text == pth_text() else "of another tritonhook"
