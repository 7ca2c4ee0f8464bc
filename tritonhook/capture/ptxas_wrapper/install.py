"""Putting the ptxas wrapper where callers of ptxas find it: in a copy of the toolkit made of links, first on PATH for
one run, or, when asked, in place of a ptxas, with the original kept beside it as `ptxas.real`.

nvcc looks for ptxas in its own folder (nvcc.profile puts that folder first on PATH) and tileiras in the toolkit that
CUDA_ROOT names, else in its own folder; so a wrapper that merely stands on PATH is seen by neither. What the wrapper
does is in _program.py and recorder.py.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from tritonhook.errors import ToolError

VARIABLE = "TRITONHOOK_SHIMS"  # for child processes: where the linked toolkits are, and which Python runs the wrapper
_WRAPPER = Path(__file__).with_name("_program.py")
_INSTALLED = "# tritonhook ptxas wrapper 1, installed"
_LINKED = "# tritonhook ptxas wrapper 1, for `tritonhook run`"
_MARK_BYTES = 200
_QUESTIONS = "--version|-V|--help|-h|--list-version|-version-ls"
_LOG = "ptxas-wrapper.log"


# --- the script ----------------------------------------------------------------------------------


def wrapper_script(real: Path, mark: str, python: str, log: Path) -> str:
    """The shell script that stands for `real`. Where Python or tritonhook is gone, it just runs `real`.

    A shell script, as a `#!` line takes no path with blanks, and is cut at 127 bytes.
    """
    at = os.stat(real)  # noqa: PTH116
    kind = "installed" if mark == _INSTALLED else "linked"
    words = [str(real), _version(real), str(at.st_size), str(at.st_mtime_ns), str(log), kind]
    about = " ".join(shlex.quote(word) for word in words[1:])
    lines = ["#!/bin/sh", mark]
    if kind == "installed":
        lines += ["# `tritonhook ptxas uninstall` puts the original back, which is the ptxas.real beside this file."]
    lines += [f"real={shlex.quote(str(real))}"]
    if kind == "installed":  # the toolkit may have been moved
        lines += ['[ -x "$real" ] || real=${0%/*}/' + shlex.quote(real.name)]
    lines += [f"python={shlex.quote(python)}", f"wrapper={shlex.quote(str(_WRAPPER))}"]
    wanted = '[ "$TRITONHOOK_SHIM" != off ]'
    if kind == "linked":
        wanted += ' && [ -n "$TRITONHOOK_RUN$PTX_DUMP_DIR" ]'
    lines += [
        f'case "$*" in {_QUESTIONS}) exec "$real" "$@";; esac',
        f'if {wanted} && [ -x "$python" ] && [ -r "$wrapper" ]; then',
        f'  exec "$python" -I -S "$wrapper" "$real" {about} "$@"',
        "fi",
        'exec "$real" "$@"',
    ]
    return "\n".join(lines) + "\n"


def _version(ptxas: Path) -> str:
    from tritonhook.ptxas.discovery import find_ptxas

    try:
        return find_ptxas(ptxas).version
    except ToolError:
        return ""


def _mark_of(path: Path) -> str | None:
    """Which wrapper of ours a file is; None if it is none."""
    try:
        with path.open("rb") as file:
            head = file.read(_MARK_BYTES)
    except OSError:
        return None
    return next((mark for mark in (_INSTALLED, _LINKED) if mark.encode() in head), None)


def _original(ptxas: Path) -> Path:
    """The ptxas itself, where a wrapper of ours stands in its place."""
    return _real_of(ptxas) if _mark_of(ptxas) == _INSTALLED else ptxas


def cache_folder() -> Path:
    import platformdirs

    return Path(platformdirs.user_cache_dir("tritonhook"))


def log_file() -> Path:
    """Where installed wrappers write what went wrong: never to the caller of ptxas."""
    return cache_folder() / _LOG


def troubles(log: Path, out: Path | None = None, since_ns: int = 0) -> list[str]:
    """What wrappers could not keep, in sentences, each once; of one capture folder, or of all."""
    counts: dict[str, int] = {}
    try:
        lines = log.read_text().splitlines()
    except OSError:
        return []
    for line in lines:
        with contextlib.suppress(ValueError, KeyError, TypeError):
            item = json.loads(line)
            if item["time_ns"] >= since_ns and out in (None, Path(item["out"])):
                counts[item["what"]] = counts.get(item["what"], 0) + 1
    return [f"{number} call{'' if number == 1 else 's'} of ptxas not kept: {what}" for what, number in counts.items()]


# --- a toolkit of links, for one run -------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Home:
    """Where linked toolkits are kept (the wrappers' log lies beside), and the Python that runs the wrapper."""

    folder: Path
    python: str

    @classmethod
    def for_run(cls, out: Path) -> Home:
        """In the user's cache, as builds remember where their nvcc was; where that cannot be written, in `out`."""
        folder = cache_folder() / "toolkits"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            usable = os.access(folder, os.W_OK)
        except OSError:
            usable = False
        return cls(folder if usable else out / ".shims" / "toolkits", sys.executable)

    @property
    def log(self) -> Path:
        return self.folder.parent / _LOG

    @classmethod
    def given(cls, environment: Mapping[str, str]) -> Home | None:
        """As `tritonhook run` left it for its children."""
        text = environment.get(VARIABLE)
        if not text:
            return None
        values = json.loads(text)
        return cls(Path(values["folder"]), values["python"])

    @property
    def text(self) -> str:
        return json.dumps({"folder": str(self.folder), "python": self.python})


def path_environment(base: Mapping[str, str], home: Home) -> dict[str, str]:
    """The environment for a run whose nvcc, ptxas and tileiras shall meet the wrapper.

    Before each folder on PATH that has nvcc or ptxas comes a linked copy of its toolkit, so that nothing else on
    PATH changes its meaning. Where the copies cannot be made, PATH stays as it is.
    """
    entries = [e for e in base.get("PATH", os.defpath).split(os.pathsep) if not e or home.folder not in Path(e).parents]
    wanted: list[str] = []
    for entry in entries:
        with contextlib.suppress(OSError, ValueError):
            linked = _linked_for(Path(entry), home) if entry.startswith("/") else None
            if linked is not None and str(linked) not in wanted:
                wanted.append(str(linked))
        wanted.append(entry)
    return {**base, "PATH": os.pathsep.join(wanted), VARIABLE: home.text}


def _linked_for(entry: Path, home: Home) -> Path | None:
    """The linked folder that stands for one entry of PATH; None if that has neither nvcc nor ptxas."""
    nvcc, ptxas = entry / "nvcc", entry / "ptxas"
    toolkit = toolkit_of(nvcc) if os.access(nvcc, os.X_OK) else None
    if toolkit is not None:
        found = toolkit / "ptxas" if os.access(toolkit / "ptxas", os.X_OK) else ptxas
        if os.access(found, os.X_OK):
            return linked_toolkit(toolkit, found, home) / "bin"
    if os.access(ptxas, os.X_OK) and not ptxas.is_dir():
        return _build(home, entry, ptxas, []) / "bin"
    return None


def toolkit_of(nvcc: Path) -> Path | None:
    """The bin folder that an nvcc works from: its own, or, of a script (Debian, ccache), the one it says."""
    if (nvcc.parent / "nvcc.profile").exists():
        return nvcc.parent
    command = [str(nvcc), "--dryrun", "-x", "cu", os.devnull]
    try:
        done = subprocess.run(command, capture_output=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r"^#\$ _HERE_=(/.*)$", done.stderr.decode("utf-8", "replace"), re.MULTILINE)
    return Path(match[1]) if match and (Path(match[1]) / "nvcc").exists() else None


def linked_toolkit(folder: Path, ptxas: Path, home: Home) -> Path:
    """The linked copy of the toolkit whose programs are in `folder`. Raises OSError if it cannot be made."""
    return _build(home, folder, ptxas, sorted(p.name for p in folder.iterdir()))


def _build(home: Home, folder: Path, ptxas: Path, programs: Sequence[str]) -> Path:
    """Make the copy beside its place and rename it, once for each toolkit, ptxas, and tritonhook."""
    ptxas = _original(ptxas.absolute())
    folder = folder.absolute()
    at = os.stat(ptxas)  # noqa: PTH116
    facts = [str(folder), str(ptxas), at.st_size, at.st_mtime_ns, home.python, str(_WRAPPER), list(programs), _LINKED]
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


def _fill(staged: Path, place: Path, folder: Path, ptxas: Path, programs: Sequence[str], home: Home) -> None:
    bin_folder = staged / "bin"
    bin_folder.mkdir(parents=True)
    if programs:
        for item in folder.parent.iterdir():
            if item.name != "bin" and item.name != folder.name:
                (staged / item.name).symlink_to(item)
    for name in programs:
        if name == "nvcc.profile":
            profile = (folder / name).read_text()
            # TOP and all that hangs on it stay where they are; only PATH gets our folder in front (`+=` prepends).
            profile = profile.replace("$(_HERE_)", str(folder)) + f"\nPATH += {place / 'bin'}:\n"
            (bin_folder / name).write_text(profile)
        elif name == "tileiras":
            _write_program(bin_folder / name, _tileiras_script(folder / name, folder.parent, place))
        elif name not in ("ptxas", "ptxas.real"):
            (bin_folder / name).symlink_to(folder / name)
    _write_program(bin_folder / "ptxas", wrapper_script(ptxas, _LINKED, home.python, home.log))


def _tileiras_script(tileiras: Path, top: Path, place: Path) -> str:
    """tileiras finds its own folder through links, but asks CUDA_ROOT first. A toolkit that the user named stays."""
    named = '"${CUDA_ROOT:-${CUDA_HOME:-${CUDA_PATH:-' + str(top).replace('"', "") + '}}}"'
    return (
        f"#!/bin/sh\n{_LINKED}\n"
        f"[ {named} -ef {shlex.quote(str(top))} ] && export CUDA_ROOT={shlex.quote(str(place))}\n"
        f'exec {shlex.quote(str(tileiras))} "$@"\n'
    )


def _write_program(path: Path, text: str, mode: int = 0o755) -> None:
    path.write_text(text)
    path.chmod(mode)


# --- cuda.tile -----------------------------------------------------------------------------------

_TILE_WHEELS = ("nvidia-cuda-tileiras", "nvidia-cuda-nvcc", "nvidia-nvvm")


def begin_tile() -> None:
    """In a process under `tritonhook run` that has imported cuda.tile: let its tileiras meet the wrapper.

    cuda.tile calls tileiras by its full path and passes CUDA_ROOT on, where tileiras looks for ptxas first. It gets
    the linked copy of the toolkit that tileiras would have taken anyway.
    """
    from tritonhook.capture.store import CaptureWriter

    home = Home.given(os.environ)
    if home is None:
        return
    folder = _tile_toolkit()
    if folder is not None and home.folder not in folder.parents:
        os.environ["CUDA_ROOT"] = str(linked_toolkit(folder, folder / "ptxas", home))
    cached = _tile_cache()
    if cached is not None:
        CaptureWriter(Path(json.loads(os.environ["TRITONHOOK_RUN"])["out"])).close([cached])


def _tile_toolkit() -> Path | None:
    """The bin folder of the toolkit that cuda.tile's tileiras takes ptxas from; None where that one is on PATH, and
    linked already."""
    named = [Path(os.environ[name], "bin") for name in ("CUDA_ROOT", "CUDA_HOME", "CUDA_PATH") if os.environ.get(name)]
    if os.environ.get("CUDA_ROOT"):
        folder: Path | None = named[0]
    elif (folder := _tile_wheel_folder()) is None:  # with the wheels, cuda.tile hides CUDA_HOME and CUDA_PATH
        usual = [] if shutil.which("tileiras") else [Path("/usr/local/cuda/bin")]
        folder = next(iter([*named, *usual]), None)
    return folder if folder is not None and os.access(folder / "ptxas", os.X_OK) else None


def _tile_wheel_folder() -> Path | None:
    """The bin folder of the wheels that cuda.tile takes tileiras from; None if it looks elsewhere, as it does when
    the wheels' versions differ."""
    from importlib.metadata import PackageNotFoundError, version
    from importlib.util import find_spec

    try:
        releases = {tuple(version(wheel).split(".")[:2]) for wheel in _TILE_WHEELS}
        spec = find_spec("nvidia.cu13")
    except (PackageNotFoundError, ModuleNotFoundError):
        return None
    if len(releases) != 1 or spec is None or not spec.submodule_search_locations:
        return None
    folder = Path(next(iter(spec.submodule_search_locations)), "bin")
    return folder if (folder / "tileiras").exists() and (folder / "ptxas").exists() else None


def _tile_cache() -> str | None:
    """A sentence on cuda.tile's own cache of cubins, if it has any."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path("~/.cache").expanduser())
    folder = os.environ.get("CUDA_TILE_CACHE_DIR", f"{base}/cutile-python")
    if folder.strip().lower() in ("", "0", "off", "none") or not any(Path(folder).glob("*")):
        return None
    return (
        f"cuda.tile: kernels that it takes from its cache ({folder}) do not reach ptxas and are not seen; "
        "CUDA_TILE_CACHE_DIR=off compiles them all"
    )


# --- installing ----------------------------------------------------------------------------------


class State(Enum):
    """How a ptxas stands."""

    PLAIN = "not installed"
    INSTALLED = "installed"
    UNFINISHED = "not installed (an install or uninstall was cut short; ptxas is the original)"
    REPLACED = "not installed any more (another ptxas was put over the wrapper, by a toolkit upgrade perhaps)"
    FOREIGN = "somebody else's wrapper"
    BROKEN = "installed, but the original is gone"


@dataclass(frozen=True, slots=True)
class Place:
    """A ptxas to install over. path: the file itself, links followed. given: as the user or the search named it."""

    path: Path
    given: Path

    @property
    def real(self) -> Path:
        return _real_of(self.path)

    @property
    def state(self) -> State:
        mark, has_real = _mark_of(self.path), os.path.lexists(self.real)
        if mark == _INSTALLED:
            return State.INSTALLED if os.access(self.real, os.X_OK) else State.BROKEN
        if not has_real:
            return State.PLAIN
        if _same_contents(self.path, self.real):
            return State.UNFINISHED
        return State.REPLACED if _is_binary(self.path) else State.FOREIGN


def _real_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.real")


def _same_contents(a: Path, b: Path) -> bool:
    import filecmp

    return a.samefile(b) or filecmp.cmp(a, b, shallow=False)


def _is_binary(path: Path) -> bool:
    """Whether a program is machine code, as every ptxas of NVIDIA's is. A script beside a ptxas.real is taken for
    somebody's wrapper: to take it for a ptxas would put it over the only original."""
    with path.open("rb") as file:
        return file.read(4) == b"\x7fELF"


def find_place(given: str | None) -> Place:
    """The ptxas to install over: the one given, else that of the CUDA toolkit. Raises ToolError if there is none.

    Those in Triton's package and in wheels are meant only if they are given: pip would not know them again.
    """
    if given is not None:
        path = Path(given) / "ptxas" if Path(given).is_dir() else Path(given)
        if not path.is_file():
            raise ToolError(f"{path}: no such file; give a ptxas, or its folder")
        return _checked(path)
    tried = list(dict.fromkeys(_toolkit_ptxas()))
    for path in tried:
        if path.is_file() and _mark_of(path) != _LINKED:
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
    if found := shutil.which("ptxas"):
        yield Path(found)
    yield Path("/usr/local/cuda/bin/ptxas")


def _checked(path: Path) -> Place:
    if _mark_of(path) == _LINKED:
        raise ToolError(f"{path}: the wrapper of a `tritonhook run`; name the ptxas of the toolkit itself")
    if not os.access(path, os.X_OK):
        raise ToolError(f"{path}: not an executable file; give a ptxas")
    return Place(Path(os.path.realpath(path)), path)


def install(place: Place, python: str = sys.executable) -> str:
    """Put the wrapper over a ptxas; says what was done. Raises ToolError and leaves everything as it was.

    The original gets a second name, ptxas.real, and then the wrapper is renamed over the first: at every moment
    there is a ptxas that works, whole.
    """
    with _locked(place):
        state = place.state
        if state is State.FOREIGN:
            raise ToolError(f"{place.path}: is somebody else's wrapper around {place.real.name}; uninstall that first")
        if state is State.BROKEN:
            raise ToolError(_gone(place))
        if state is not State.INSTALLED:
            _keep_original(place)
        script = wrapper_script(place.real, _INSTALLED, python, log_file())
        if state is State.INSTALLED and place.path.read_text() == script:
            return f"{place.path}: the wrapper is installed already"
        _replace(place.path, script, place.real)
        if state is State.REPLACED:
            return f"{place.path}: the wrapper is installed again, over the newer ptxas that had replaced it"
        return f"{place.path}: the wrapper is {'up to date' if state is State.INSTALLED else 'installed'}"


def uninstall(place: Place) -> str:
    """Put the original back: the same file, renamed. Says what was done. Raises ToolError."""
    with _locked(place):
        state = place.state
        if state is State.INSTALLED:
            place.real.replace(place.path)
            _sync(place.path.parent)
            return f"{place.path}: the original is back"
        if state is State.UNFINISHED:
            place.real.unlink()
            return f"{place.path}: is the original; removed the second name that was left of an install"
        if state is State.REPLACED:
            return f"{place.path}: was replaced since the install and stays; {place.real} is the older one, delete it"
        if state is State.FOREIGN:
            raise ToolError(f"{place.path}: is somebody else's wrapper around {place.real.name}; nothing was changed")
        if state is State.BROKEN:
            raise ToolError(_gone(place))
        return f"{place.path}: no wrapper is installed"


def _gone(place: Place) -> str:
    return f"{place.path}: the wrapper is there, but its {place.real.name} is gone; install the CUDA package again"


@contextlib.contextmanager
def _locked(place: Place) -> Iterator[None]:
    """One at a time, without a lock file in the toolkit; what a killed install left is removed. What the system
    refuses becomes one sentence."""
    try:
        folder = os.open(place.path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)
            for left in place.path.parent.glob(f".{place.path.name}.tritonhook-*"):
                left.unlink()
            yield
        finally:
            os.close(folder)
    except OSError as error:
        raise ToolError(
            f"{place.path}: cannot change it: {error.strerror}; run as the owner of the toolkit, "
            "or leave it alone: `tritonhook run -- nvcc ...` needs no install"
        ) from None


def _keep_original(place: Place) -> None:
    """Give the original its second name, in place of an older ptxas.real if there is one."""
    staged = _staged(place.path)
    try:
        try:
            os.link(place.path, staged)
        except OSError:  # a file system without links, or protected ones
            shutil.copy2(place.path, staged)
            _sync(staged)
        if place.real.exists() and place.real.samefile(staged):
            return  # POSIX: renaming one name of a file over another does nothing
        staged.replace(place.real)
        _sync(place.path.parent)
    finally:
        staged.unlink(missing_ok=True)


def _replace(path: Path, script: str, original: Path) -> None:
    staged = _staged(path)
    try:
        staged.write_text(script)
        staged.chmod(original.stat().st_mode & 0o7777)
        _sync(staged)
        staged.replace(path)
        _sync(path.parent)
    finally:
        staged.unlink(missing_ok=True)


def _staged(path: Path) -> Path:
    return path.with_name(f".{path.name}.tritonhook-{os.getpid()}-{time.time_ns()}")


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
