"""Capture folders on disk: one folder per kernel, one index per process, one folder per ptxas crash.

    OUT/kernels/NAME-HASH/          capture.json and one file per stage
    OUT/index/HOST-RANK-PID-NS.jsonl  a header line, then a line per kernel this process met
    OUT/crashes/NAME-HASH/          kernel.ptx and crash.json
    OUT/kernels/NAME-HASH/launches/ recorded launches, if they were asked for: KEY.json and the buffers' contents

A kernel folder is written beside its place and renamed into it, so that readers and other processes
see it whole or not at all. A kernel met again, by this or another process, is not stored again.
"""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import socket
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tritonhook._display import Notebook
from tritonhook.capture.launches import record as launches
from tritonhook.capture.model import Assembler, Capture, Stage
from tritonhook.errors import CaptureError

FORMAT = 1
_NAME_CHARACTERS = 80  # of a kernel's name in file names; some compilers make names of hundreds
_RANK_VARIABLES = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK")
_STAGES = {stage.value: stage for stage in Stage}
_CREATE = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC
_Key = tuple[str, str, int, int]  # kernel, Triton's hash, size and time of the binary
_process_ns = time.time_ns()  # when this process began, or nearly: process ids are used again


def rank() -> str:
    """This process's rank as its launcher says, "-" if it does not. RANK=gold/1 is somebody else's variable."""
    return next((os.environ[name] for name in _RANK_VARIABLES if os.environ.get(name, "").isdecimal()), "-")


def _file_stem(kernel: str) -> str:
    return re.sub(r"^\.|[^\w$.-]", "_", kernel, flags=re.ASCII)[:_NAME_CHARACTERS] or "kernel"


@dataclass(frozen=True, slots=True)
class Sighting:
    """A kernel one process met: the folder of its capture, and whether it came from Triton's disk cache."""

    record: str
    kernel: str
    cache_hit: bool
    process: str
    rank: str


@dataclass(frozen=True, slots=True)
class Tuning:
    """A choice an autotuner made in one process: the record that won, and those that were tried."""

    winner: str
    among: tuple[str, ...]
    by: str
    process: str


@dataclass(frozen=True, slots=True)
class RecordedLaunch:
    """A recorded launch of a record's kernel. folder: where its contents lie. count: how often all processes launched
    it so; None if none of them lived to say."""

    record: str
    folder: Path
    launch: launches.Launch
    count: int | None = None

    @property
    def key(self) -> str:
        return self.launch.key


def seen_sentence(kernels: int, from_cache: int, out: Path) -> str:
    """The summary of a session or a run, in one line."""
    return f"tritonhook: {kernels} kernel{'' if kernels == 1 else 's'} seen, {from_cache} from cache; captures in {out}"


class CaptureWriter:
    """Writes one process's captures. Safe to call from several threads."""

    def __init__(self, out: Path, about: Mapping[str, Any] | None = None) -> None:
        """Create the folder. Raises CaptureError if it cannot be written."""
        self.out = out
        self._about = dict(about or {})
        self._lock = threading.Lock()
        self._index: int | None = None
        self._known: dict[_Key, str] = {}
        _writers.add(self)
        try:
            for folder in ("kernels", "index"):
                (out / folder).mkdir(parents=True, exist_ok=True)
            probe = out / "index" / f".probe-{os.getpid()}"
            probe.touch()
            probe.unlink()
        except OSError as error:
            raise CaptureError(
                f"{out}: cannot keep captures there: {error.strerror}; choose another folder with out= or --out"
            ) from None

    def known(self, kernel: str, hash: str, files: Mapping[Stage, str]) -> str | None:
        """The record of a kernel this writer has kept already, if it has."""
        return self._known.get(_key(kernel, hash, files))

    def add_files(self, capture: Capture, files: Mapping[Stage, str], linked: bool = False) -> str:
        """Keep a kernel whose artifacts lie in Triton's cache; returns the record's name.

        linked: the files are those of another kernel of the same module, in this folder: link, do not copy.
        A kernel already kept is recognised by Triton's hash and its binary's size and time, unread.
        Raises OSError (a full disk, say); nothing half-written stays.
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
        """A forked child writes an index of its own. Another thread may have held the lock when it forked."""
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
            if self._is_same(folder, files, key):
                return record
        raise OSError(f"{stem}: over 1,000 different kernels of this name and hash")

    def _is_same(self, folder: Path, files: Mapping[Stage, str], key: _Key) -> bool:
        """Whether a stored record is this kernel: by its binary's size and time, else by its bytes.
        A damaged record is none."""
        try:
            note = _read_note(folder)
            stored = {_STAGES[name]: folder / file for name, file in note["files"].items() if name in _STAGES}
            if note["kernel"] != key[0] or not files.keys() <= stored.keys():
                return False
            if note.get("source_stat") == list(key[2:]):
                return True
            both = [stage for stage in files if stage.is_binary]
            return bool(both) and all(Path(files[s]).read_bytes() == stored[s].read_bytes() for s in both)
        except (OSError, CaptureError):
            return False

    def _write(self, folder: Path, capture: Capture, files: Mapping[Stage, str], key: _Key, linked: bool) -> bool:
        """Write a record; False if another process put one there first."""
        stem = _file_stem(capture.kernel)
        names = {stage.value: f"{stem}.{stage.value}" for stage in files}
        note = describe(capture) | {"format": FORMAT, "files": names, "source_stat": list(key[2:])}
        staged = f"{folder.parent}/.{folder.name}.{os.getpid()}.{time.time_ns()}"  # threads take turns here
        os.mkdir(staged)  # noqa: PTH102  (this is in Triton's compile path; each Path costs microseconds)
        try:
            for stage, path in files.items():
                (_link if linked else _copy)(path, f"{staged}/{names[stage.value]}")
            _create(f"{staged}/capture.json", json.dumps(note, default=str).encode())
            os.rename(staged, folder)  # noqa: PTH104
        except BaseException as error:
            shutil.rmtree(staged, ignore_errors=True)
            if isinstance(error, OSError) and folder.exists():
                return False
            raise
        return True

    def _append(self, capture: Capture, record: str) -> None:
        self._write_lines(
            {"record": record, "kernel": capture.kernel, "cache_hit": capture.cache_hit, "time_ns": time.time_ns()}
        )

    def _write_lines(self, *lines: Mapping[str, Any]) -> None:
        """One write: a reader never sees half a line, unless the process dies within the write."""
        if self._index is None:
            lines = (self._begin_index(), *lines)
        assert self._index is not None
        try:
            _write(self._index, "".join(f"{json.dumps(line)}\n" for line in lines).encode())
        except OSError:
            os.close(self._index)
            self._index = None  # the next line begins another index, whole
            raise

    def _begin_index(self) -> dict[str, Any]:
        """Open this process's index; returns its header, which is still to be written."""
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
        }
        path = f"{self.out}/index/{host}-{rank()}-{os.getpid()}-{started_ns}.jsonl"
        self._index = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY | os.O_CLOEXEC, 0o644)
        return header | self._about

    def add_tuning(self, tuning: str, by: str, winner: str, among: Sequence[str]) -> None:
        """Note which record an autotuner chose. A later line with the same `tuning` replaces an earlier one."""
        with self._lock:
            self._write_lines({"winner": winner, "among": list(among), "tuning": tuning, "by": by})

    def add_launch(self, record: str, launch: launches.Launch, contents: Mapping[str, bytes]) -> None:
        """Keep a launch of a record's kernel, contents first, so that whoever reads the launch finds them."""
        folder = self.out / "kernels" / record / "launches"
        folder.mkdir(exist_ok=True)
        document = json.dumps(launches.to_document(launch)).encode()
        for name, data in {**contents, f"{launch.key}.json": document}.items():
            staged = folder / f".{name}.{os.getpid()}"
            try:
                staged.write_bytes(data)
                staged.replace(folder / name)
            finally:
                staged.unlink(missing_ok=True)

    def add_launch_counts(self, counts: Mapping[tuple[str, str], int]) -> None:
        """Note how often each (record, key of a launch) was launched by this process."""
        with self._lock:
            lines = [{"launch": key, "of": record, "count": n} for (record, key), n in counts.items()]
            self._write_lines(*lines)

    def add_crash(self, name: str, ptx: str, details: Mapping[str, Any]) -> Path:
        """Keep a ptxas crash: the PTX that caused it, the command line and the signal."""
        folder = self.out / "crashes" / f"{_file_stem(name)}-{time.time_ns():x}-{os.getpid()}"
        folder.mkdir(parents=True)
        (folder / "kernel.ptx").write_text(ptx)
        (folder / "crash.json").write_text(
            json.dumps({"format": FORMAT, "kernel": name, **details}, indent=1, default=str)
        )
        return folder

    def close(self, notes: Sequence[str] = ()) -> None:
        """End the index; `notes` are sentences for whoever reads it."""
        with self._lock:
            if notes:
                self._write_lines({"notes": list(notes)})
            if self._index is not None:
                os.close(self._index)
            self._index = None


_writers: weakref.WeakSet[CaptureWriter] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    global _process_ns
    _process_ns = time.time_ns()
    for writer in _writers:
        writer.after_fork()


if hasattr(os, "register_at_fork"):
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
    """A plain copy: a link would let an edit of the capture change Triton's cache."""
    reader = os.open(source, os.O_RDONLY | os.O_CLOEXEC)
    try:
        writer = os.open(target, _CREATE, 0o644)
        try:
            size = os.fstat(reader).st_size
            while size > 0:
                sent = os.sendfile(writer, reader, None, size)
                if sent == 0:
                    raise OSError(f"{source}: became shorter while it was copied")
                size -= sent
        finally:
            os.close(writer)
    finally:
        os.close(reader)


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # a file system without links
        _copy(source, target)


def describe(capture: Capture) -> dict[str, Any]:
    """A capture as JSON values, without its artifacts."""
    return {
        "kernel": capture.kernel,
        "hash": capture.hash,
        "arch": capture.arch,
        "stages": [stage.value for stage in capture.artifacts],
        "ptxas": {
            "path": capture.assembler.path,
            "version": capture.assembler.version,
            "arguments": capture.assembler.arguments,
        },
        "options": dict(capture.options),
        "metadata": dict(capture.metadata),
        "cache_hit": capture.cache_hit,
        "rewritten_from": capture.rewritten_from,
        "note": capture.note,
    }


class _Artifacts(Mapping[Stage, "str | bytes"]):
    """The artifacts of a stored capture, read when asked for."""

    def __init__(self, folder: Path, files: Mapping[Stage, str]) -> None:
        self._folder = folder
        self._files = files

    def __getitem__(self, stage: Stage) -> str | bytes:
        path = self._folder / self._files[stage]
        try:
            data = path.read_bytes()
        except OSError as error:
            raise CaptureError(f"{path}: cannot read the capture: {error.strerror}") from None
        return data if stage.is_binary else data.decode("utf-8", "replace")

    def __iter__(self) -> Iterator[Stage]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)


_REPAIR = "delete its folder and capture the kernel again"
_Check = tuple[str, Callable[[Any], bool]]  # what a value must be, in words and as a test


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_file_name(value: Any) -> bool:
    """A name within a folder: damage, or malice, must not lead elsewhere. Lone surrogates name no file."""
    return _is_text(value) and value not in (".", "..") and re.fullmatch(r"[^/\0\ud800-\udfff]+", value) is not None


_TEXT: _Check = ("a text", _is_text)
_TEXT_OR_NULL: _Check = ("a text or null", lambda value: value is None or _is_text(value))
_TEXTS_OR_NULL: _Check = ("texts or null", lambda value: value is None or _are(_is_text, value))
_FLAG_OR_NULL: _Check = ("true, false or null", lambda value: value is None or isinstance(value, bool))
_OBJECT: _Check = ("an object", lambda value: isinstance(value, dict))
_FILES: _Check = (
    "file names by stage",
    lambda value: isinstance(value, dict) and all(map(_is_file_name, value.values())),
)
_FIELDS = {
    "kernel": _TEXT,
    "hash": _TEXT,
    "arch": _TEXT,
    "files": _FILES,
    "ptxas": _OBJECT,
    "options": _OBJECT,
    "metadata": _OBJECT,
    "cache_hit": _FLAG_OR_NULL,
    "rewritten_from": _TEXT_OR_NULL,
    "note": _TEXT_OR_NULL,
}
_PTXAS_FIELDS = {"path": _TEXT_OR_NULL, "version": _TEXT_OR_NULL, "arguments": _TEXTS_OR_NULL}


def _are(test: Callable[[Any], bool], values: Any) -> bool:
    return isinstance(values, list) and all(test(value) for value in values)


def _read_note(folder: Path) -> dict[str, Any]:
    """The capture.json of a kernel folder, every field checked. Raises CaptureError."""
    path = folder / "capture.json"
    try:
        note = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise CaptureError(f"{folder}: not a capture: no capture.json; give a folder under OUT/kernels/") from None
    except (OSError, ValueError, RecursionError) as error:
        raise CaptureError(f"{path}: cannot be read: {error}") from None
    if not isinstance(note, dict):
        raise CaptureError(f"{path}: damaged: it holds {_shown(note)}, not an object; {_REPAIR}")
    _check_format(path, note)
    _check_fields(path, note, _FIELDS)
    _check_fields(path, note["ptxas"], _PTXAS_FIELDS, "ptxas.")
    return note


def _check_fields(path: Path, values: Mapping[str, Any], fields: Mapping[str, _Check], prefix: str = "") -> None:
    for name, (wanted, fits) in fields.items():
        if name not in values:
            raise CaptureError(f"{path}: damaged: it has no {prefix}{name}; {_REPAIR}")
        if not fits(values[name]):
            raise CaptureError(f"{path}: damaged: {prefix}{name} is {_shown(values[name])}, not {wanted}; {_REPAIR}")


def _shown(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:60]}..."


def read_capture(folder: str | os.PathLike[str]) -> Capture:
    """The capture kept in one kernel folder. Raises CaptureError if it is none, damaged, or of a newer format."""
    folder = Path(folder)
    note = _read_note(folder)
    ptxas = note["ptxas"]
    return Capture(
        kernel=note["kernel"],
        hash=note["hash"],
        arch=note["arch"],
        artifacts=_Artifacts(folder, {_STAGES[n]: file for n, file in note["files"].items() if n in _STAGES}),
        assembler=Assembler(
            ptxas["path"], ptxas["version"], None if ptxas["arguments"] is None else tuple(ptxas["arguments"])
        ),
        options=note["options"],
        metadata=note["metadata"],
        cache_hit=note["cache_hit"],
        rewritten_from=note["rewritten_from"],
        note=note["note"],
    )


def read_launches(folder: Path) -> tuple[RecordedLaunch, ...]:
    """The launches kept in one kernel folder. Raises CaptureError where one is damaged."""
    return tuple(
        RecordedLaunch(folder.name, path.parent, read_launch(path))
        for path in sorted((folder / "launches").glob("[!.]*.json"))
    )


def read_launch(path: Path) -> launches.Launch:
    """A launch from its JSON file, recorded or written by hand. Raises CaptureError."""
    try:
        document = json.loads(path.read_bytes())
    except OSError as error:
        raise CaptureError(f"{path}: cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise CaptureError(f"{path}: no JSON: {error}") from None
    return launches.from_document(document, str(path))


def _check_format(path: Path, note: Mapping[str, Any]) -> None:
    if note.get("format") != FORMAT:
        raise CaptureError(f"{path}: capture format {note.get('format')}; this tritonhook reads format {FORMAT}")


# The lines of an index by the key that tells them apart, and what else they must have.
_LINES: Mapping[str, Callable[[Any], bool]] = {
    "launch": lambda line: (
        _is_file_name(line["launch"]) and _is_file_name(line.get("of")) and isinstance(line.get("count"), int)
    ),
    "notes": lambda line: _are(_is_text, line["notes"]),
    "winner": lambda line: (
        _is_file_name(line["winner"])
        and _are(_is_file_name, line.get("among"))
        and _is_text(line.get("tuning"))
        and _is_text(line.get("by"))
    ),
    "record": lambda line: (
        _is_file_name(line["record"]) and _is_text(line.get("kernel")) and isinstance(line.get("cache_hit"), bool)
    ),
    "format": lambda line: isinstance(line["format"], int),
}


def _read_index(path: Path) -> Iterator[tuple[str | None, Any]]:
    """The lines of an index, each with its kind; None for what is none of ours."""
    try:
        text = path.read_text(errors="replace")
    except OSError as error:
        raise CaptureError(f"{path}: cannot be read: {error.strerror}; make it readable, or move it away") from None
    for line in text.splitlines():
        try:
            item = json.loads(line)
        except (ValueError, RecursionError):
            item = None
        kind = next((name for name in _LINES if name in item), None) if isinstance(item, dict) else None
        yield (kind if kind is not None and _LINES[kind](item) else None), item


def _indexes(path: Path) -> list[Path]:
    """Raises CaptureError where the folder of indexes cannot be listed: `glob` would find nothing and say nothing."""
    try:
        found = list((path / "index").iterdir())
    except OSError as error:
        raise CaptureError(f"{path / 'index'}: cannot read: {error.strerror}") from None
    return sorted(index for index in found if index.suffix == ".jsonl" and index.is_file())


def _remedy(path: Path) -> str:
    """What to do about a path that is no capture folder."""
    if path.is_file():
        return "give the folder that `tritonhook run --out FOLDER script.py` makes"
    if path.exists() and (path.absolute().parent / "index").is_dir():
        return f"give {path.parent}"
    return f"make one with `tritonhook run --out {path} script.py`"


def _started_ns(index: Path) -> int:
    """When this index was begun, by its name; 0 for a file that somebody else put there."""
    number = index.stem.rpartition("-")[2]
    return int(number) if number.isdecimal() else 0


def _process_of(header: Mapping[str, Any]) -> str | None:
    """Names the process among all; None if the header does not say (it is torn, or older)."""
    parts = [header.get(name) for name in ("host", "pid", "process_ns")]
    return None if None in parts else "-".join(map(str, parts))


@dataclass(frozen=True, slots=True)
class CaptureFolder(Notebook):
    """A capture folder as it is now. `torn` counts index lines that cannot be read: a dying process leaves its
    last one incomplete."""

    path: Path
    sightings: tuple[Sighting, ...]
    processes: tuple[Mapping[str, Any], ...]
    torn: int
    notes: tuple[str, ...] = ()
    is_part: bool = False
    tunings: tuple[Tuning, ...] = ()
    launch_counts: Mapping[tuple[str, str], int] = field(default_factory=dict)
    _by_record: dict[str, tuple[Sighting, ...]] = field(default_factory=dict, init=False, repr=False, compare=False)

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> CaptureFolder:
        """Read and merge all indexes. Raises CaptureError if `path` is not a capture folder."""
        path = Path(path)
        if not (path / "index").is_dir():
            what = "no such folder" if not path.exists() else "not a capture folder (it has no index/)"
            raise CaptureError(f"{path}: {what}; {_remedy(path)}")
        return cls._read(path, _indexes(path))

    @classmethod
    def _read(cls, path: Path, indexes: Sequence[Path]) -> CaptureFolder:
        sightings: dict[tuple[str, str], Sighting] = {}
        processes: list[Mapping[str, Any]] = []
        notes: list[str] = []
        tunings: dict[tuple[str, str], Tuning] = {}
        counts: dict[tuple[str, str], int] = {}
        torn = 0
        for index in indexes:
            header: Mapping[str, Any] = {}
            for kind, item in _read_index(index):
                if kind == "format":
                    header = item
                    _check_format(index, item)
                    processes.append(item)
                elif kind == "record":
                    # Two sessions of one process can write to one folder; the process met the kernel once.
                    met = (item["record"], _process_of(header) or index.stem)
                    rank = str(header.get("rank", "-"))
                    sightings.setdefault(
                        met, Sighting(item["record"], item["kernel"], item["cache_hit"], index.stem, rank)
                    )
                elif kind == "winner":
                    process = _process_of(header) or index.stem
                    chosen = Tuning(item["winner"], tuple(item["among"]), item["by"], index.stem)
                    earlier = tunings.get((process, item["tuning"]))
                    if earlier is not None:
                        chosen = replace(chosen, among=tuple(dict.fromkeys([*earlier.among, *chosen.among])))
                    tunings[process, item["tuning"]] = chosen
                elif kind == "launch":
                    counts[item["of"], item["launch"]] = counts.get((item["of"], item["launch"]), 0) + item["count"]
                elif kind == "notes":
                    notes += item["notes"]
                else:
                    torn += 1
        return cls(
            path,
            tuple(sightings.values()),
            tuple(processes),
            torn,
            tuple(dict.fromkeys(notes)),
            tunings=tuple(tunings.values()),
            launch_counts=counts,
        )

    def since(self, started_ns: int) -> CaptureFolder:
        """The part that processes started at or after this time (time.time_ns) wrote."""
        newer = self._read(self.path, [path for path in _indexes(self.path) if _started_ns(path) >= started_ns])
        return replace(newer, is_part=True)

    @property
    def ranks(self) -> tuple[str, ...]:
        """The ranks of the processes that met kernels; "-" for those that have none."""
        return tuple(sorted({s.rank for s in self.sightings}, key=lambda rank: (len(rank), rank)))

    def of_rank(self, rank: str) -> CaptureFolder:
        """The part that processes of one rank wrote. Raises CaptureError if there is none."""
        if rank not in self.ranks:
            known = ", ".join(self.ranks) or "none"
            raise CaptureError(f"{self.path}: no kernel was met by rank {rank}; ranks there: {known}")
        sightings = tuple(s for s in self.sightings if s.rank == rank)
        processes = {s.process for s in sightings}
        return replace(
            self,
            sightings=sightings,
            processes=tuple(p for p in self.processes if str(p.get("rank", "-")) == rank),
            tunings=tuple(t for t in self.tunings if t.process in processes),
            is_part=True,
        )

    @property
    def records(self) -> tuple[str, ...]:
        """Names of the kernel folders, in the order they were first met. Of a whole folder also those that no
        index names, because the process died in between."""
        listed = dict.fromkeys(s.record for s in self.sightings)
        if self.is_part:
            return tuple(listed)
        stored = sorted(p.name for p in (self.path / "kernels").glob("[!.]*") if (p / "capture.json").exists())
        return tuple(dict.fromkeys([*listed, *stored]))

    @property
    def lost(self) -> frozenset[str]:
        """Records that lost every autotuning they were in: they were measured, and are not what runs."""
        won = {tuning.winner for tuning in self.tunings}
        return frozenset(record for tuning in self.tunings for record in tuning.among) - won

    def capture(self, record: str) -> Capture:
        """One capture. Raises CaptureError if it is damaged."""
        return read_capture(self.path / "kernels" / record)

    def launches(self, record: str) -> tuple[RecordedLaunch, ...]:
        """How a record's kernel was launched, most often first. Raises CaptureError where a file is damaged."""
        found = read_launches(self.path / "kernels" / record)
        counted = [replace(one, count=self.launch_counts.get((record, one.key))) for one in found]
        return tuple(sorted(counted, key=lambda one: -(one.count or 0)))

    def seen(self, record: str) -> tuple[Sighting, ...]:
        """By which processes, and how, a kernel was met; the first one first."""
        if not self._by_record:  # once: searched for each, 2,000 kernels of 64 processes took 4.5 s a time
            grouped: dict[str, list[Sighting]] = {}
            for sighting in self.sightings:
                grouped.setdefault(sighting.record, []).append(sighting)
            self._by_record.update({name: tuple(several) for name, several in grouped.items()})
        return self._by_record.get(record, ())

    def try_capture(self, record: str) -> Capture | CaptureError:
        """One capture, or what is wrong with it: for lists, which one bad record must not end."""
        try:
            return self.capture(record)
        except CaptureError as error:
            return error

    @property
    def crashes(self) -> tuple[Path, ...]:
        return tuple(sorted((self.path / "crashes").glob("*/crash.json")))
