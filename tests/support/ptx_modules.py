"""Small PTX modules, as text."""

from __future__ import annotations

from tritonhook.ptx.module import Ptx

HEADER = ".version 8.7\n.target sm_90a\n.address_size 64\n"


def kernel(name: str, body: str = "ret;", parameters: int = 1) -> str:
    listed = ", ".join(f".param .u64 {name}_param_{i}" for i in range(parameters))
    return f".visible .entry {name}({listed})\n{{\n.reg .b64 %rd<2>; .reg .pred %p<2>;\n{body}\n}}\n"


def module(*names: str) -> Ptx:
    return Ptx(HEADER + "".join(kernel(name, f"ld.param.u64 %rd1, [{name}_param_0];\nret;") for name in names))
