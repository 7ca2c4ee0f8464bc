"""The document of a capture folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from tritonhook.capture.model import Capture, Stage
from tritonhook.capture.store import CaptureFolder, by_module, describe
from tritonhook.errors import CaptureError
from tritonhook.ptx.triggers import triggers_of
from tritonhook.report.documents import FORMAT

Captures = Mapping[str, Capture | CaptureError]  # by record


def captures_document(folder: CaptureFolder, captures: Captures | None = None) -> dict[str, Any]:
    """The processes, kernels and crashes of ptxas, and the records that cannot be read, each with the reason.

    captures: what `folder.captures()` gave, if the caller has read them.
    """
    found = folder.captures() if captures is None else captures
    fields = kernel_fields({record: capture for record, capture in found.items() if isinstance(capture, Capture)})
    damaged = {record: fields.get(record, error) for record, error in found.items()}
    return {
        "format": FORMAT,
        "kind": "captures",
        "path": str(folder.path),
        "processes": [dict(process) for process in folder.processes],
        "torn_lines": folder.torn,
        "kernels": [_kernel(folder, record, it) for record, it in fields.items() if not isinstance(it, CaptureError)],
        "damaged": [{"record": r, "error": str(e)} for r, e in damaged.items() if isinstance(e, CaptureError)],
        "tunings": [
            {"winner": t.winner, "among": list(t.among), "by": t.by, "process": t.process} for t in folder.tunings
        ],
        "crashes": [str(path.parent) for path in folder.crashes],
    }


def _kernel(folder: CaptureFolder, record: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    seen = [{"process": s.process, "rank": s.rank, "cache_hit": s.cache_hit} for s in folder.seen(record)]
    return {"record": record, "seen": seen, **fields}


def capture_document(capture: Capture) -> dict[str, Any]:
    """The document of one kernel, without the texts of its stages. Raises CaptureError if its PTX cannot be read."""
    (fields,) = kernel_fields({capture.kernel: capture}).values()
    if isinstance(fields, CaptureError):
        raise fields
    return {"format": FORMAT, "kind": "capture", **fields}


def kernel_fields(captures: Mapping[str, Capture]) -> dict[str, dict[str, Any] | CaptureError]:
    """What both documents say of each kernel, by record: its capture, and what makes ptxas take its other scheduler.
    An error, if its PTX cannot be read from disk."""
    fields: dict[str, dict[str, Any] | CaptureError] = {}
    for module in by_module(captures):
        kernels = [capture.kernel for capture in module.values()]
        first = next(iter(module.values()))
        try:
            triggers = triggers_of(kernels, first.text(Stage.PTX), first.assembler.version)
        except CaptureError as error:
            fields |= dict.fromkeys(module, error)
            continue
        fields |= {r: describe(c) | {"trigger": asdict(triggers[c.kernel])} for r, c in module.items()}
    return {record: fields[record] for record in captures}
