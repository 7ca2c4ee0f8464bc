"""Install the wrapper over a ptxas, with the original beside it as `ptxas.real`, and uninstall it.

At every moment, even if this process is killed, a working ptxas exists.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from tritonhook._util.files import STAGED, staged_beside, sync_folder, write_whole
from tritonhook._util.locks import folder_locked
from tritonhook.capture.ptxas_wrapper.linked_toolkit import toolkit_of
from tritonhook.capture.ptxas_wrapper.script import INSTALLED, LINKED, log_file, mark_of, real_of, wrapper_script
from tritonhook.errors import ToolError


class InstallState(Enum):
    """State of a ptxas: whether the wrapper is installed over it. The values are messages."""

    PLAIN = "not installed"
    INSTALLED = "installed"
    UNFINISHED = "not installed (an install or uninstall was interrupted; ptxas is the original)"
    REPLACED = "not installed any more (another ptxas replaced the wrapper, perhaps in a toolkit upgrade)"
    FOREIGN = "another tool's wrapper"
    BROKEN = "installed, but the original is missing"


@dataclass(frozen=True, slots=True)
class InstallTarget:
    """A ptxas over which the wrapper is installed. path: the file, after resolving links. given: the path before
    resolving links."""

    path: Path
    given: Path

    @property
    def real(self) -> Path:
        return real_of(self.path)

    @property
    def state(self) -> InstallState:
        mark, has_real = mark_of(self.path), os.path.lexists(self.real)
        if mark == INSTALLED:
            return InstallState.INSTALLED if os.access(self.real, os.X_OK) else InstallState.BROKEN
        if not has_real:
            return InstallState.PLAIN
        if _same_contents(self.path, self.real):
            return InstallState.UNFINISHED
        return InstallState.REPLACED if _is_binary(self.path) else InstallState.FOREIGN


def _same_contents(a: Path, b: Path) -> bool:
    import filecmp

    return a.samefile(b) or filecmp.cmp(a, b, shallow=False)


def _is_binary(path: Path) -> bool:
    """Check whether a program is machine code, like every ptxas from NVIDIA. A script beside a ptxas.real is another
    tool's wrapper. If it were treated as a ptxas, it would overwrite ptxas.real, the only original."""
    with path.open("rb") as file:
        return file.read(4) == b"\x7fELF"


def find_target(given: str | None) -> InstallTarget:
    """Find the ptxas over which the wrapper is installed: at the path `given`, or by default in the CUDA toolkit.
    Raises ToolError if there is none.

    A ptxas in Triton's package or another wheel is used only if `given` names it, because the installation makes the
    file differ from pip's record.
    """
    if given is not None:
        path = Path(given) / "ptxas" if Path(given).is_dir() else Path(given)
        if not path.is_file():
            raise ToolError(f"{path}: no such file; give a ptxas, or its folder")
        return _checked(path)
    tried = list(dict.fromkeys(_toolkit_ptxas()))
    for path in tried:
        if path.is_file() and mark_of(path) != LINKED:
            return _checked(path)
    listed = "\n  ".join(f"{path}: no such file" for path in tried)
    raise ToolError(
        f"no CUDA toolkit with a ptxas found; name one: `tritonhook ptxas install PATH`. Tried:\n  {listed}"
    )


def _toolkit_ptxas() -> Iterator[Path]:
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if value := os.environ.get(variable):
            yield Path(value, "bin", "ptxas")
    nvcc = shutil.which("nvcc")
    if nvcc and (folder := toolkit_of(Path(nvcc))):
        yield folder / "ptxas"
    if program := shutil.which("ptxas"):
        yield Path(program)
    yield Path("/usr/local/cuda/bin/ptxas")


def _checked(path: Path) -> InstallTarget:
    if mark_of(path) == LINKED:
        raise ToolError(f"{path}: a temporary wrapper made by `tritonhook run`; give the ptxas of the toolkit itself")
    if not os.access(path, os.X_OK):
        raise ToolError(f"{path}: not an executable file; give a ptxas")
    return InstallTarget(Path(os.path.realpath(path)), path)


def install(target: InstallTarget, python: str = sys.executable) -> str:
    """Install the wrapper over a ptxas. Returns a message. If it raises ToolError, nothing has changed.

    The original gets a second name, ptxas.real. Then the wrapper's temporary file is renamed to ptxas. So a working
    ptxas exists at every moment.
    """
    with _locked(target):
        state = target.state
        if state is InstallState.FOREIGN:
            raise ToolError(
                f"{target.path}: another tool's wrapper of {target.real.name}; uninstall that tool's wrapper first"
            )
        if state is InstallState.BROKEN:
            raise ToolError(_gone(target))
        if state is not InstallState.INSTALLED:
            _keep_original(target)
        script = wrapper_script(target.real, INSTALLED, python, log_file())
        if state is InstallState.INSTALLED and target.path.read_text() == script:
            return f"{target.path}: the wrapper is installed already"
        write_whole(target.path, script, mode=target.real.stat().st_mode & 0o7777, sync=True)
        if state is InstallState.REPLACED:
            return f"{target.path}: the wrapper is installed again, over the newer ptxas that had replaced it"
        return f"{target.path}: the wrapper is {'updated' if state is InstallState.INSTALLED else 'installed'}"


def uninstall(target: InstallTarget) -> str:
    """Restore the original by renaming it. Returns a message. Raises ToolError if that is not possible."""
    with _locked(target):
        state = target.state
        if state is InstallState.INSTALLED:
            target.real.replace(target.path)
            sync_folder(target.path.parent)
            return f"{target.path}: the original is restored"
        if state is InstallState.UNFINISHED:
            target.real.unlink()
            return f"{target.path}: is the original; removed {target.real.name}, left by an interrupted install"
        if state is InstallState.REPLACED:
            return f"{target.path}: not changed, it is a newer ptxas; delete the older one, {target.real}"
        if state is InstallState.FOREIGN:
            raise ToolError(f"{target.path}: another tool's wrapper of {target.real.name}; nothing was changed")
        if state is InstallState.BROKEN:
            raise ToolError(_gone(target))
        return f"{target.path}: no wrapper is installed"


def _gone(target: InstallTarget) -> str:
    return f"{target.path}: the wrapper's original, {target.real.name}, is missing; install the CUDA package again"


@contextlib.contextmanager
def _locked(target: InstallTarget) -> Iterator[None]:
    """Lock the toolkit's folder for one process, without a lock file, and remove files of a killed install. Raises
    ToolError if the folder cannot be changed."""
    try:
        with folder_locked(target.path.parent):
            for unfinished in target.path.parent.glob(f"{STAGED}*"):
                unfinished.unlink()
            yield
    except OSError as error:
        raise ToolError(
            f"{target.path}: cannot be changed: {error.strerror}; run as the owner of the toolkit, "
            "or use `tritonhook run -- nvcc ...`, which needs no install"
        ) from None


def _keep_original(target: InstallTarget) -> None:
    """Give the original the second name ptxas.real. An older ptxas.real is replaced."""
    staged = Path(staged_beside(target.path))
    try:
        try:
            os.link(target.path, staged)
        except OSError:  # hard links are not supported, or not allowed for this file
            shutil.copy2(target.path, staged)
            with staged.open("rb") as copy:
                os.fsync(copy.fileno())
        if target.real.exists() and target.real.samefile(staged):
            return  # both are the same file: renaming would do nothing (POSIX) and leave the staged name
        staged.replace(target.real)
        sync_folder(target.path.parent)
    finally:
        staged.unlink(missing_ok=True)
