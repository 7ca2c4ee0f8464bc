"""What captured kernels need of a GPU: registers, stack, spills, shared memory, instructions.

Read from each cubin when it is asked for. Spills and dynamic shared memory are not in a cubin: the code and the PTX
prove spills (cubin/local_memory.py), and the compiler's metadata or the PTX tell dynamic shared memory.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from tritonhook.capture.model import Capture, Stage
from tritonhook.cubin.sass import INSTRUCTION_BYTES
from tritonhook.cubin.summary import ImageSummary, KernelSummary, summarise_image
from tritonhook.errors import CaptureError, CubinError, PtxError
from tritonhook.ptx.module import Ptx
from tritonhook.ptx.statements import stackless_entries

_DYNAMIC_SHARED = re.compile(r"\.extern\b[^;]*\.shared\b")


@dataclass(frozen=True, slots=True)
class KernelResources:
    """One kernel's resources. None: not known.

    registers: per thread. stack: bytes per thread. spill_stores, spill_loads, local_stores, local_loads: as in
    cubin.image.Resources. shared: static bytes per block. dynamic_shared: what a launch adds; None also where the
    program decides at the launch. instructions, code_bytes: with the padding at the end.
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
    """The resources of the kernels of one module by record: None without a cubin, an error for one that cannot be read.

    ptx: the text of the module's PTX, None without one.
    """
    first = next(iter(captures.values()))
    if Stage.CUBIN not in first.artifacts:
        return dict.fromkeys(captures)
    try:
        image = summarise_image(first.cubin, {})
    except (CaptureError, CubinError) as error:
        return dict.fromkeys(captures, error)
    module = _Module(image, ptx)
    return {record: _resources(capture, module) for record, capture in captures.items()}


class _Module:
    """A cubin with what its PTX says. The PTX is parsed only where a kernel accesses local memory."""

    def __init__(self, image: ImageSummary, ptx: str | None) -> None:
        self.image = image
        self.dynamic_shared = 0 if ptx is not None and _DYNAMIC_SHARED.search(ptx) is None else None
        self._ptx = ptx

    @cached_property
    def stackless(self) -> frozenset[str]:
        try:
            return frozenset() if self._ptx is None else stackless_entries(Ptx(self._ptx))
        except PtxError:
            return frozenset()


def _resources(capture: Capture, module: _Module) -> KernelResources | CubinError:
    try:
        kernel = module.image.kernel(capture.kernel)
    except CubinError as error:
        return error
    given = capture.metadata.get("shared")  # Triton's
    spills = _spills(kernel, module)
    return KernelResources(
        registers=kernel.registers,
        stack=kernel.stack,
        spill_stores=spills[0],
        spill_loads=spills[1],
        local_stores=kernel.local_stores,
        local_loads=kernel.local_loads,
        shared=kernel.shared,
        dynamic_shared=given if isinstance(given, int) else module.dynamic_shared,
        instructions=kernel.code_bytes // INSTRUCTION_BYTES,
        code_bytes=kernel.code_bytes,
    )


def _spills(kernel: KernelSummary, module: _Module) -> tuple[int | None, int | None]:
    if kernel.spills_need_ptx and kernel.kernel in module.stackless:
        return kernel.local_stores, kernel.local_loads
    return kernel.spill_stores, kernel.spill_loads
