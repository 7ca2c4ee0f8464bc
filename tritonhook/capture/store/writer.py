"""Write capture folders, from several threads and processes at once.

A kernel folder is written in OUT/.staging and then renamed to its final path, so that readers and other processes see a
complete folder or none. A kernel that is captured again, by this process or another, is not stored again.

It imports only the standard library: it runs in the program's own Python, and in the ptxas wrapper under `python -I
-S`.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
import socket
import sys
import sysconfig
import threading
import time
import weakref
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tritonhook._util.files import read_given, staged_beside, write_whole
from tritonhook._util.text import to_json
from tritonhook._util.variables import RUN_ID
from tritonhook.capture.model import META_DRY_RUN, Capture, Stage
from tritonhook.capture.store.format import FORMAT, MOST_SOURCE, SOURCES_FOLDER, STAGES, describe, is_source
from tritonhook.errors import CaptureError
from tritonhook.ptx.locations import source_files

if TYPE_CHECKING:
    from tritonhook.capture.launches.record import Launch

STAGING = ".staging"  # subfolder of a capture folder for unfinished records
_SWEPT_AFTER_S = 24 * 3600.0
_NAME_CHARACTERS = 80  # limit for a kernel's name in file names; C++ compilers make names of several hundred characters
_RANK_VARIABLES = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK")
_CREATE = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC
_Key = tuple[str, str, int, int]  # kernel, Triton's hash, size (bytes) and modification time (ns) of the binary
_process_ns = time.time_ns()  # approximate start of this process; distinguishes processes with the same pid


def rank() -> str:
    """Return this process's rank from the environment variables of torchrun, Slurm or MPI; "-" if there is none. A RANK
    that is not a number, e.g. RANK=gold/1, belongs to another program and is ignored."""
    return next((os.environ[name] for name in _RANK_VARIABLES if os.environ.get(name, "").isdecimal()), "-")


def _file_stem(kernel: str) -> str:
    return re.sub(r"^\.|[^\w$.-]", "_", kernel, flags=re.ASCII)[:_NAME_CHARACTERS] or "kernel"


class CaptureWriter:
    """Writer of one process's captures. Safe to call from several threads."""

    def __init__(self, out: Path, about: Mapping[str, Any] | None = None) -> None:
        """Create the folder. about: further values for the index's header. Raises CaptureError if it cannot be
        written."""
        self.out = out
        self._about = dict(about or {})
        self._lock = threading.Lock()
        self._index: int | None = None
        self._known: dict[_Key, str] = {}
        _writers.add(self)
        try:
            with suppress(FileExistsError):  # another process may be first
                out.mkdir(parents=True)
                (out / ".gitignore").write_text("*\n")
            for folder in ("kernels", "index", STAGING):
                (out / folder).mkdir(parents=True, exist_ok=True)
            _sweep(out / STAGING)
            probe = out / "index" / f".probe-{os.getpid()}"
            probe.touch()
            probe.unlink()
        except OSError as error:
            raise CaptureError(
                f"{out}: cannot keep captures there: {error.strerror}; choose another folder with out= or --out"
            ) from None

    def known(self, kernel: str, hash: str, files: Mapping[Stage, str]) -> str | None:
        """Return the record of a kernel that this writer has already kept, else None."""
        return self._known.get(_key(kernel, hash, files))

    def add_files(self, capture: Capture, files: Mapping[Stage, str], linked: bool = False) -> str:
        """Keep a kernel and its artifacts; returns the record's name.

        files: path by stage, e.g. in the compiler's cache. linked: True makes hard links instead of copies, if the
        files already belong to another kernel of the same module in this capture folder. A kernel that was kept before
        is recognised by its hash and its binary's size and time; the binary is not read. Raises OSError, for instance
        if the disk is full; then no incomplete record remains.
        """
        key = _key(capture.kernel, capture.hash, files)
        with self._lock:
            record = self._known.get(key)
            if record is None:
                record = self._place(capture, files, key, linked)
                self._append(capture, record)
                self._known[key] = record
            return record

    def after_fork(self) -> None:
        """Reset the writer in a forked child, which writes its own index. The lock is replaced, because another thread
        may have held it at the fork."""
        self._lock = threading.Lock()
        self._index = None
        self._known = {}

    def _place(self, capture: Capture, files: Mapping[Stage, str], key: _Key, linked: bool) -> str:
        stem = f"{_file_stem(capture.kernel)}-{capture.hash[:16]}"
        for number in range(1000):
            record = stem if number == 0 else f"{stem}-{number}"
            folder = self.out / "kernels" / record
            if not folder.exists() and self._write(folder, capture, files, key, linked):
                return record
            if self._is_same(folder, capture, files, key):
                return record
        raise OSError(f"{stem}: over 1,000 different kernels of this name and hash")

    def _is_same(self, folder: Path, capture: Capture, files: Mapping[Stage, str], key: _Key) -> bool:
        """Check whether a stored record is this kernel: by its binary's size and time, else by the binary's bytes.
        Return False for a damaged record, and if one of the two comes from a dry run and the other does not."""
        try:
            document = json.loads((folder / "capture.json").read_bytes())
            stored = {STAGES[name]: folder / file for name, file in document["files"].items() if name in STAGES}
            dry_run = bool(document["metadata"].get(META_DRY_RUN))
            if document["kernel"] != key[0] or dry_run != capture.dry_run or not files.keys() <= stored.keys():
                return False
            if document.get("source_stat") == list(key[2:]):
                return True
            both = [stage for stage in files if stage.is_binary]
            return bool(both) and all(Path(files[s]).read_bytes() == stored[s].read_bytes() for s in both)
        except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
            return False

    def _write(self, folder: Path, capture: Capture, files: Mapping[Stage, str], key: _Key, linked: bool) -> bool:
        """Write a record; return False if another process wrote the same record first."""
        stem = _file_stem(capture.kernel)
        names = {stage.value: f"{stem}.{stage.value}" for stage in files}
        document = describe(capture) | {"format": FORMAT, "files": names, "source_stat": list(key[2:])}
        staged = staged_beside(f"{self.out}/{STAGING}/record")
        os.mkdir(staged)  # noqa: PTH102  (this runs during Triton's compile, where each Path costs microseconds)
        try:
            for stage, path in files.items():
                (_link if linked else _copy)(path, f"{staged}/{names[stage.value]}")
            if Stage.PTX in files and (sources := self._keep_sources(files[Stage.PTX])):
                document["sources"] = sources
            _create(f"{staged}/capture.json", to_json(document).encode())
            os.rename(staged, folder)  # noqa: PTH104
        except BaseException as error:
            shutil.rmtree(staged, ignore_errors=True)
            if isinstance(error, OSError) and folder.exists():
                return False
            raise
        return True

    def _keep_sources(self, ptx: str) -> dict[str, str]:
        """Keep the text of each source file that a PTX file names, without duplicates. Returns the name of the kept
        file by source path."""
        kept = {}
        with open(ptx, encoding="utf-8", errors="replace") as file:  # noqa: PTH123
            paths = source_files(file.read())
        for path in filter(is_source, paths):
            with suppress(OSError):  # a capture is useful without its sources
                text = read_given(path, MOST_SOURCE)
                kept[path] = f"{hashlib.sha256(text).hexdigest()[:32]}.txt"
                target = f"{self.out}/{SOURCES_FOLDER}/{kept[path]}"
                if not os.path.exists(target):  # noqa: PTH110
                    os.makedirs(os.path.dirname(target), exist_ok=True)  # noqa: PTH103, PTH120
                    write_whole(target, text)
        return kept

    def _append(self, capture: Capture, record: str) -> None:
        line = {"record": record, "kernel": capture.kernel, "cache_hit": capture.cache_hit, "time_ns": time.time_ns()}
        self._write_lines(line | ({"compile_us": dict(capture.compile_us)} if capture.compile_us else {}))

    def _write_lines(self, *lines: Mapping[str, Any]) -> None:
        """Write all lines in one system call, so that a line is incomplete only if the process dies during the call."""
        if self._index is None:
            lines = (self._begin_index(), *lines)
        assert self._index is not None
        try:
            _write(self._index, "".join(f"{to_json(line)}\n" for line in lines).encode())
        except OSError:
            os.close(self._index)
            self._index = None  # the next line begins a new index
            raise

    def _begin_index(self) -> dict[str, Any]:
        """Open an index for this process. Returns its header, which the caller writes."""
        host, started_ns = socket.gethostname(), time.time_ns()
        header = {
            "format": FORMAT,
            "host": host,
            "rank": rank(),
            "pid": os.getpid(),
            "process_ns": _process_ns,
            "argv": sys.argv,
            "python": sys.version.split()[0],
            "started_ns": started_ns,
            "run": os.environ.get(RUN_ID),
        }
        path = f"{self.out}/index/{host}-{rank()}-{os.getpid()}-{started_ns}.jsonl"
        self._index = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY | os.O_CLOEXEC, 0o644)
        return header | self._about

    def add_tuning(self, tuning: str, by: str, winner: str, among: Sequence[str]) -> None:
        """Record an autotuner's choice. tuning: id of the autotuning in this process; a later line with the same id
        replaces the earlier line. by: name of the autotuner. winner, among: records of the winning kernel and of all
        tried kernels."""
        with self._lock:
            self._write_lines({"winner": winner, "among": list(among), "tuning": tuning, "by": by})

    def add_configurations(
        self,
        function: str,
        key: Sequence[str],
        chosen: str,
        configurations: Mapping[str, str],
        source: str | None = None,
        by: str = "Triton",
    ) -> None:
        """Record the configurations that an autotuner tried for one key of a function. chosen: the winner's record.
        configurations: each configuration as text, by record. source: hash of the function's source. by: "Triton" or
        "Inductor"."""
        line = {"configurations": dict(configurations), "function": function, "key": list(key), "chosen": chosen}
        line |= {"by": by, **({} if source is None else {"source": source})}
        with self._lock:
            self._write_lines(line)

    def add_launch(self, record: str, launch: Launch, contents: Mapping[str, bytes]) -> None:
        """Keep a launch of a record's kernel. contents: the buffers' bytes by file name; they are written before the
        launch's JSON file, so that a reader of that file finds them."""
        from tritonhook.capture.launches.record import to_document  # here: the ptxas wrapper records no launches

        folder = self.out / "kernels" / record / "launches"
        folder.mkdir(exist_ok=True)
        document = to_json(to_document(launch)).encode()
        for name, data in {**contents, f"{launch.key}.json": document}.items():
            write_whole(folder / name, data)

    def add_launch_counts(self, counts: Mapping[tuple[str, str], int]) -> None:
        """Record the number of this process's launches, by (record, key of the launch)."""
        with self._lock:
            lines = [{"launch": key, "of": record, "count": n} for (record, key), n in counts.items()]
            self._write_lines(*lines)

    def add_crash(
        self, name: str, ptx: str, details: Mapping[str, Any], files: Mapping[str, str] | None = None
    ) -> Path:
        """Keep a kernel that failed to compile. Returns its folder. ptx: "" if the PTX stage was not reached. details:
        fields of crash.json, e.g. command line and signal. files: the earlier stages' files, path by extension."""
        folder = self.out / "crashes" / f"{_file_stem(name)}-{time.time_ns():x}-{os.getpid()}"
        folder.mkdir(parents=True)
        for ending, path in (files or {}).items():
            _copy(path, str(folder / f"kernel.{ending}"))
        if ptx:
            (folder / "kernel.ptx").write_text(ptx)
        when = {"time_ns": time.time_ns(), "run": os.environ.get(RUN_ID)}
        document = {"format": FORMAT, "kernel": name, **when, **details}
        (folder / "crash.json").write_bytes(to_json(document).encode())
        return folder

    def close(self, notes: Sequence[str] = (), unrecorded: Mapping[str, str] | None = None) -> None:
        """End the index. notes: messages for readers of the folder. unrecorded: reason why a launch could not be
        recorded, by record. Under `tritonhook run`, the paths of the process's Python modules are recorded too. Without
        notes and paths, `unrecorded` is not written."""
        with self._lock:
            sources = {"sources": _sources()} if self._index is not None and RUN_ID in os.environ else {}
            if notes or sources:
                further = {"unrecorded": dict(unrecorded)} if unrecorded else {}
                self._write_lines({"notes": list(notes), **further, **sources})
            if self._index is not None:
                os.close(self._index)
            self._index = None


def _sources() -> list[str]:
    """List the files of this process's modules that belong neither to Python nor to an installed package."""
    installed = tuple(f"{path}/" for path in {*sysconfig.get_paths().values(), str(Path(__file__).parents[2])})
    files = {getattr(module, "__file__", None) or "" for module in list(sys.modules.values())}
    paths = {os.path.realpath(file) for file in files if file.endswith(".py") and not file.startswith(installed)}
    return sorted(path for path in paths if not path.startswith(installed) and os.path.isfile(path))  # noqa: PTH113


_writers: weakref.WeakSet[CaptureWriter] = weakref.WeakSet()


def _sweep(staging: Path) -> None:
    """Remove staged files older than a day, left by killed processes. A process may still be writing younger files."""
    with os.scandir(staging) as entries:
        for entry in entries:
            with suppress(OSError):  # another process removed it first, or it belongs to another user
                if entry.stat(follow_symlinks=False).st_mtime > time.time() - _SWEPT_AFTER_S:
                    continue
                if entry.is_dir(follow_symlinks=False):
                    shutil.rmtree(entry.path)
                else:
                    os.unlink(entry.path)  # noqa: PTH108


def _after_fork_in_child() -> None:
    global _process_ns
    _process_ns = time.time_ns()
    for writer in _writers:
        writer.after_fork()


os.register_at_fork(after_in_child=_after_fork_in_child)


def _key(kernel: str, hash: str, files: Mapping[Stage, str]) -> _Key:
    binary = next((path for stage, path in files.items() if stage.is_binary), None)
    if binary is None:
        return kernel, hash, 0, 0
    stat = os.stat(binary)  # noqa: PTH116
    return kernel, hash, stat.st_size, stat.st_mtime_ns


def _write(file: int, data: bytes) -> None:
    if os.write(file, data) < len(data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _create(path: str, data: bytes) -> None:
    file = os.open(path, _CREATE, 0o644)
    try:
        _write(file, data)
    finally:
        os.close(file)


def _copy(source: str, target: str) -> None:
    """Copy a file. With a link, an edit of the capture would change Triton's cache."""
    reader = os.open(source, os.O_RDONLY | os.O_CLOEXEC)
    try:
        writer = os.open(target, _CREATE, 0o644)
        try:
            size = os.fstat(reader).st_size
            while size > 0:
                sent = os.sendfile(writer, reader, None, size)
                if sent == 0:
                    raise OSError(f"{source}: the file became shorter during the copy")
                size -= sent
        finally:
            os.close(writer)
    finally:
        os.close(reader)


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # a file system without hard links
        _copy(source, target)
