"""NVIDIA's programs ptxas and nvdisasm: find them, run them, and read their version, targets and file hash. They are
searched in this order: the user's path, versions of `ptxas add`, wheels, Triton, the CUDA toolkit, PATH."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from tritonhook._display import Brief
from tritonhook._util.files import cache_folder, write_whole
from tritonhook._util.variables import WRAPPER
from tritonhook._util.versions import is_version, version_key
from tritonhook.errors import ToolError
from tritonhook.ptxas.threads import ending_with_pool

TIMEOUT_S = 600.0
_PATH_CHARACTERS = 256
_ROOM_BYTES = 1 << 16


class Finished(NamedTuple):
    """Result of a run. returncode: negative for a signal, as in subprocess."""

    returncode: int
    stdout: bytes
    stderr: bytes
    timed_out: bool = False


def run_tool(command: Sequence[str], timeout_s: float = TIMEOUT_S) -> Finished:
    """Run a command; kill it after `timeout_s`. Raises ToolError if it cannot be started, and KeyboardInterrupt if
    SIGINT ended it, since Ctrl-C also reaches child processes."""
    # If this ptxas is tritonhook's wrapper, it must not record tritonhook's own calls.
    environment = {**os.environ, WRAPPER: "off"}
    pipe, late = subprocess.PIPE, False
    try:
        program = subprocess.Popen(command, stdout=pipe, stderr=pipe, env=environment)
    except OSError as error:
        raise ToolError(f"{command[0]}: cannot run: {error.strerror}") from None
    with program, ending_with_pool(program):
        try:
            stdout, stderr = program.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            program.kill()
            stdout, stderr = program.communicate()
            late = True
        except BaseException:
            program.kill()
            raise
    if program.returncode == -signal.SIGINT:
        raise KeyboardInterrupt
    return Finished(program.returncode, stdout, stderr, late)


@contextmanager
def temporary_file(name: str, data: bytes) -> Iterator[Path]:
    """Write a file in a new temporary folder, which is deleted at the end of the block. Raises ToolError."""
    try:
        made = tempfile.TemporaryDirectory(prefix="tritonhook-")
    except OSError as error:
        raise _no_room(Path(name), error) from None
    with made as folder:
        path = Path(folder, name)
        try:
            path.write_bytes(data)
        except OSError as error:
            raise _no_room(path, error) from None
        yield path


def fixed_length(path: Path) -> str:
    """Lengthen a path to 256 characters by extra slashes before its name; it still names the same file.

    For some sm_100 kernels the code that ptxas makes depends on the length of its arguments: 12.9.86 made one of two
    codes, depending on the length of $TMPDIR.
    """
    folder = str(path.parent)
    return folder + "/" * max(1, _PATH_CHARACTERS - len(folder) - len(path.name)) + path.name


def _no_room(path: Path, error: OSError) -> ToolError:
    return ToolError(f"{path}: cannot write a temporary file: {error.strerror}; set TMPDIR to a folder with free space")


def check_room(path: Path) -> None:
    """Raise ToolError if the disk of this file is full: ptxas then writes a truncated file and reports no error."""
    if shutil.disk_usage(path.parent).free < _ROOM_BYTES:
        raise ToolError(f"{path.parent}: the disk is full, so the output is cut off; set TMPDIR to one with free space")


_VERSION = re.compile(r"\bV(\d+\.\d+\.\d+)")
_LARGE_BYTES = 1 << 20
_KEPT_S = 30 * 24 * 3600.0  # age at which cached answers of programs are deleted


@dataclass(frozen=True, slots=True, repr=False)
class Tool(Brief):
    """A program: its path, its version ("12.8.93"), and the place where it was found, e.g. "wheel" or "PATH"."""

    _shown: ClassVar[tuple[str, ...]] = ("version", "source")

    path: Path
    version: str
    source: str


@functools.lru_cache(maxsize=256)
def inspect_tool(path: Path, source: str) -> Tool | str:
    """Return the tool at `path`, or the reason why it cannot be used. Its version is cached."""
    if not path.exists():
        return "no such file"
    if not os.access(path, os.X_OK) or path.is_dir():
        return "not an executable file"
    try:
        version = noted(path, "version", lambda: _version(path).encode()).decode()
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"cannot run: {error}"
    return Tool(path, version, source) if version else "prints no version"


def _version(path: Path) -> str:
    """Run a program with --version and parse its version; "" if it prints none. Raises OSError, TimeoutExpired."""
    done = subprocess.run([str(path), "--version"], capture_output=True, timeout=30, check=False)
    match = _VERSION.search(done.stdout.decode("utf-8", "replace"))
    return match[1] if match else ""


def tool_at(path: Path, source: str) -> Tool:
    """Return the tool at `path`. Raises ToolError with the reason if it cannot be used."""
    tool = inspect_tool(path.absolute() if path.is_file() else path, source)
    if isinstance(tool, str):
        raise ToolError(f"{path}: {tool}; give a ptxas/nvdisasm binary or a version such as 12.8.93")
    return tool


@functools.lru_cache(maxsize=64)
def targets(ptxas: Tool) -> tuple[str, ...]:
    """List the architectures that a ptxas supports, e.g. "sm_120a", in ascending order, from its --help. Raises
    ToolError."""
    done = run_tool([str(ptxas.path), "--help"], 30.0)
    option = done.stdout.decode("utf-8", "replace").partition("--gpu-name")[2].partition("\n--")[0]
    names = set(re.findall(r"'(sm_\d+[a-z]?)'", option))
    if not names:
        raise ToolError(f"{ptxas.path}: its --help names no targets for --gpu-name; is it ptxas?")
    return tuple(sorted(names, key=target_key))


def check_targets(archs: Iterable[str], tools: Sequence[Tool]) -> None:
    """Raise ToolError for an architecture that none of these ptxas supports."""
    for arch in archs:
        if not any(arch in targets(tool) for tool in tools):
            known = targets(max(tools, key=lambda tool: version_key(tool.version)))
            raise ToolError(
                f"{arch}: not a target of ptxas {', '.join(t.version for t in tools)}; give one of {', '.join(known)}"
            )


def target_key(arch: str) -> tuple[int, str]:
    """Make a sort key for targets: sm_90, sm_90a, sm_100, sm_100a, sm_100f. Raises ToolError for other text."""
    match = re.fullmatch(r"sm_(\d+)([a-z]?)", arch)
    if match is None:
        raise ToolError(f"{arch!r} is not a target; write one such as sm_120a")
    return int(match[1]), match[2]


def binary_sha256(binary: Path) -> str:
    """Compute the sha256 of a program's file. Raises ToolError if it cannot be read."""
    try:
        stat = binary.stat()
        return file_sha256(binary, stat.st_size, stat.st_mtime_ns)
    except OSError as error:
        raise ToolError(f"{binary}: {error.strerror}; see `tritonhook ptxas list`") from None


def is_same_file(path: Path, other: Path) -> bool:
    """Return True if two programs have the same bytes. Raises ToolError if a file cannot be read."""
    try:
        if path.stat().st_size != other.stat().st_size:
            return False
    except OSError as error:
        raise ToolError(f"{error.filename}: {error.strerror}; see `tritonhook ptxas list`") from None
    return binary_sha256(path) == binary_sha256(other)


@functools.lru_cache(maxsize=64)
def file_sha256(binary: Path, size: int, mtime_ns: int) -> str:
    """Compute the sha256 of a file. size, mtime_ns: part of the cache key, so that a changed file is hashed again."""
    return noted(binary, "sha256", lambda: hashlib.sha256(binary.read_bytes()).hexdigest().encode()).decode()


def noted(binary: Path, what: str, ask: Callable[[], bytes]) -> bytes:
    """Return a fact about a program, e.g. its version, from the cache on disk or by a call of `ask`.

    Facts are cached for a month, for all processes of this user, by `what` and the file's identity: path, inode, size
    and times of change. b"" is not cached. Facts of files below 1 MiB are not cached either: such a file may be a
    script, whose answers depend on other files.

    Without the cache, hashing a large file takes 20 ms, getting the versions of 20 programs takes 200 ms, and starting
    nvdisasm takes 0.8 s.
    """
    try:
        stat = binary.stat()
    except OSError:
        return ask()
    if stat.st_size < _LARGE_BYTES:
        return ask()
    identity = f"{binary.resolve()}:{stat.st_dev}:{stat.st_ino}:{stat.st_size}:{stat.st_mtime_ns}:{stat.st_ctime_ns}"
    note = cache_folder() / "answers" / hashlib.sha256(f"{what}:{identity}".encode()).hexdigest()
    with suppress(OSError, zlib.error):
        return zlib.decompress(note.read_bytes())
    if answer := ask():
        with suppress(OSError):
            note.parent.mkdir(parents=True, exist_ok=True)
            write_whole(note, zlib.compress(answer, 1))
        _delete_old_notes(note.parent)
    return answer


@functools.cache  # once per process: the folder can have many thousand files
def _delete_old_notes(folder: Path) -> None:
    with suppress(OSError):
        for note in folder.iterdir():
            if note.stat().st_mtime < time.time() - _KEPT_S:
                note.unlink(missing_ok=True)


# --- finding them ---------------------------------------------------------------------------------


def find_ptxas(wanted: str | os.PathLike[str] | None = None) -> Tool:
    """Return the ptxas to use.

    wanted: a version ("12.8.93") or a path. None: $TRITONHOOK_PTXAS, or the newest installed ptxas if that is not set.
    Raises ToolError with the list of all paths tried.
    """
    if isinstance(wanted, os.PathLike):
        return tool_at(Path(wanted), "given")
    if not isinstance(wanted, (str, type(None))):
        raise ToolError(f"{wanted!r}: not a ptxas; give a path, or a version as text such as '12.8.93'")
    wanted = wanted or os.environ.get("TRITONHOOK_PTXAS") or None
    if wanted and not is_version(wanted):
        return tool_at(Path(wanted), "given")
    tried: list[str] = []
    tools = list(available_ptxas(tried))
    if wanted:
        tried += [f"{tool.path}: version {tool.version}" for tool in tools]
        tools = [tool for tool in tools if tool.version == wanted or tool.version.startswith(f"{wanted}.")]
    if not tools:
        raise _not_found(wanted, tried)
    return max(tools, key=lambda tool: version_key(tool.version))


def find_recorded(path: str | None, version: str | None, trust: bool = False) -> Tool | None:
    """Return the ptxas that is recorded in a file, e.g. a capture; None if path and version are None.

    The file may be of untrusted origin, so the program at `path` is not run. The result is one of `available_ptxas`: a
    program with the same bytes as the one at `path`, else a program of the same version. trust: True if the user trusts
    the file; the result is then the program at `path`.
    Raises ToolError if no available ptxas fits.
    """
    named = file_at(path)
    if named is not None and trust:
        return tool_at(named, "trusted")
    if not path and version is None:
        return None
    tools = list(available_ptxas())
    same = (tool for tool in tools if named is not None and is_same_file(named, tool.path))
    ours = next(same, None) or next((tool for tool in tools if tool.version == version), None)
    if ours is not None:
        return ours
    fetch = version is not None and is_version(version)
    remedies = [f"fetch it with `tritonhook ptxas add {version}`"] if fetch else []
    remedies.append("use another one with --ptxas VERSION")
    if named is not None:
        remedies.append("run this one with --trust, if you trust the file's origin")
    raise ToolError(
        f"ptxas {version or 'of unknown version'} ({path or 'path not known'}), which the input names, is not among "
        f"the ptxas found on this machine; {', or '.join(remedies)}"
    )


def file_at(path: str | None) -> Path | None:
    """Convert a text to a path if it names an existing regular file, else None."""
    return Path(path) if path and os.path.isfile(path) else None  # noqa: PTH113  (Path raises an error for some texts)


def _not_found(wanted: str | None, tried: list[str]) -> ToolError:
    is_partial = wanted is not None and wanted.count(".") != 2
    command = f"`tritonhook ptxas add {'12.8.93' if wanted is None or is_partial else wanted}`"
    remedy = f"get one by its full version, e.g. with {command}" if is_partial else f"get it with {command}"
    what = f"ptxas {wanted}" if wanted else "ptxas"
    return ToolError(f"{what}: not found; {remedy}. Tried:\n  " + "\n  ".join(tried or ["nothing"]))


def find_nvdisasm() -> Tool:
    """Return the nvdisasm to use: $TRITONHOOK_NVDISASM, else the first of a wheel, Triton, the CUDA toolkit and PATH.

    Raises ToolError with the list of all paths tried.
    """
    given = os.environ.get("TRITONHOOK_NVDISASM")
    if given:
        return tool_at(Path(given), "$TRITONHOOK_NVDISASM")
    tried: list[str] = []
    tool = next(available_nvdisasm(tried), None)
    if tool is None:
        listed = "\n  ".join(tried or ["nothing"])
        raise ToolError(f"nvdisasm: not found; `pip install nvidia-cuda-nvdisasm`. Tried:\n  {listed}")
    return tool


def available_ptxas(tried: list[str] | None = None) -> Iterator[Tool]:
    """Yield each usable ptxas once: versions of `ptxas add`, then from wheels, Triton, the CUDA toolkit and PATH.
    tried: a list that gets a line for each path without a usable ptxas, with the reason."""
    tried = [] if tried is None else tried
    yield from _usable([*added_binaries(tried), *_candidates("ptxas"), *_candidates("ptxas-blackwell")], tried)


def available_nvdisasm(tried: list[str] | None = None) -> Iterator[Tool]:
    """Yield each usable nvdisasm once, the preferred one first. tried: as for `available_ptxas`."""
    yield from _usable(_candidates("nvdisasm"), [] if tried is None else tried)


def _usable(candidates: Iterable[tuple[Path, str]], tried: list[str]) -> Iterator[Tool]:
    """Yield the usable tools among (path, source) pairs; a program with several paths is yielded once."""
    seen: set[Path] = set()
    for path, source in candidates:
        real = path.resolve()
        if real in seen:
            continue
        tool = inspect_tool(path, source)
        if isinstance(tool, Tool):
            seen.add(real)
            yield tool
        else:
            tried.append(f"{path}: {tool}")


def _candidates(program: str) -> Iterator[tuple[Path, str]]:
    for folder, source in [*_wheel_folders(), *_triton_folders(), *_toolkit_folders()]:
        yield folder / program, source
    if path := shutil.which(program):
        yield Path(path), "PATH"


def _wheel_folders() -> Iterator[tuple[Path, str]]:
    for entry in sys.path:
        for folder in ("nvidia/cu13/bin", "nvidia/cuda_nvdisasm/bin", "nvidia/cuda_nvcc/bin"):
            path = Path(entry or ".", folder)
            if path.is_dir():
                yield path, "wheel"


def _triton_folders() -> Iterator[tuple[Path, str]]:
    from importlib.util import find_spec

    spec = find_spec("triton")  # finds the package without importing it
    for location in (spec.submodule_search_locations or []) if spec else []:
        yield Path(location, "backends", "nvidia", "bin"), "Triton"


def _toolkit_folders() -> Iterator[tuple[Path, str]]:
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if value := os.environ.get(variable):
            yield Path(value, "bin"), f"${variable}"
    yield Path("/usr/local/cuda/bin"), "CUDA toolkit"


# --- versions of `ptxas add` ---------------------------------------------------------------------


def tools_folder() -> Path:
    """Return the folder in which `ptxas add` installs binaries."""
    return cache_folder() / "tools"


def added_binaries(tried: list[str]) -> Iterator[tuple[Path, str]]:
    """Yield the binaries that `ptxas add` installed and that have not changed. tried: a list that gets a line for each
    changed binary."""
    for folder in sorted(tools_folder().glob("ptxas-*")):
        reason = _why_changed(folder)
        if reason is None:
            yield folder / "ptxas", "added"
        else:
            remedy = f"`tritonhook ptxas add {folder.name.removeprefix('ptxas-')}` fetches it again"
            tried.append(f"{folder / 'ptxas'}: not used: {reason}; {remedy}")


def _why_changed(folder: Path) -> str | None:
    """Return the reason why the binary in this folder differs from the installed one; None if it is the same.

    It is hashed only if its modification time has changed: otherwise each start would hash 30 MB per version.
    """
    binary = folder / "ptxas"
    try:
        note = _read_note(folder)
        size, mtime_ns, sha256 = note.get("size"), note.get("mtime_ns"), note["sha256"]
    except _UNREADABLE as error:
        return f"its tool.json cannot be read ({type(error).__name__}: {error})"
    try:
        stat = binary.stat()
        if size is not None and stat.st_size != size:
            return f"it has {stat.st_size} bytes, and had {size} when it was added"
        if stat.st_mtime_ns != mtime_ns and file_sha256(binary, stat.st_size, stat.st_mtime_ns) != sha256:
            return "its hash is not the one it had when it was added"
    except OSError as error:
        return error.strerror
    return None


def is_intact(folder: Path) -> bool:
    """Return True if the folder's binary has the recorded hash. It is hashed even if its time is unchanged."""
    try:
        return bool(hashlib.sha256((folder / "ptxas").read_bytes()).hexdigest() == _read_note(folder)["sha256"])
    except _UNREADABLE:
        return False


_UNREADABLE = (OSError, ValueError, KeyError, TypeError, AttributeError)


def _read_note(folder: Path) -> Any:
    return json.loads((folder / "tool.json").read_text())
