"""Outcome: the result of one run of ptxas. ResultCache: outcomes on disk, by the hash of a job's inputs. Several
processes may use one folder at the same time.

Outcomes are lines in 64 files; one write(2) appends one line. A line that a crash or a full disk truncated does not
match its checksum and is ignored. Each cubin is a separate file, named by its hash.
"""

from __future__ import annotations

import errno
import hashlib
import os
import weakref
import zlib
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Any

from tritonhook._util.files import VARIABLE, cache_folder, write_whole
from tritonhook.cubin.summary import ImageSummary
from tritonhook.errors import ToolError
from tritonhook.ptxas.limits import Limits

FORMAT = 4  # cache format; increment it when the meaning of Outcome changes


class OutcomeKind(str, Enum):
    """How a run of ptxas ended.

    rejected: ptxas found an error in the code.
    unsupported: ptxas does not support the module's `.version` or target or their combination; it did not read the
    code.
    memory: ptxas exceeded the memory limit.
    """

    ASSEMBLED = "assembled"
    REJECTED = "rejected"
    UNSUPPORTED = "unsupported"
    CRASHED = "crashed"
    TIMEOUT = "timeout"
    MEMORY = "memory"


@dataclass(frozen=True, slots=True)
class Outcome:
    """Outcome of a Job.

    message: ptxas's first error line, without the paths of this run; "" if there was none.
    signal: the name of the signal that ended ptxas, or None. cpu_s: CPU time of the ptxas process.
    limits: the limits of the run. image: the summary of the cubin, or None. cubin: its bytes, if the job has
    keep_cubin.
    """

    kind: OutcomeKind
    message: str
    returncode: int
    signal: str | None
    cpu_s: float
    wall_s: float
    limits: Limits
    image: ImageSummary | None = None
    cubin: bytes | None = None

    @property
    def lasting(self) -> bool:
        """Whether another run would end the same way. False if another process killed ptxas."""
        return self.kind in (OutcomeKind.TIMEOUT, OutcomeKind.MEMORY) or self.signal not in _FROM_OUTSIDE


_FROM_OUTSIDE = ("SIGINT", "SIGTERM", "SIGHUP", "SIGKILL", "SIGQUIT")
_SHARD_DIGITS = 63  # mask for the key's first two hex digits, which gives 64 files


class ResultCache:
    """Outcomes in a folder, by default in the user's cache folder. Each file is read once: outcomes that other
    processes add later are not seen, and are computed again."""

    def __init__(self, folder: str | os.PathLike[str] | None = None) -> None:
        self.folder = cache_folder() / "results" if folder is None else Path(folder)
        self._shards: dict[int, dict[bytes, bytes]] = {}
        self._files: dict[int, int] = {}
        weakref.finalize(self, _close, self._files)

    def get(self, key: str, with_cubin: bool = False) -> Outcome | None:
        """Look up the outcome of a key; None if it is not cached. with_cubin: include the cubin, if it was stored."""
        kept: tuple[Outcome, str | None] | None = self.get_document(key, tuple[Outcome, str | None])
        if kept is None:
            return None
        return replace(kept[0], cubin=self._cubin(kept[1])) if with_cubin else kept[0]

    def put(self, key: str, outcome: Outcome) -> None:
        """Store an outcome, and its cubin if it has one. Raises ToolError if the folder cannot be written."""
        cubin = None if outcome.cubin is None else self._keep_cubin(outcome.cubin)
        self.put_document(key, (replace(outcome, cubin=None), cubin))

    def get_document(self, key: str, shape: Any = Any) -> Any:
        """Look up the value of a key; None if there is none or it does not have the type `shape`."""
        import msgspec

        try:
            return msgspec.json.decode(self._shard(key).get(key.encode(), b"null"), type=shape)
        except msgspec.DecodeError:
            return None

    def put_document(self, key: str, value: Any) -> None:
        """Store a value as JSON. key: a sha256. Raises ToolError if the folder cannot be written."""
        import msgspec

        body = msgspec.json.encode(value)
        try:
            self._append(_shard_number(key), _line(key.encode(), body))
        except OSError as error:
            raise self._cannot("keep", error) from None
        self._shard(key)[key.encode()] = body

    def _cannot(self, verb: str, error: OSError) -> ToolError:
        return ToolError(
            f"{error.filename or self.folder}: cannot {verb} results there: {error.strerror}; set {VARIABLE} "
            "to another folder, or pass --no-cache"
        )

    def _path(self, shard: int) -> Path:
        return self.folder / f"{FORMAT}-{shard:02}.lines"

    def _shard(self, key: str) -> dict[bytes, bytes]:
        number = _shard_number(key)
        if number not in self._shards:
            try:
                data = self._path(number).read_bytes()
            except FileNotFoundError:
                data = b""
            except OSError as error:
                raise self._cannot("read", error) from None
            self._shards[number] = dict(filter(None, map(_read_line, data.split(b"\n"))))
        return self._shards[number]

    def _append(self, number: int, line: bytes) -> None:
        if number not in self._files:
            path = self._path(number)
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
            try:
                self._files[number] = os.open(path, flags, 0o644)
            except FileNotFoundError:
                path.parent.mkdir(parents=True, exist_ok=True)
                self._files[number] = os.open(path, flags, 0o644)
        if os.write(self._files[number], line) != len(line):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._path(number)))

    def _keep_cubin(self, cubin: bytes) -> str:
        name = hashlib.sha256(cubin).hexdigest()
        path = self._cubin_path(name)
        try:
            if not path.exists():
                path.parent.mkdir(parents=True, exist_ok=True)
                write_whole(path, cubin)
        except OSError as error:
            raise self._cannot("keep", error) from None
        return name

    def _cubin_path(self, name: str) -> Path:
        return self.folder / "cubins" / name[:2] / f"{name}.cubin"

    def _cubin(self, name: str | None) -> bytes | None:
        if name is None:
            return None
        try:
            data = self._cubin_path(name).read_bytes()
        except OSError:
            return None
        return data if hashlib.sha256(data).hexdigest() == name else None


def _close(files: dict[int, int]) -> None:
    for file in files.values():
        os.close(file)


def _shard_number(key: str) -> int:
    return int(key[:2], 16) & _SHARD_DIGITS


def _line(key: bytes, body: bytes) -> bytes:
    """Format a line of a cache file. It begins with a line break, so that a truncated line before it cannot spoil
    it."""
    return b"\n%s %08x %s\n" % (key, zlib.crc32(key + body), body)


def _read_line(line: bytes) -> tuple[bytes, bytes] | None:
    key, _, rest = line.partition(b" ")
    checksum, _, body = rest.partition(b" ")
    return (key, body) if body and b"%08x" % zlib.crc32(key + body) == checksum else None
