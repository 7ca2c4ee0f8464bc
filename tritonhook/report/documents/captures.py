"""The document of a capture folder."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from tritonhook.capture.model import Capture
from tritonhook.capture.store import CaptureFolder, describe
from tritonhook.errors import CaptureError
from tritonhook.report.documents import FORMAT


def captures_document(folder: CaptureFolder) -> dict[str, Any]:
    """The processes, kernels and crashes of ptxas, and the records that cannot be read, each with the reason."""
    kernels: list[dict[str, Any]] = []
    damaged: list[dict[str, str]] = []
    for record in folder.records:
        try:
            kernels.append(_capture(folder, record))
        except CaptureError as error:
            damaged.append({"record": record, "error": str(error)})
    return {
        "format": FORMAT,
        "kind": "captures",
        "path": str(folder.path),
        "processes": [dict(process) for process in folder.processes],
        "torn_lines": folder.torn,
        "kernels": kernels,
        "damaged": damaged,
        "tunings": [
            {"winner": t.winner, "among": list(t.among), "by": t.by, "process": t.process} for t in folder.tunings
        ],
        "crashes": [str(path.parent) for path in folder.crashes],
    }


def _capture(folder: CaptureFolder, record: str) -> dict[str, Any]:
    return {
        "record": record,
        "seen": [{"process": s.process, "rank": s.rank, "cache_hit": s.cache_hit} for s in folder.seen(record)],
        **kernel_fields(folder.capture(record)),
    }


def capture_document(capture: Capture) -> dict[str, Any]:
    """The document of one kernel, without the texts of its stages."""
    return {"format": FORMAT, "kind": "capture", **kernel_fields(capture)}


def kernel_fields(capture: Capture) -> dict[str, Any]:
    """What both documents say of a kernel: its capture, and what makes ptxas take its other scheduler."""
    return describe(capture) | {"trigger": asdict(capture.trigger)}
