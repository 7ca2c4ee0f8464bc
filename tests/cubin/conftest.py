"""A fixture for the tests of cubins."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest

from tritonhook.ptx.module import Ptx
from tritonhook.ptxas.toolchain import Toolchain

_ENTRY = """.visible .entry kernel_{0}(.param .u64 p)
{{
.reg .b64 %rd<2>;
.shared .b32 own_{0};
ld.param.u64 %rd1, [p];
st.global.u32 [%rd1], {0};
ret;
}}
"""


@pytest.fixture
def many_kernels(tools: Toolchain) -> Callable[[int], bytes]:
    """Makes the image of a module with so many kernels."""
    return cache(lambda count: _assembled(tools, count))


def _assembled(tools: Toolchain, count: int) -> bytes:
    entries = "".join(_ENTRY.format(number) for number in range(count))
    text = f".version 8.7\n.target sm_90a\n.address_size 64\n{entries}"
    return tools.assemble_or_raise(Ptx(text), ()).cubin.data
