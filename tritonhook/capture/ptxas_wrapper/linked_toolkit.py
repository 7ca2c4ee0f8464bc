"""Make a copy of a CUDA toolkit out of links, in which ptxas is the wrapper. A run puts it first on PATH.

A wrapper on PATH with no nvcc beside it would not be called: nvcc looks for ptxas in its own folder, which nvcc.profile
puts first on PATH. tileiras looks in the toolkit at CUDA_ROOT, else in its own folder.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tritonhook._util.files import cache_folder
from tritonhook._util.variables import WRAPPER_HOME
from tritonhook.capture.ptxas_wrapper.script import LINKED, LOG, PROGRAM, original, wrapper_script


@dataclass(frozen=True, slots=True)
class WrapperHome:
    """Settings shared by the wrappers of a run.

    folder: folder of the linked toolkits; the wrappers' log is beside it. python: the Python that runs the wrapper.
    """

    folder: Path
    python: str

    @classmethod
    def for_run(cls, out: Path) -> WrapperHome:
        """Choose the folder. It is in the user's cache, because builds store the path of nvcc and need it after the
        run. If the cache is not writable, it is in `out`."""
        folder = cache_folder() / "toolkits"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            usable = os.access(folder, os.W_OK)
        except OSError:
            usable = False
        return cls(folder if usable else out / ".ptxas-wrapper" / "toolkits", sys.executable)

    @property
    def log(self) -> Path:
        return self.folder.parent / LOG

    def to_environment(self) -> dict[str, str]:
        """Return the variable for the environment of a child process."""
        return {WRAPPER_HOME: json.dumps({"folder": str(self.folder), "python": self.python})}

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> WrapperHome | None:
        """Read the variable that `to_environment` made. None outside of a run."""
        text = environment.get(WRAPPER_HOME)
        if not text:
            return None
        values = json.loads(text)
        return cls(Path(values["folder"]), values["python"])


def path_environment(base: Mapping[str, str], home: WrapperHome) -> dict[str, str]:
    """Return the environment for a run in which nvcc, ptxas and tileiras use the wrapper.

    Before each folder on PATH that has nvcc or ptxas, its linked copy is inserted; all other entries keep their order.
    If the copy cannot be made, nothing is inserted.
    """
    entries = [e for e in base.get("PATH", os.defpath).split(os.pathsep) if not e or home.folder not in Path(e).parents]
    wanted: list[str] = []
    for entry in entries:
        with contextlib.suppress(OSError, ValueError):
            programs = _programs_of(Path(entry)) if entry.startswith("/") else None
            if programs is not None and (linked := str(linked_toolkit(home, *programs) / "bin")) not in wanted:
                wanted.append(linked)
        wanted.append(entry)
    return {**base, "PATH": os.pathsep.join(wanted), **home.to_environment()}


def _programs_of(entry: Path) -> tuple[Path, Path, bool] | None:
    """Return (folder of programs, path of ptxas, True if the folder is a whole toolkit) for an entry of PATH. None if
    the entry has neither nvcc nor ptxas."""
    nvcc, ptxas = entry / "nvcc", entry / "ptxas"
    toolkit = toolkit_of(nvcc) if os.access(nvcc, os.X_OK) else None
    if toolkit is not None:
        target = toolkit / "ptxas" if os.access(toolkit / "ptxas", os.X_OK) else ptxas
        if os.access(target, os.X_OK):
            return toolkit, target, True
    return (entry, ptxas, False) if os.access(ptxas, os.X_OK) and not ptxas.is_dir() else None


def toolkit_of(nvcc: Path) -> Path | None:
    """Find the bin folder of an nvcc. If nvcc is a script (Debian, ccache), read the folder from `nvcc --dryrun`."""
    if (nvcc.parent / "nvcc.profile").exists():
        return nvcc.parent
    command = [str(nvcc), "--dryrun", "-x", "cu", os.devnull]
    try:
        done = subprocess.run(command, capture_output=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r"^#\$ _HERE_=(/.*)$", done.stderr.decode("utf-8", "replace"), re.MULTILINE)
    return Path(match[1]) if match and (Path(match[1]) / "nvcc").exists() else None


def linked_toolkit(home: WrapperHome, folder: Path, ptxas: Path, is_toolkit: bool) -> Path:
    """Make the linked copy of a toolkit, or of ptxas alone; returns its folder. An existing copy of the same toolkit,
    ptxas and Python is used again. folder: the toolkit's bin folder. is_toolkit: False links only ptxas. Raises OSError
    if the copy cannot be made."""
    programs = sorted(p.name for p in folder.iterdir()) if is_toolkit else []
    ptxas = original(ptxas.absolute())
    folder = folder.absolute()
    at = os.stat(ptxas)  # noqa: PTH116
    facts = [str(folder), str(ptxas), at.st_size, at.st_mtime_ns, home.python, str(PROGRAM), list(programs), LINKED]
    key = hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:12]
    place = home.folder / f"{folder.parent.name or 'root'}-{key}"
    if not (place / "bin" / "ptxas").exists():
        staged = home.folder / f".{place.name}.{os.getpid()}.{time.time_ns()}"
        try:
            _fill(staged, place, folder, ptxas, programs, home)
            staged.rename(place)
        except OSError:
            shutil.rmtree(staged, ignore_errors=True)
            if not (place / "bin" / "ptxas").exists():
                raise
    return place


def _fill(staged: Path, place: Path, folder: Path, ptxas: Path, programs: Sequence[str], home: WrapperHome) -> None:
    bin_folder = staged / "bin"
    bin_folder.mkdir(parents=True)
    if programs:
        for item in folder.parent.iterdir():
            if item.name != "bin" and item.name != folder.name:
                (staged / item.name).symlink_to(item)
    for name in programs:
        if name == "nvcc.profile":
            profile = (folder / name).read_text()
            # _HERE_ remains the original folder, so TOP and all paths made from it do not change. Only PATH gets our
            # folder in front (`+=` prepends).
            profile = profile.replace("$(_HERE_)", str(folder)) + f"\nPATH += {place / 'bin'}:\n"
            (bin_folder / name).write_text(profile)
        elif name == "tileiras":
            _write_program(bin_folder / name, _tileiras_script(folder / name, folder.parent, place))
        elif name not in ("ptxas", "ptxas.real"):
            (bin_folder / name).symlink_to(folder / name)
    _write_program(bin_folder / "ptxas", wrapper_script(ptxas, LINKED, home.python, home.log))


def _tileiras_script(tileiras: Path, top: Path, place: Path) -> str:
    """Return a script that sets CUDA_ROOT to the copy and runs tileiras. Without CUDA_ROOT, tileiras would follow the
    links to its original folder. If the user has set another toolkit, the script does not change CUDA_ROOT."""
    named = '"${CUDA_ROOT:-${CUDA_HOME:-${CUDA_PATH:-' + str(top).replace('"', "") + '}}}"'
    return (
        f"#!/bin/sh\n{LINKED}\n"
        f"[ {named} -ef {shlex.quote(str(top))} ] && export CUDA_ROOT={shlex.quote(str(place))}\n"
        f'exec {shlex.quote(str(tileiras))} "$@"\n'
    )


def _write_program(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)
