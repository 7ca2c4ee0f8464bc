"""The document of any result that shows itself in a notebook."""

from __future__ import annotations

from typing import Any

from tritonhook.capture.model import Capture
from tritonhook.capture.session import Session
from tritonhook.capture.store import CaptureFolder
from tritonhook.compare.diff import CubinDiff
from tritonhook.compare.names import NameComparison
from tritonhook.cubin.image import Cubin
from tritonhook.memory.timeline import MemoryTimeline
from tritonhook.memory.watcher import Watch
from tritonhook.report.documents.captures import capture_document, captures_document
from tritonhook.report.documents.diff import diff_document
from tritonhook.report.documents.file import GpuFile, file_document
from tritonhook.report.documents.names import names_document
from tritonhook.report.results.ab import TimedComparison
from tritonhook.report.results.memory import Memory
from tritonhook.timing.result import Timed


def document_of(value: Any) -> dict[str, Any] | None:
    """A result as JSON values; None for a value that is not a result."""
    if isinstance(value, CubinDiff):
        return diff_document(value)
    if isinstance(value, NameComparison):
        return names_document(value)
    if isinstance(value, Timed):
        return TimedComparison.of(value).document()
    if isinstance(value, MemoryTimeline):
        return Memory.of([value]).document()
    if isinstance(value, Watch):
        return Memory.of(value.timelines, value.notes).document()
    if isinstance(value, Cubin):
        return file_document(GpuFile("in memory", "cubin", [value], [{}]), full=False)
    if isinstance(value, CaptureFolder):
        return captures_document(value)
    if isinstance(value, Session):
        document = captures_document(CaptureFolder.open(value.out))
        return document | {"kernels": [k for k in document["kernels"] if k["record"] in value.seen]}
    if isinstance(value, Capture):
        return capture_document(value)
    return None
