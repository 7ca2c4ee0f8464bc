"""Candidates kept in a capture folder, so that they are assembled on one machine and raced on another: `tuning/` has a
JSON file for each record, and the cubins. The machine that races needs no ptxas."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from tritonhook._util.files import read_regular, write_whole
from tritonhook._util.schema import MOST_JSON, DocumentError, Fields, FileName, Hash, Sha256, Version, read_json
from tritonhook.capture.policy.levers import lever
from tritonhook.capture.selection import Kernel
from tritonhook.capture.store import CaptureFolder
from tritonhook.cubin.summary import KernelSummary
from tritonhook.errors import CaptureError, UsageError
from tritonhook.ptxas.tool import Tool
from tritonhook.tuning.candidates import Candidate, Choice, Dropped, Subject, plain_choice

_FOLDER = "tuning"
_FORMAT = 1


class KeptCode(Fields):
    """One code. lever: None for the compiler's own. cubin: its file."""

    lever: str | None
    kernel: str
    cubin: FileName
    code: Hash
    ptxas: Version
    resources: KernelSummary


class KeptDropped(Fields):
    lever: str
    reason: str
    equal_to: str | None = None


class KeptChoice(Fields):
    """What there is to choose from for a record. ptx: the hash of its normalised PTX. ptxas: the compiler's own."""

    format: int
    ptx: Sha256
    ptxas: Version
    options: list[str]
    plain: KeptCode
    others: list[KeptCode]
    dropped: list[KeptDropped]


def keep_choice(captures: Path, kernel: Kernel, choice: Choice) -> None:
    """Raises CaptureError if the folder cannot be written."""
    folder = captures / _FOLDER
    subject = choice.subject
    document = {
        "format": _FORMAT,
        "ptx": kernel.ptx,
        "ptxas": subject.ptxas.version,
        "options": list(subject.options),
        "plain": _kept(folder, choice.plain),
        "others": [_kept(folder, one) for one in choice.others],
        "dropped": [
            {"lever": one.lever.text, "reason": one.reason, "equal_to": one.equal_to} for one in choice.dropped
        ],
    }
    _write(folder / f"{kernel.record}.json", json.dumps(document, indent=1).encode())


def keep_choices(captures: Path, kernel: Kernel, choice: Choice) -> None:
    """Keep a kernel's choice and those of its other configurations that have levers. Raises CaptureError as
    keep_choice does."""
    keep_choice(captures, kernel, choice)
    records = {one.ptx: one for one in kernel.siblings}
    for sibling in choice.siblings:
        if sibling.others and (found := records.get(sibling.subject.ptx_sha256)) is not None:
            keep_choice(captures, found, sibling)


def kept_choices(captures: CaptureFolder, kernel: Kernel) -> Choice | None:
    """What was kept for a kernel, with its other configurations: those for which nothing was kept have their plain code
    only. Raises CaptureError as kept_choice does."""
    found = kept_choice(captures, kernel)
    if found is None:
        return None
    siblings = ((one, kept_choice(captures, one) or plain_choice(captures, one)) for one in kernel.siblings)
    configured = (choice.as_config(str(one.config), one.launches) for one, choice in siblings if choice is not None)
    return replace(found, siblings=tuple(configured))


def kept_choice(captures: CaptureFolder, kernel: Kernel) -> Choice | None:
    """What was kept for a kernel; None if nothing was, or it is of another PTX. Raises CaptureError if damaged."""
    folder = captures.path / _FOLDER
    path = folder / f"{kernel.record}.json"
    if not path.exists():
        return None
    try:
        found = read_json(read_regular(path, MOST_JSON), KeptChoice)
        if found.ptx != kernel.ptx or found.format != _FORMAT:
            return None
        capture = captures.capture(kernel.record)
        own = Tool(Path("ptxas"), found.ptxas, "kept")
        subject = Subject(kernel.name, capture.ptx, own, tuple(found.options), kernel.arch, kernel.front_end)
        dropped = tuple(Dropped(lever(one.lever), one.reason, one.equal_to) for one in found.dropped)
        others = tuple(_read(folder, one) for one in found.others)
        return Choice(subject, _read(folder, found.plain), others, dropped)
    except OSError as error:
        raise CaptureError(f"{error.filename or path}: cannot be read: {error.strerror}; {_REMEDY}") from None
    except (DocumentError, UsageError) as error:
        raise CaptureError(f"{path}: {error}; {_REMEDY}") from None


_REMEDY = "make it again with `tritonhook tune CAPTURES --assemble-only`"


def _kept(folder: Path, one: Candidate) -> dict[str, Any]:
    name = f"{hashlib.sha256(one.cubin).hexdigest()[:32]}.cubin"
    _write(folder / "cubins" / name, one.cubin)
    return {
        "lever": None if one.lever is None else one.lever.text,
        "kernel": one.kernel,
        "cubin": name,
        "code": one.code_hash,
        "ptxas": one.ptxas,
        "resources": asdict(one.resources),
    }


def _read(folder: Path, one: KeptCode) -> Candidate:
    data = read_regular(folder / "cubins" / one.cubin)
    if hashlib.sha256(data).hexdigest()[:32] != one.cubin.removesuffix(".cubin"):
        raise UsageError(f"{one.cubin} is damaged")
    found = None if one.lever is None else lever(one.lever)
    return Candidate(found, one.kernel, data, one.code, one.resources, one.ptxas)


def _write(path: Path, data: bytes) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, data)
    except OSError as error:
        raise CaptureError(f"{path}: cannot be written: {error.strerror}") from None
