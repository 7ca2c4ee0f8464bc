"""A fixture for the tests of cubins."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest
from many_kernels import assembled_kernels

from tritonhook.ptxas.toolchain import Toolchain


@pytest.fixture
def many_kernels(tools: Toolchain) -> Callable[[int], bytes]:
    """Makes the image of a module with so many kernels."""
    return cache(lambda count: assembled_kernels(tools, [f"kernel_{number}" for number in range(count)]))
