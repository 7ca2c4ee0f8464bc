"""The JSON schemas of the files in a capture folder (capture.json, crash.json, lines of an index), and functions that
read these files."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from tritonhook._util.files import read_given, read_regular
from tritonhook._util.schema import MOST_JSON, Count, DocumentError, Fields, FileName, Version, as_schema, read_json
from tritonhook.capture.model import Assembler, Capture, Stage
from tritonhook.capture.store.format import FORMAT, MOST_SOURCE, SOURCES_FOLDER, STAGES, is_source
from tritonhook.errors import CaptureError
from tritonhook.ptxas.toolchain import first_error

_MOST_TEXT, _MOST_BINARY = 1 << 27, 1 << 28  # limits for the file of one stage, in bytes
_MOST_LINES = 1 << 18  # limit for one index
REPAIR = "delete its folder and capture the kernel again"


class Ptxas(Fields):
    """The ptxas that made a cubin. Unknown fields are null.

    path: path of the ptxas program. version: e.g. "12.8.93". arguments: its options, without input and output file.
    """

    path: str | None
    version: Version | None
    arguments: list[str] | None


class KernelRecord(Fields):
    """One compiled kernel.

    kernel: the name of its entry point. hash: the front end's hash. arch: e.g. "sm_90a". ptxas: the ptxas that made its
    cubin. options: all inputs besides the source that change the code, e.g. constexprs and `num_warps`. metadata: the
    front end's metadata; for a kernel captured at ptxas: `front_end`, `command`, `folder`, `caller`. cache_hit: true if
    it came from the front end's disk cache. rewritten_from: its own name, if it was renamed. note: why an artifact is
    missing.
    """

    kernel: str
    hash: str
    arch: str
    ptxas: Ptxas
    options: dict[str, Any]
    metadata: dict[str, Any]
    cache_hit: bool | None
    rewritten_from: str | None
    note: str | None


class Record(KernelRecord):
    """capture.json in the folder of a kernel. files: name of each stage's file in this folder. sources: for the path of
    each source file, the name of the file in OUT/sources that has its text. source_stat: size (bytes) and modification
    time (ns) of the binary in the compiler's cache."""

    format: int
    files: dict[str, FileName]
    sources: dict[str, FileName] | None = None
    source_stat: list[int] | None = None


class Rejected(Fields):
    """crash.json of a kernel that failed to compile. Unknown fields are empty.

    stage: the stage that failed. log: the output of the compiler or ptxas. summary, stderr, triton_message: they have
    the output instead of `log` if the ptxas wrapper or a rewrite wrote the file. arch: e.g. "sm_90a". ptxas: version of
    ptxas. arguments: options of ptxas. options: as in KernelRecord. triton: version of Triton. time_ns: time.time_ns of
    the failure. run: id of the `tritonhook run`.
    """

    kernel: str
    stage: str = "cubin"
    arch: str = ""
    log: str = ""
    summary: str = ""
    stderr: str = ""
    triton_message: str = ""
    ptxas: str | None = None
    arguments: list[str] | None = None
    options: dict[str, Any] = msgspec.field(default_factory=dict)
    triton: str | None = None
    time_ns: int = 0
    run: str | None = None

    @property
    def by(self) -> str:
        """The tool that rejected the kernel: e.g. "ptxas 12.8.93", or "Triton, to ttgir" for a stage of Triton."""
        return f"ptxas {self.ptxas or 'not known'}" if self.stage == Stage.CUBIN.value else f"Triton, to {self.stage}"

    @property
    def error(self) -> str:
        """The first error message, in one line."""
        _, _, printed = self.text.partition("stderr:\n")  # Triton's message quotes the stderr of ptxas
        return first_error(printed.partition("Repro command")[0] or self.text)

    @property
    def text(self) -> str:
        """The tool's whole output."""
        return self.log or self.stderr or self.summary or self.triton_message


def read_rejected(folder: Path) -> Rejected:
    """Read the crash.json in a folder. Raises CaptureError if it is damaged."""
    path = folder / "crash.json"
    try:
        return read_json(read_regular(path), Rejected)
    except OSError as error:
        raise CaptureError(f"{path}: cannot be read: {error.strerror}") from None
    except DocumentError as error:
        raise CaptureError(f"{path}: damaged: {error}; delete its folder") from None


class _Format(Fields):
    format: int


def read_capture(folder: str | os.PathLike[str]) -> Capture:
    """Read the capture in one kernel folder. Its artifacts are read on first use.

    Raises CaptureError if the capture is missing, damaged, or of another format.
    """
    folder = Path(folder)
    path = folder / "capture.json"
    try:
        data = read_regular(path, MOST_JSON)
    except FileNotFoundError:
        raise CaptureError(f"{folder}: not a capture: no capture.json; give a folder under OUT/kernels/") from None
    except OSError as error:
        raise CaptureError(f"{path}: cannot be read: {error.strerror}") from None
    try:
        check_format(path, read_json(data, _Format).format)
        record = read_json(data, Record)
    except DocumentError as error:
        raise CaptureError(f"{path}: damaged: {error}; {REPAIR}") from None
    ptxas = record.ptxas
    same = {name: getattr(record, name) for name in KernelRecord.__struct_fields__ if name != "ptxas"}
    return Capture(
        **same,
        artifacts=_Artifacts(folder, {STAGES[n]: file for n, file in record.files.items() if n in STAGES}),
        assembler=Assembler(ptxas.path, ptxas.version, None if ptxas.arguments is None else tuple(ptxas.arguments)),
        sources=_Sources(folder, record),
    )


class _Sources(Mapping[str, str]):
    """The texts of the source files of a stored capture, read on first use.

    A capture written by an older tritonhook has no texts. For it, a source file is read from its original path if the
    file has not changed since the binary was compiled.
    """

    def __init__(self, folder: Path, record: Record) -> None:
        kept = folder / ".." / ".." / SOURCES_FOLDER
        self._kept = {path: kept / name for path, name in (record.sources or {}).items()}
        self._made_ns = record.source_stat[-1] if record.sources is None and record.source_stat else 0

    def __getitem__(self, path: str) -> str:
        try:
            if path in self._kept:
                return read_regular(self._kept[path], MOST_SOURCE).decode("utf-8", "replace")
            if is_source(path) and os.stat(path).st_mtime_ns <= self._made_ns:  # noqa: PTH116
                return read_given(path, MOST_SOURCE).decode("utf-8", "replace")
        except OSError:
            pass
        raise KeyError(path)

    def __iter__(self) -> Iterator[str]:
        return iter(self._kept)

    def __len__(self) -> int:
        return len(self._kept)


class _Artifacts(Mapping[Stage, "str | bytes"]):
    """The artifacts of a stored capture, read on first use."""

    def __init__(self, folder: Path, files: Mapping[Stage, str]) -> None:
        self._folder = folder
        self._files = files

    def __getitem__(self, stage: Stage) -> str | bytes:
        path = self._folder / self._files[stage]
        try:
            data = read_regular(path, _MOST_BINARY if stage.is_binary else _MOST_TEXT)
        except OSError as error:
            raise CaptureError(f"{path}: cannot read the capture: {error.strerror}") from None
        return data if stage.is_binary else data.decode("utf-8", "replace")

    def __contains__(self, stage: object) -> bool:  # the inherited method would read the file
        return stage in self._files

    def __iter__(self) -> Iterator[Stage]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)

    @property
    def identity(self) -> tuple[tuple[Stage, int, int], ...]:
        """Device and inode of each file: equal for captures that share their files. Raises OSError."""
        stats = {stage: os.stat(self._folder / file) for stage, file in self._files.items()}  # noqa: PTH116
        return tuple((stage, stat.st_dev, stat.st_ino) for stage, stat in stats.items())


def by_module(captures: Mapping[str, Capture]) -> list[dict[str, Capture]]:
    """Group captures that share their files and their ptxas, so that each group's files are read only once. Kernels of
    one module share files, because the writer makes hard links.

    captures: by record. A capture with missing files gets a group of its own; reading its artifacts raises the error.
    """
    groups: dict[object, dict[str, Capture]] = {}
    for record, capture in captures.items():
        key: object = record
        if isinstance(capture.artifacts, _Artifacts):
            with suppress(OSError):
                key = capture.assembler, capture.artifacts.identity
        groups.setdefault(key, {})[record] = capture
    return list(groups.values())


def check_format(path: Path, number: int) -> None:
    """Check the format number of a document. Raises CaptureError if this version of tritonhook does not read it."""
    if number != FORMAT:
        raise CaptureError(f"{path}: capture format {number}; this tritonhook reads format {FORMAT}")


# --- indexes -------------------------------------------------------------------------------------


class _LaunchCount(Fields):
    launch: FileName
    of: FileName
    count: Count


class _Notes(Fields):
    notes: list[str]
    unrecorded: dict[FileName, str] = msgspec.field(default_factory=dict)
    sources: list[str] = msgspec.field(default_factory=list)


class _Winner(Fields):
    winner: FileName
    among: list[FileName]
    tuning: str
    by: str


class _Configurations(Fields):
    configurations: dict[FileName, str]
    function: str
    key: list[str]
    chosen: FileName
    source: str | None = None
    by: str = "Triton"


class _Sighting(Fields):
    record: FileName
    kernel: str
    cache_hit: bool
    time_ns: int
    compile_us: dict[str, Count] = msgspec.field(default_factory=dict)


# The kinds of lines in an index. The kind of a line is the first of these keys found in it.
_LINES: Mapping[str, type[Fields]] = {
    "launch": _LaunchCount,
    "notes": _Notes,
    "winner": _Winner,
    "configurations": _Configurations,
    "record": _Sighting,
    "format": _Format,
}


def read_index(path: Path) -> Iterator[tuple[str | None, Any]]:
    """Yield (kind, values) of each line of an index. The kind is None for an incomplete or unknown line. Raises
    CaptureError if the index cannot be read."""
    try:
        data = read_regular(path, MOST_JSON)
    except OSError as error:
        raise CaptureError(f"{path}: cannot be read: {error.strerror}; make it readable, or move it away") from None
    if (lines := data.count(b"\n")) > _MOST_LINES:
        raise CaptureError(f"{path}: {lines:,} lines, but the limit is {_MOST_LINES:,}; move it away")
    for line in data.splitlines():
        yield _index_line(line)


def _index_line(line: bytes) -> tuple[str | None, Any]:
    try:
        item = read_json(line, dict[str, Any])
        kind = next((name for name in _LINES if name in item), None)
        if kind is not None:
            as_schema(item, _LINES[kind])
        return kind, item
    except DocumentError:
        return None, None
