"""The document of any result that shows itself in a notebook."""

from __future__ import annotations

from typing import Any

from tritonhook.capture.model import Capture
from tritonhook.capture.store import CaptureFolder
from tritonhook.compare.diff import CubinDiff
from tritonhook.compare.names import NameComparison
from tritonhook.memory.timeline import MemoryTimeline
from tritonhook.report.documents.captures import capture_document, captures_document
from tritonhook.report.documents.diff import diff_document
from tritonhook.report.documents.memory import timelines_document
from tritonhook.report.documents.names import names_document
from tritonhook.timing.result import Timed, to_document


def document_of(value: Any) -> dict[str, Any] | None:
    """A result as JSON values; None for a value that is no result."""
    if isinstance(value, CubinDiff):
        return diff_document(value)
    if isinstance(value, NameComparison):
        return names_document(value)
    if isinstance(value, Timed):
        return to_document(value)
    if isinstance(value, MemoryTimeline):
        return timelines_document([value])
    if isinstance(value, CaptureFolder):
        return captures_document(value)
    if isinstance(value, Capture):
        return capture_document(value)
    return None
