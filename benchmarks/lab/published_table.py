"""The published table of the name effect under every ptxas at hand (add more with `tritonhook ptxas add`).

    python benchmarks/lab/published_table.py [--out FILE]

Assembled only. Summary: of the `versions` that were tried, `crashing_versions` crash on the MMA loop without its warp
predicate, under the cutlass name only.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for common.py
from common import RESULTS, environment, write_json


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=RESULTS / "published_table.json")
    arguments = parser.parse_args()
    from tritonhook.lab.published_table import measure
    from tritonhook.ptxas.discovery import available_ptxas, find_nvdisasm
    from tritonhook.ptxas.toolchain import Toolchain
    from tritonhook.report.documents.published import table_document

    tools = {tool.version: tool for tool in available_ptxas()}
    tables = {
        version: table_document(list(measure(Toolchain(tool, find_nvdisasm()))), tool)["rows"]
        for version, tool in sorted(tools.items())
    }
    crashing = [v for v, rows in tables.items() if any("cutlass name only" in (r["failure"] or "") for r in rows)]
    document = {
        "format": 1,
        "environment": environment("tritonhook"),
        "samples": tables,
        "summary": {"versions": list(tables), "crashing_versions": crashing},
    }
    write_json(arguments.out, document)
    print(document["summary"], f"wrote {arguments.out}")


if __name__ == "__main__":
    main()
