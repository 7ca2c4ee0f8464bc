"""Documents of captures, with what only their pages show: resources, texts of the stages, machine code."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tritonhook.capture.model import Capture, Stage
from tritonhook.capture.store import CaptureFolder, by_module
from tritonhook.cubin.image import Cubin
from tritonhook.cubin.summary import ImageSummary, summarise_image
from tritonhook.errors import CaptureError, CubinError, PtxError, ToolError, listed
from tritonhook.ptx.miscompiles import known_wrong

_RESOURCES = ("registers", "stack", "shared", "spill_stores", "spill_loads", "code_bytes")
_Resources = dict[str, int | None] | None


def folder_document(folder: CaptureFolder) -> dict[str, Any]:
    """The document of `show --json` and the resources of each kernel. A cubin that cannot be read becomes a note."""
    from tritonhook.report.documents.captures import captures_document

    captures = folder.captures()
    document = captures_document(folder, captures)
    resources = _resources({record: c for record, c in captures.items() if isinstance(c, Capture)})
    unread: dict[str, list[str]] = {}
    for kernel in document["kernels"]:
        found = resources[kernel["record"]]
        kernel["resources"] = None if isinstance(found, Exception) else found
        if isinstance(found, Exception):
            unread.setdefault(str(found), []).append(kernel["record"])
    notes = [f"{listed(records)}: {error}" for error, records in unread.items()]
    return document | {"notes": [*folder.notes, *notes]}


def _resources(captures: Mapping[str, Capture]) -> dict[str, _Resources | Exception]:
    """The resources of captured kernels by record; None without a cubin, an error if it cannot be read."""
    found: dict[str, _Resources | Exception] = {}
    for module in by_module(captures):
        image = _image(next(iter(module.values())))
        for record, capture in module.items():
            found[record] = _resources_in(image, capture.kernel) if isinstance(image, ImageSummary) else image
    return found


def _image(capture: Capture) -> ImageSummary | Exception | None:
    if Stage.CUBIN not in capture.artifacts:
        return None
    try:
        return summarise_image(capture.cubin, {})
    except (CaptureError, CubinError) as error:
        return error


def _resources_in(image: ImageSummary, kernel: str) -> _Resources | Exception:
    try:
        summary = image.kernel(kernel)
    except CubinError as error:
        return error
    return {name: getattr(summary, name) for name in _RESOURCES}


def capture_document(capture: Capture, full: bool) -> dict[str, Any]:
    """The document of `show --json` of one capture. full: with the texts of its stages and its machine code."""
    from tritonhook.report.documents import captures

    document = captures.capture_document(capture) | {"warnings": warnings(capture)}
    if not full:
        return document
    (resources,) = _resources({capture.kernel: capture}).values()
    document["resources"] = None if isinstance(resources, Exception) else resources  # `_code` says why
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
        kernel, nvdisasm = cubin.only_kernel(capture.kernel), find_nvdisasm()
        sass = Toolchain(nvdisasm, nvdisasm).disassemble(cubin, [kernel])[kernel]
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
