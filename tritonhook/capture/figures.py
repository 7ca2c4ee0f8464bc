"""The figures of captured kernels: registers, stack, spills, shared memory, instructions. Read from each cubin when
needed; cubin/resources.py has the figures that no cubin contains."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tritonhook.capture.model import Capture, Stage
from tritonhook.cubin.resources import Stackless, dynamic_shared, proven_spills, stackless_in
from tritonhook.cubin.sass import INSTRUCTION_BYTES
from tritonhook.cubin.summary import ImageSummary, summarise_image
from tritonhook.errors import CaptureError, CubinError


@dataclass(frozen=True, slots=True)
class KernelResources:
    """One kernel's resources. None: not known.

    registers: per thread. stack: bytes per thread. spill_stores, spill_loads, local_stores, local_loads: as in
    cubin.resources.Resources. shared: static bytes per block. dynamic_shared: bytes that a launch adds; None also if
    the program decides at the launch. instructions, code_bytes: with the padding at the end.
    """

    registers: int | None
    stack: int | None
    spill_stores: int | None
    spill_loads: int | None
    local_stores: int | None
    local_loads: int | None
    shared: int
    dynamic_shared: int | None
    instructions: int
    code_bytes: int


Found = KernelResources | CaptureError | CubinError | None


def resources_of(captures: Mapping[str, Capture], ptx: str | None) -> dict[str, Found]:
    """Read the resources of one module's kernels, by record: None without a cubin, an error if the cubin cannot be
    read.

    ptx: the text of the module's PTX, None without one.
    """
    first = next(iter(captures.values()))
    if Stage.CUBIN not in first.artifacts:
        return dict.fromkeys(captures)
    try:
        image = summarise_image(first.cubin, {})
    except (CaptureError, CubinError) as error:
        return dict.fromkeys(captures, error)
    stackless = stackless_in(ptx)
    return {record: _resources(capture, image, ptx, stackless) for record, capture in captures.items()}


def dynamic_shared_of(capture: Capture, ptx: str | None) -> int | None:
    """Return the bytes of shared memory that a launch of a captured kernel adds; None if not known. ptx: the
    kernel's PTX."""
    return dynamic_shared(capture.metadata.get("shared"), ptx)


def _resources(
    capture: Capture, image: ImageSummary, ptx: str | None, stackless: Stackless
) -> KernelResources | CubinError:
    try:
        kernel = image.kernel(capture.kernel)
    except CubinError as error:
        return error
    stores, loads = proven_spills(kernel.kernel, kernel, stackless)
    return KernelResources(
        registers=kernel.registers,
        stack=kernel.stack,
        spill_stores=stores,
        spill_loads=loads,
        local_stores=kernel.local_stores,
        local_loads=kernel.local_loads,
        shared=kernel.shared,
        dynamic_shared=dynamic_shared_of(capture, ptx),
        instructions=kernel.code_bytes // INSTRUCTION_BYTES,
        code_bytes=kernel.code_bytes,
    )
