"""The published table of the name effect under every ptxas at hand (add more with `tritonhook ptxas add`).

    python -m benchmarks published_table [--out FILE]

Assembled only. Summary: of the `versions` that were tried, `crashing_versions` crash on the MMA loop without its warp
predicate, under the cutlass name only.
"""

from __future__ import annotations

import argparse
from typing import Any

from benchmarks.common import environment


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    from tritonhook.lab.published_table import measure
    from tritonhook.ptxas.tool import available_ptxas, find_nvdisasm
    from tritonhook.ptxas.toolchain import Toolchain
    from tritonhook.report.results.names import PublishedTable

    tools = {tool.version: tool for tool in available_ptxas()}
    tables = {
        version: PublishedTable.of(list(measure(Toolchain(tool, find_nvdisasm()))), tool).document()["rows"]
        for version, tool in sorted(tools.items())[-1 if arguments.quick else 0 :]
    }
    crashing = [v for v, rows in tables.items() if any("cutlass name only" in (r["failure"] or "") for r in rows)]
    return {
        "environment": environment("tritonhook"),
        "samples": tables,
        "summary": {"versions": list(tables), "crashing_versions": crashing},
    }
