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
        "others": [_kept(folder, candidate) for candidate in choice.others],
        "dropped": [
            {"lever": drop.lever.text, "reason": drop.reason, "equal_to": drop.equal_to} for drop in choice.dropped
        ],
    }
    _write(folder / f"{kernel.record}.json", json.dumps(document, indent=1).encode())


def keep_choices(captures: Path, kernel: Kernel, choice: Choice) -> None:
    """Keep a kernel's choice and those of its other configurations that have levers. Raises CaptureError as
    keep_choice does."""
    keep_choice(captures, kernel, choice)
    records = {sibling.ptx: sibling for sibling in kernel.siblings}
    for sibling in choice.siblings:
        if sibling.others and (record := records.get(sibling.subject.ptx_sha256)) is not None:
            keep_choice(captures, record, sibling)


def kept_choices(captures: CaptureFolder, kernel: Kernel) -> Choice | None:
    """What was kept for a kernel, with its other configurations: those for which nothing was kept have their plain code
    only. Raises CaptureError as kept_choice does."""
    kept = kept_choice(captures, kernel)
    if kept is None:
        return None
    siblings = ((s, kept_choice(captures, s) or plain_choice(captures, s)) for s in kernel.siblings)
    configured = (choice.as_config(str(s.config), s.launches) for s, choice in siblings if choice is not None)
    return replace(kept, siblings=tuple(configured))


def kept_choice(captures: CaptureFolder, kernel: Kernel) -> Choice | None:
    """What was kept for a kernel; None if nothing was, or it is of another PTX. Raises CaptureError if damaged."""
    folder = captures.path / _FOLDER
    path = folder / f"{kernel.record}.json"
    if not path.exists():
        return None
    try:
        kept = read_json(read_regular(path, MOST_JSON), KeptChoice)
        if kept.ptx != kernel.ptx or kept.format != _FORMAT:
            return None
        capture = captures.capture(kernel.record)
        own = Tool(Path("ptxas"), kept.ptxas, "kept")
        subject = Subject(kernel.name, capture.ptx, own, tuple(kept.options), kernel.arch, kernel.front_end)
        dropped = tuple(Dropped(lever(drop.lever), drop.reason, drop.equal_to) for drop in kept.dropped)
        others = tuple(_read(folder, other) for other in kept.others)
        return Choice(subject, _read(folder, kept.plain), others, dropped)
    except OSError as error:
        raise CaptureError(f"{error.filename or path}: cannot be read: {error.strerror}; {_REMEDY}") from None
    except (DocumentError, UsageError) as error:
        raise CaptureError(f"{path}: {error}; {_REMEDY}") from None


_REMEDY = "make it again with `tritonhook tune CAPTURES --assemble-only`"


def _kept(folder: Path, candidate: Candidate) -> dict[str, Any]:
    name = f"{hashlib.sha256(candidate.cubin).hexdigest()[:32]}.cubin"
    _write(folder / "cubins" / name, candidate.cubin)
    return {
        "lever": None if candidate.lever is None else candidate.lever.text,
        "kernel": candidate.kernel,
        "cubin": name,
        "code": candidate.code_hash,
        "ptxas": candidate.ptxas,
        "resources": asdict(candidate.resources),
    }


def _read(folder: Path, code: KeptCode) -> Candidate:
    data = read_regular(folder / "cubins" / code.cubin)
    if hashlib.sha256(data).hexdigest()[:32] != code.cubin.removesuffix(".cubin"):
        raise UsageError(f"{code.cubin} is damaged")
    parsed = None if code.lever is None else lever(code.lever)
    return Candidate(parsed, code.kernel, data, code.code, code.resources, code.ptxas)


def _write(path: Path, data: bytes) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, data)
    except OSError as error:
        raise CaptureError(f"{path}: cannot be written: {error.strerror}") from None
