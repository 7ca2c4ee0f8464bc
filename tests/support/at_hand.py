"""The ptxas that a test needs; the test is skipped where that version is not at hand."""

from __future__ import annotations

import pytest

from tritonhook.errors import ToolError
from tritonhook.ptxas.tool import Tool, find_ptxas
from tritonhook.ptxas.toolchain import Toolchain, find_toolchain

NEWEST = "13.5.37"  # `make newest-ptxas` fetches it; the others come with Triton


def ptxas_at_hand(version: str = NEWEST) -> Tool:
    try:
        return find_ptxas(version)
    except ToolError as error:
        pytest.skip(_why(version, error))


def toolchain_at_hand(version: str = NEWEST) -> Toolchain:
    try:
        return find_toolchain(version)
    except ToolError as error:
        pytest.skip(_why(version, error))


def _why(version: str, error: ToolError) -> str:
    return f"needs ptxas {version}: `tritonhook ptxas add {version}` ({str(error).splitlines()[0]})"
