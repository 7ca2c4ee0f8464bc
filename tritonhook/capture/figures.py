"""The figures of captured kernels: registers, stack, spills, shared memory, instructions. They are read from the cubins
when needed. Figures that cubins do not contain are computed by cubin/resources.py."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tritonhook.capture.model import Capture, Stage
from tritonhook.cubin.resources import Stackless, proven_spills, stackless_in
from tritonhook.cubin.summary import ImageSummary, KernelSummary, summarise_image
from tritonhook.errors import CaptureError, CubinError

Found = KernelSummary | CaptureError | CubinError | None


def resources_of(captures: Mapping[str, Capture], ptx: str | None) -> dict[str, Found]:
    """Read the resources of one module's kernels, by record (name of the kernel's folder). A value is None if there is
    no cubin, and an error if the cubin cannot be read.

    captures: the module's kernels by record; they share one cubin. ptx: text of the module's PTX; None if there is
    none.
    """
    first = next(iter(captures.values()))
    if Stage.CUBIN not in first.artifacts:
        return dict.fromkeys(captures)
    try:
        image = summarise_image(first.cubin, {})
    except (CaptureError, CubinError) as error:
        return dict.fromkeys(captures, error)
    stackless = stackless_in(ptx)
    return {record: _resources(capture.kernel, image, stackless) for record, capture in captures.items()}


def _resources(name: str, image: ImageSummary, stackless: Stackless) -> KernelSummary | CubinError:
    try:
        kernel = image.kernel(name)
    except CubinError as error:
        return error
    stores, loads = proven_spills(name, kernel, stackless)
    return replace(kernel, spill_stores=stores, spill_loads=loads)
