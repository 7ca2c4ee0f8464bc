"""What the tests of sessions with the CuTe DSL share. Needs the DSL."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import cute_kernels as kernels
import cutlass

import tritonhook
from tritonhook.capture.model import Capture
from tritonhook.cubin.image import Cubin
from tritonhook.ptx.module import Ptx

ARCH = os.environ["CUTE_DSL_ARCH"]
ADD = "kernel_cutlass_add_kernel_tensorptrf32gmemo1281_tensorptrf32gmemo1281_0"
DOUBLE = "kernel_cutlass_double_kernel_tensorptrf32gmemo1281_tensorptrf32gmemo1281_1"
PLAIN_ADD = ADD.replace("cutlass_", "")
RELEASE = tuple(int(part) for part in cutlass.__version__.split(".")[:3])


def names(function: Any) -> list[str]:
    """The kernels of a compiled function; checks that its host code asks for exactly these."""
    assert kernels.asked_for(function) == kernels.kernels_in(function)
    return kernels.kernels_in(function)


def forget_in_memory() -> None:
    cutlass.cutlass_dsl.CuTeDSL._get_dsl().jit_cache.clear()


def captured_loop(out: Path, **wish: Any) -> Capture:
    """Compile the loop in a session with this wish; return its capture."""
    with tritonhook.session(out, **wish) as session:
        kernels.compiled(kernels.loop, cutlass.Int32(9))
    (capture,) = session.captures
    return capture


def code(capture: Capture) -> bytes:
    return Cubin.from_bytes(capture.cubin).text(capture.kernel)


class Other:
    """A rewrite of PTX, which cannot be applied: the DSL gives its PTX to its own ptxas at once."""

    key = "other"

    def apply(self, ptx: Ptx) -> Ptx:
        return ptx
