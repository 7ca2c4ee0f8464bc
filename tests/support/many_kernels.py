"""Modules with many kernels."""

from __future__ import annotations

from collections.abc import Sequence

from tritonhook.ptx.module import Ptx
from tritonhook.ptxas.toolchain import Toolchain

_ENTRY = """.visible .entry {name}(.param .u64 p)
{{
.reg .b64 %rd<2>;
.shared .b32 own_{number};
ld.param.u64 %rd1, [p];
st.global.u32 [%rd1], {number};
ret;
}}
"""


def assembled_kernels(tools: Toolchain, names: Sequence[str], first: int = 0) -> bytes:
    """The cubin of kernels with these names. Each stores a number of its own, from `first` on."""
    entries = "".join(_ENTRY.format(name=name, number=number) for number, name in enumerate(names, first))
    text = f".version 8.7\n.target sm_90a\n.address_size 64\n{entries}"
    return tools.assemble_or_raise(Ptx(text), ()).cubin.data
