"""The page of capabilities: a heat map for each ptxas, every cell with its opcode and reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from tritonhook.report.summaries.capabilities import capabilities_summary
from tritonhook.report.summary import Page

_SIGNS = {"inline": "●", "syscall": "S", "emulated": "E", "rejected": "-", "unknown PTX version": "?", "crashed": "X"}
_CLASSES = {"inline": "inline", "syscall": "crash", "emulated": "unsteady", "crashed": "crash"}


def capabilities_page(document: Mapping[str, Any]) -> Page:
    """Every ptxas, the newest first."""
    outcomes = {str(number): outcome for number, outcome in document["outcomes"].items()}
    matrices = [
        {
            "title": f"ptxas {version}, PTX {part['ptx_version']}",
            "archs": list(map(str, part["archs"])),
            "rows": [
                _row(probe, [outcomes[str(n)] for n in row], part["archs"]) for probe, row in part["cells"].items()
            ],
        }
        for version, part in reversed(list(document["ptxas"].items()))
    ]
    legend = [(sign, status, _CLASSES.get(status, "none")) for status, sign in _SIGNS.items()]
    return Page(capabilities_summary(document), "capabilities", {"matrices": matrices, "legend": legend})


def _row(probe: str, cells: list[list[Any]], archs: list[str]) -> dict[str, Any]:
    opcodes = Counter(str(opcode) for status, opcode, _ in cells if status == "inline" and opcode)
    return {
        "probe": probe,
        "opcode": next(iter(dict(opcodes.most_common(1))), ""),
        "cells": [
            {
                "sign": _SIGNS.get(status, "?"),
                "class": _CLASSES.get(status, "none"),
                "text": ": ".join(filter(None, (f"{arch} {status}", opcode, reason.replace("{arch}", arch)))),
            }
            for arch, (status, opcode, reason) in zip(archs, cells, strict=True)
        ],
    }
