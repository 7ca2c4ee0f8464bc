"""One program of NVIDIA's: where it is, its version, its targets, the hash of its file."""

from __future__ import annotations

import functools
import hashlib
import os
import re
import subprocess
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from tritonhook._display import Brief
from tritonhook._util.files import cache_folder, write_whole
from tritonhook._util.versions import version_key
from tritonhook.errors import ToolError
from tritonhook.ptxas.process import run_tool

_VERSION = re.compile(r"\bV(\d+\.\d+\.\d+)")
_LARGE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, repr=False)
class Tool(Brief):
    """A program: where it is, its version ("12.8.93"), and which source offered it."""

    _shown: ClassVar[tuple[str, ...]] = ("version", "source")

    path: Path
    version: str
    source: str


@functools.lru_cache(maxsize=256)
def inspect_tool(path: Path, source: str) -> Tool | str:
    """Return the tool at `path`, or the reason why there is none. The program runs once; the answer is kept."""
    if not path.exists():
        return "no such file"
    if not os.access(path, os.X_OK) or path.is_dir():
        return "not an executable file"
    try:
        done = subprocess.run([str(path), "--version"], capture_output=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"cannot run: {error}"
    match = _VERSION.search(done.stdout.decode("utf-8", "replace"))
    return Tool(path, match[1], source) if match else "prints no version"


def tool_at(path: Path, source: str) -> Tool:
    """Return the tool at `path`. Raises ToolError with the reason if there is none."""
    tool = inspect_tool(path, source)
    if isinstance(tool, str):
        raise ToolError(f"{path}: {tool}; give a ptxas/nvdisasm binary or a version such as 12.8.93")
    return tool


@functools.lru_cache(maxsize=64)
def targets(ptxas: Tool) -> tuple[str, ...]:
    """The architectures that a ptxas lists in its --help, e.g. "sm_120a", in ascending order. Raises ToolError."""
    done = run_tool([str(ptxas.path), "--help"], 30.0)
    option = done.stdout.decode("utf-8", "replace").partition("--gpu-name")[2].partition("\n--")[0]
    names = set(re.findall(r"'(sm_\d+[a-z]?)'", option))
    if not names:
        raise ToolError(f"{ptxas.path}: its --help names no targets for --gpu-name; is it ptxas?")
    return tuple(sorted(names, key=target_key))


def check_targets(archs: Iterable[str], tools: Sequence[Tool]) -> None:
    """Raises ToolError for an architecture that none of these ptxas knows."""
    for arch in archs:
        if not any(arch in targets(tool) for tool in tools):
            known = targets(max(tools, key=lambda tool: version_key(tool.version)))
            raise ToolError(f"{arch}: no target of ptxas {', '.join(t.version for t in tools)}: {', '.join(known)}")


def target_key(arch: str) -> tuple[int, str]:
    """The sort key of a target: sm_90, sm_90a, sm_100, sm_100a, sm_100f. Raises ToolError if it is none."""
    match = re.fullmatch(r"sm_(\d+)([a-z]?)", arch)
    if match is None:
        raise ToolError(f"{arch!r} is not a target; write one such as sm_120a")
    return int(match[1]), match[2]


def binary_sha256(binary: Path) -> str:
    """The hash of a program's file. Raises ToolError if it cannot be read."""
    try:
        stat = binary.stat()
        return file_sha256(binary, stat.st_size, stat.st_mtime_ns)
    except OSError as error:
        raise ToolError(f"{binary}: {error.strerror}; see `tritonhook ptxas list`") from None


def is_same_file(path: Path, other: Path) -> bool:
    """Whether two programs have the same bytes. Raises ToolError if one cannot be read."""
    try:
        if path.stat().st_size != other.stat().st_size:
            return False
    except OSError as error:
        raise ToolError(f"{error.filename}: {error.strerror}; see `tritonhook ptxas list`") from None
    return binary_sha256(path) == binary_sha256(other)


@functools.lru_cache(maxsize=64)
def file_sha256(binary: Path, size: int, mtime_ns: int) -> str:
    """The hash of a file that has this size and time now; it is hashed again when one of them changes.

    Hashing a large file takes 20 ms and more. Its hash is therefore kept on disk, for all later processes of
    this user, under the file's identity: path, inode, size, times of change.
    """
    if size < _LARGE_BYTES:
        return hashlib.sha256(binary.read_bytes()).hexdigest()
    stat = binary.stat()
    identity = f"{binary.resolve()}:{stat.st_dev}:{stat.st_ino}:{size}:{mtime_ns}:{stat.st_ctime_ns}"
    name = hashlib.sha256(identity.encode()).hexdigest()
    note = cache_folder() / "hashes" / name
    with suppress(OSError, ValueError):
        noted = note.read_text()
        if re.fullmatch(r"[0-9a-f]{64}", noted):
            return noted
    digest = hashlib.sha256(binary.read_bytes()).hexdigest()
    with suppress(OSError):
        note.parent.mkdir(parents=True, exist_ok=True)
        write_whole(note, digest)
    return digest
