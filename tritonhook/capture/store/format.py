"""The JSON in capture folders: what a capture looks like in it, and the check of what is read back.

Used by the writer, which runs in foreign Pythons and in the ptxas wrapper: standard library and small values only.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from tritonhook._util.files import read_regular
from tritonhook._util.versions import is_version
from tritonhook.capture.model import Assembler, Capture, Stage
from tritonhook.errors import CaptureError

FORMAT = 1
STAGES = {stage.value: stage for stage in Stage}
_REPAIR = "delete its folder and capture the kernel again"


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


# --- kernel folders ------------------------------------------------------------------------------


def read_capture(folder: str | os.PathLike[str]) -> Capture:
    """Read the capture in one kernel folder; its artifacts are read when they are used.

    Raises CaptureError if there is no capture, or it is damaged, or of a newer format.
    """
    folder = Path(folder)
    document = read_document(folder)
    ptxas = document["ptxas"]
    return Capture(
        kernel=document["kernel"],
        hash=document["hash"],
        arch=document["arch"],
        artifacts=_Artifacts(folder, {STAGES[n]: file for n, file in document["files"].items() if n in STAGES}),
        assembler=Assembler(
            ptxas["path"], ptxas["version"], None if ptxas["arguments"] is None else tuple(ptxas["arguments"])
        ),
        options=document["options"],
        metadata=document["metadata"],
        cache_hit=document["cache_hit"],
        rewritten_from=document["rewritten_from"],
        note=document["note"],
    )


class _Artifacts(Mapping[Stage, "str | bytes"]):
    """The artifacts of a stored capture, read when they are used."""

    def __init__(self, folder: Path, files: Mapping[Stage, str]) -> None:
        self._folder = folder
        self._files = files

    def __getitem__(self, stage: Stage) -> str | bytes:
        path = self._folder / self._files[stage]
        try:
            data = read_regular(path)
        except OSError as error:
            raise CaptureError(f"{path}: cannot read the capture: {error.strerror}") from None
        return data if stage.is_binary else data.decode("utf-8", "replace")

    def __contains__(self, stage: object) -> bool:  # Mapping's own would read the file
        return stage in self._files

    def __iter__(self) -> Iterator[Stage]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)

    @property
    def identity(self) -> tuple[tuple[Stage, int, int], ...]:
        """Device and inode of each file: equal where captures share their files. Raises OSError."""
        stats = {stage: os.stat(self._folder / file) for stage, file in self._files.items()}  # noqa: PTH116
        return tuple((stage, stat.st_dev, stat.st_ino) for stage, stat in stats.items())


def by_module(captures: Mapping[str, Capture]) -> list[dict[str, Capture]]:
    """Group captures that share their files and their ptxas, as those of one module do, which the writer links: read
    each group's files once.

    captures: by record. A capture whose files cannot be found is a group of its own: who reads them gets the error.
    """
    groups: dict[object, dict[str, Capture]] = {}
    for record, capture in captures.items():
        key: object = record
        if isinstance(capture.artifacts, _Artifacts):
            with suppress(OSError):
                key = capture.assembler, capture.artifacts.identity
        groups.setdefault(key, {})[record] = capture
    return list(groups.values())


def read_document(folder: Path) -> dict[str, Any]:
    """Read capture.json of a kernel folder and check every field. Raises CaptureError."""
    path = folder / "capture.json"
    try:
        document = json.loads(read_regular(path))
    except FileNotFoundError:
        raise CaptureError(f"{folder}: not a capture: no capture.json; give a folder under OUT/kernels/") from None
    except OSError as error:
        raise CaptureError(f"{path}: cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise CaptureError(f"{path}: cannot be read: {error}") from None
    if not isinstance(document, dict):
        raise CaptureError(f"{path}: damaged: it holds {_shown(document)}, not an object; {_REPAIR}")
    check_format(path, document)
    _check_fields(path, document, _FIELDS)
    _check_fields(path, document["ptxas"], _PTXAS_FIELDS, "ptxas.")
    return document


def check_format(path: Path, document: Mapping[str, Any]) -> None:
    """Raises CaptureError if another version of tritonhook wrote the document in another format."""
    if document.get("format") != FORMAT:
        raise CaptureError(f"{path}: capture format {document.get('format')}; this tritonhook reads format {FORMAT}")


_Check = tuple[str, Callable[[Any], bool]]  # what a value must be: for the message, and as a test


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_file_name(value: Any) -> bool:
    """Whether it names a file within a folder: a damaged or hostile file must not lead outside. Lone surrogates name
    no file."""
    return _is_text(value) and value not in (".", "..") and re.fullmatch(r"[^/\0\ud800-\udfff]+", value) is not None


def _are(test: Callable[[Any], bool], values: Any) -> bool:
    return isinstance(values, list) and all(test(value) for value in values)


_TEXT: _Check = ("a text", _is_text)
_TEXT_OR_NULL: _Check = ("a text or null", lambda value: value is None or _is_text(value))
_VERSION_OR_NULL: _Check = (
    "a version such as 12.8.93, or null",
    lambda value: value is None or (_is_text(value) and is_version(value)),
)
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
_PTXAS_FIELDS = {"path": _TEXT_OR_NULL, "version": _VERSION_OR_NULL, "arguments": _TEXTS_OR_NULL}


def _check_fields(path: Path, values: Mapping[str, Any], fields: Mapping[str, _Check], prefix: str = "") -> None:
    for name, (wanted, fits) in fields.items():
        if name not in values:
            raise CaptureError(f"{path}: damaged: it has no {prefix}{name}; {_REPAIR}")
        if not fits(values[name]):
            raise CaptureError(f"{path}: damaged: {prefix}{name} is {_shown(values[name])}, not {wanted}; {_REPAIR}")


def _shown(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:60]}..."


# --- indexes -------------------------------------------------------------------------------------

# The kinds of lines in an index, each with a test of the values. A line's kind is the first of these keys that it has.
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


def read_index(path: Path) -> Iterator[tuple[str | None, Any]]:
    """Read an index: each line with its kind, None for a line that is torn or unknown. Raises CaptureError."""
    try:
        text = read_regular(path).decode("utf-8", "replace")
    except OSError as error:
        raise CaptureError(f"{path}: cannot be read: {error.strerror}; make it readable, or move it away") from None
    for line in text.splitlines():
        try:
            item = json.loads(line)
        except (ValueError, RecursionError):
            item = None
        kind = next((name for name in _LINES if name in item), None) if isinstance(item, dict) else None
        yield (kind if kind is not None and _LINES[kind](item) else None), item
