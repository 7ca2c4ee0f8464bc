"""The capability matrix of every ptxas at hand (add more with `tritonhook ptxas add`) for every target they know.

    python -m benchmarks caps [--out FILE]

Assembled only; no GPU is involved. The documentation site shows the result as docs/reference/instructions.md.
"""

from __future__ import annotations

import argparse
from collections import Counter
from typing import Any

from benchmarks.common import environment


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    from tritonhook.cli._sweeps import wanted_tools
    from tritonhook.lab.capabilities import survey
    from tritonhook.lab.kernels.instructions import PROBES
    from tritonhook.ptxas.pool import ResultCache, sweep
    from tritonhook.ptxas.tool import find_nvdisasm
    from tritonhook.report.results.capabilities import Capabilities

    tools, nvdisasm, cache = wanted_tools(("all",)), find_nvdisasm(), ResultCache()
    targets, probes = (["sm_90a"], PROBES[:3]) if arguments.quick else (None, PROBES)
    matrix = survey(tools, targets, probes, lambda jobs: sweep(jobs, cache=cache), nvdisasm)
    statuses = Counter(cell.status.value for cell in matrix.cells.values())
    return {
        "environment": {**environment("tritonhook"), "nvdisasm": nvdisasm.version},
        "samples": Capabilities.of(matrix).document(),
        "summary": {
            "ptxas_versions": [a.version for a in matrix.assemblers],
            "probes": len(matrix.probes),
            "cells": len(matrix.cells),
            **{status.replace(" ", "_"): count for status, count in sorted(statuses.items())},
        },
    }
