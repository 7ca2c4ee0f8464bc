"""Documents of captures, with what only their pages show: resources, texts of the stages, machine code."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

from tritonhook.capture.model import Capture, Stage
from tritonhook.capture.store import CaptureFolder
from tritonhook.cubin.image import Cubin
from tritonhook.cubin.summary import summarise_image
from tritonhook.errors import CaptureError, CubinError, PtxError, ToolError
from tritonhook.ptx.miscompiles import known_wrong

_RESOURCES = ("registers", "stack", "shared", "spill_stores", "spill_loads", "code_bytes")


def folder_document(folder: CaptureFolder) -> dict[str, Any]:
    """The document of `show --json` and the resources of each kernel. A cubin that cannot be read becomes a note."""
    from tritonhook.report.documents.captures import captures_document

    document = captures_document(folder)
    notes = list(folder.notes)
    for kernel in document["kernels"]:
        try:
            kernel["resources"] = _resources(folder.capture(kernel["record"]))
        except (CaptureError, CubinError) as error:
            kernel["resources"] = None
            notes.append(f"{kernel['record']}: {error}")
    return document | {"notes": notes}


def _resources(capture: Capture) -> dict[str, int | None] | None:
    """The resources of a captured kernel; None without a cubin. Raises CaptureError or CubinError."""
    if Stage.CUBIN not in capture.artifacts:
        return None
    kernel = summarise_image(capture.cubin, {}).kernel(capture.kernel)
    return {name: getattr(kernel, name) for name in _RESOURCES}


def capture_document(capture: Capture, full: bool) -> dict[str, Any]:
    """The document of `show --json` of one capture. full: with the texts of its stages and its machine code."""
    from tritonhook.report.documents import captures

    document = captures.capture_document(capture) | {"warnings": warnings(capture)}
    if not full:
        return document
    document["resources"] = None
    with suppress(CaptureError, CubinError):  # `_code` says why
        document["resources"] = _resources(capture)
    document["artifacts"] = {
        stage.value: text for stage in capture.artifacts if isinstance(text := capture.artifacts[stage], str)
    }
    if Stage.CUBIN in capture.artifacts:
        document |= _code(capture)
    return document


def warnings(capture: Capture) -> list[str]:
    """Warnings of known miscompilations by its ptxas."""
    try:
        return known_wrong(capture.ptx, capture.assembler.version)
    except (CaptureError, PtxError):  # no PTX, or none that can be read: it has nothing to warn of
        return []


def _code(capture: Capture) -> dict[str, Any]:
    from tritonhook.cubin.line_info import read_lines
    from tritonhook.ptxas.discovery import find_nvdisasm
    from tritonhook.ptxas.toolchain import Toolchain
    from tritonhook.report.documents.code import CodeListing, code_document

    try:
        cubin = Cubin.from_bytes(capture.cubin, capture.kernel)
        nvdisasm = find_nvdisasm()
        sass = Toolchain(nvdisasm, nvdisasm).disassemble(cubin)[0][cubin.only_kernel(capture.kernel)]
    except (CubinError, ToolError) as error:
        said = f"{capture.note}; " if capture.note else ""
        return {"note": f"{said}no machine code is shown: {error}"}
    return {"code": code_document(CodeListing(sass, read_lines(cubin, sass.kernel), None))}


def load(place: Path) -> dict[str, Any]:
    """The document of a capture folder, or of one capture."""
    from tritonhook.capture.store import read_capture

    if (place / "capture.json").exists():
        return capture_document(read_capture(place), True)
    return folder_document(CaptureFolder.open(place))
