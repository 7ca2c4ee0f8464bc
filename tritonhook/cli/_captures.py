"""The document of one capture with what only its page shows: texts of the stages, machine code. The error for a capture
folder without kernels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tritonhook.capture.model import Capture, Stage
from tritonhook.capture.store import CaptureFolder
from tritonhook.cubin.image import Cubin
from tritonhook.errors import CaptureError, CubinError, ToolError


def no_kernels(path: str | Path) -> CaptureError:
    """The error for a capture folder without kernels."""
    remedy = f"run a program that compiles some: `tritonhook run --out {path} script.py`"
    return CaptureError(f"{path}: no kernels were captured; {remedy}")


def full_document(capture: Capture) -> dict[str, Any]:
    """The document of `show --json` of one capture, with the texts of its stages and its machine code."""
    from tritonhook.report.documents.captures import capture_document

    document = capture_document(capture)
    document["artifacts"] = {
        stage.value: text for stage in capture.artifacts if isinstance(text := capture.artifacts[stage], str)
    }
    if Stage.CUBIN in capture.artifacts:
        document |= _code(capture)
    return document


def _code(capture: Capture) -> dict[str, Any]:
    from tritonhook.cubin.line_info import read_lines
    from tritonhook.ptxas.toolchain import reading_toolchain
    from tritonhook.report.documents.code import CodeListing, code_document

    try:
        cubin = Cubin.from_bytes(capture.cubin, capture.kernel)
        kernel = cubin.only_kernel(capture.kernel)
        sass = reading_toolchain().disassemble(cubin, [kernel])[kernel]
    except (CubinError, ToolError) as error:
        said = f"{capture.note}; " if capture.note else ""
        return {"note": f"{said}no machine code is shown: {error}"}
    return {"code": code_document(CodeListing(sass, read_lines(cubin, sass.kernel), None))}


def load(place: Path) -> dict[str, Any]:
    """The document of a capture folder, or of one capture."""
    from tritonhook.capture.store import read_capture
    from tritonhook.report.documents.captures import captures_document

    if (place / "capture.json").exists():
        return full_document(read_capture(place))
    return captures_document(CaptureFolder.open(place))
