"""The page of capabilities: a heat map for each ptxas, every cell with its opcode and reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from tritonhook.lab.capabilities import Cell, Status
from tritonhook.report.results.capabilities import Capabilities
from tritonhook.report.summary import Page

_SIGNS = {
    Status.INLINE: "●",
    Status.SYSCALL: "S",
    Status.EMULATED: "E",
    Status.REJECTED: "-",
    Status.UNKNOWN_VERSION: "?",
    Status.CRASHED: "X",
}
_CLASSES = {Status.INLINE: "inline", Status.SYSCALL: "crash", Status.EMULATED: "unsteady", Status.CRASHED: "crash"}


def capabilities_page(result: Capabilities) -> Page:
    """Every ptxas, the newest first."""
    matrix = result.matrix
    matrices = [
        {
            "title": f"ptxas {assembler.version}, PTX {assembler.ptx_version}",
            "archs": assembler.archs,
            "rows": [
                _row(probe, assembler.archs, [matrix.cells[assembler.version, arch, probe] for arch in assembler.archs])
                for probe in result.ptxas[assembler.version].cells
            ],
        }
        for assembler in reversed(matrix.assemblers)
    ]
    legend = [(sign, status.value, _CLASSES.get(status, "none")) for status, sign in _SIGNS.items()]
    return Page(result.summary(), "capabilities", {"matrices": matrices, "legend": legend})


def _row(probe: str, archs: Sequence[str], cells: Sequence[Cell]) -> dict[str, Any]:
    opcodes = Counter(cell.opcode for cell in cells if cell.status is Status.INLINE and cell.opcode)
    return {
        "probe": probe,
        "opcode": next(iter(dict(opcodes.most_common(1))), ""),
        "cells": [
            {
                "sign": _SIGNS[cell.status],
                "class": _CLASSES.get(cell.status, "none"),
                "text": ": ".join(filter(None, (f"{arch} {cell.status.value}", cell.opcode, cell.reason_for(arch)))),
            }
            for arch, cell in zip(archs, cells, strict=True)
        ],
    }
