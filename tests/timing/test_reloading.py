"""Kernels of Triton that are loaded again: at their next launch, once, and launched as before."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("triton", minversion="3.6")

from triton.compiler import CompiledKernel
from triton_kernels import add_kernel, fresh, launch

from tritonhook.timing.variant import forget_loaded, noting_loads


def test_a_kernel_is_loaded_once_more_and_launched_from_there(driver: Any) -> None:
    kernel, other, noted = fresh(add_kernel), fresh(add_kernel), dict[int, Any]()
    before = CompiledKernel.__dict__["_init_handles"]
    with noting_loads(noted):
        launch(kernel)
        launch(kernel)
    assert CompiledKernel.__dict__["_init_handles"] is before
    launch(other)
    assert driver.loaded == ["add_kernel"] * 2 and len(noted) == 1, "the second one was loaded outside"
    forget_loaded(noted)
    launch(kernel)
    launch(kernel)
    launch(other)
    assert driver.loaded == ["add_kernel"] * 3 and driver.launched == ["add_kernel"] * 6
    (one,) = noted.values()
    assert one.module is not None and one.function is not None
