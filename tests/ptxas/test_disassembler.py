"""Disassembling cubins with a real nvdisasm, and with scripts that fail."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from repository import GOLDEN

from tritonhook.cubin.image import Cubin
from tritonhook.errors import CubinError, ToolError
from tritonhook.ptxas.disassembler import run_nvdisasm
from tritonhook.ptxas.tool import Tool
from tritonhook.ptxas.toolchain import Toolchain

MakeTool = Callable[..., Tool]


def test_cubins_are_disassembled_side_by_side(tools: Toolchain) -> None:
    names = ("sm_80.exp.plain", "sm_90a.module", "sm_100a.tcgen05.cutlass")
    cubins = [Cubin.from_bytes((GOLDEN / f"{name}.cubin").read_bytes()) for name in names]
    codes = tools.disassemble(*cubins)
    for cubin, code in zip(cubins, codes, strict=True):
        assert set(code) == set(cubin.kernels)
        assert {k: len(s.instructions) for k, s in code.items()} == {k: len(cubin.text(k)) // 16 for k in cubin.kernels}
    assert tools.disassemble() == []


def test_nvdisasm_that_fails_is_a_tool_error(make_tool: MakeTool) -> None:
    for body, reason in (("echo broken >&2; exit 3", r"\(exit 3\): broken"), ("exit 0", r"\(no output\)")):
        with pytest.raises(ToolError, match=rf"nvdisasm 9\.8\.7 could not read the cubin {reason}"):
            run_nvdisasm(make_tool(body, name="nvdisasm"), b"\x7fELF")


def test_nvdisasm_that_prints_something_else_is_a_cubin_error(tools: Toolchain, make_tool: MakeTool) -> None:
    cubin = Cubin.from_bytes((GOLDEN / "sm_80.exp.plain.cubin").read_bytes())
    with pytest.raises(CubinError, match="unknown form"):
        Toolchain(tools.ptxas, make_tool("echo hello")).disassemble(cubin)
