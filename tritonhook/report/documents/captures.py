"""The documents of a capture folder and of one capture."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from tritonhook.capture.figures import KernelResources, resources_of
from tritonhook.capture.model import Capture, Stage
from tritonhook.capture.store import CaptureFolder, by_module, describe
from tritonhook.errors import CaptureError, PtxError, TritonHookError, listed
from tritonhook.ptx.miscompiles import note_of, warnings_of
from tritonhook.ptx.triggers import triggers_of
from tritonhook.ptxas.levels import level_of
from tritonhook.report.documents import FORMAT

Module = tuple[str | None, str | None, str]  # the text of the PTX, the version of ptxas, and its level
Fields = dict[str, dict[str, Any] | CaptureError]  # of each kernel by record, or why they cannot be read


def captures_document(folder: CaptureFolder) -> dict[str, Any]:
    """The processes, kernels (the largest first) and crashes of ptxas, and the records that cannot be read, each with
    the reason. notes: what the programs' processes said, and the cubins that cannot be read."""
    found, ids = folder.captures(), folder.ids
    captures = {record: capture for record, capture in found.items() if isinstance(capture, Capture)}
    fields, unread, modules = _fields(captures)
    damaged = {record: fields.get(record, error) for record, error in found.items()}
    kernels = [_kernel(folder, r, ids[r], f) for r, f in fields.items() if not isinstance(f, CaptureError)]
    return {
        "format": FORMAT,
        "kind": "captures",
        "path": str(folder.path),
        "processes": [dict(process) for process in folder.processes],
        "torn_lines": folder.torn,
        "kernels": sorted(kernels, key=lambda kernel: -(kernel["resources"] or {}).get("code_bytes", 0)),
        "damaged": [{"record": r, "error": str(e)} for r, e in damaged.items() if isinstance(e, CaptureError)],
        "tunings": [
            {"winner": t.winner, "among": list(t.among), "by": t.by, "process": t.process} for t in folder.tunings
        ],
        "crashes": [str(path.parent) for path in folder.crashes],
        "notes": [
            *folder.notes,
            *note_of(modules),
            *(f"{listed(records)}: {error}" for error, records in unread.items()),
        ],
    }


def _kernel(folder: CaptureFolder, record: str, id: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    seen = [{"process": s.process, "rank": s.rank, "cache_hit": s.cache_hit} for s in folder.seen(record)]
    return {"id": id, "record": record, "seen": seen, **fields}


def capture_document(capture: Capture) -> dict[str, Any]:
    """The document of one kernel, without the texts of its stages. Raises CaptureError if its PTX cannot be read."""
    found, unread, _ = _fields({capture.kernel: capture})
    (fields,) = found.values()
    if isinstance(fields, CaptureError):
        raise fields
    document = {"format": FORMAT, "kind": "capture", **fields}
    return document | {"warnings": _warnings(capture), "notes": list(unread)}


def kernel_fields(captures: Mapping[str, Capture]) -> Fields:
    """What documents say of each kernel, by record: its capture, its resources, and what makes ptxas take its other
    scheduler. An error, if its PTX cannot be read from disk."""
    return _fields(captures)[0]


def _fields(captures: Mapping[str, Capture]) -> tuple[Fields, dict[str, list[str]], list[Module]]:
    """What kernel_fields gives, the records of each error of a cubin that cannot be read, and the module of each
    kernel."""
    modules: list[Module] = []
    fields: Fields = {}
    unread: dict[str, list[str]] = {}
    for module in by_module(captures):
        kernels = [capture.kernel for capture in module.values()]
        first = next(iter(module.values()))
        try:
            ptx = first.text(Stage.PTX)
        except CaptureError as error:
            fields |= dict.fromkeys(module, error)
            continue
        modules += [(ptx, first.assembler.version, level_of(first.assembler.options))] * len(module)
        triggers, resources = triggers_of(kernels, ptx, first.assembler.version), resources_of(module, ptx)
        for record, capture in module.items():
            found = resources[record]
            if isinstance(found, TritonHookError):
                unread.setdefault(str(found), []).append(record)
            known = asdict(found) if isinstance(found, KernelResources) else None
            fields[record] = describe(capture) | {"resources": known, "trigger": asdict(triggers[capture.kernel])}
    return {record: fields[record] for record in captures}, unread, modules


def _warnings(capture: Capture) -> list[str]:
    """Warnings of known miscompilations by its ptxas."""
    try:
        level = level_of(capture.assembler.options)
        return warnings_of(capture.text(Stage.PTX) or "", capture.assembler.version, level)
    except (CaptureError, PtxError):  # no PTX, or none that can be read: it has nothing to warn of
        return []
