"""The capability matrix of every ptxas at hand (add more with `tritonhook ptxas add`) for every target they know.

    python benchmarks/caps.py [--out FILE] [--doc FILE]
    python benchmarks/caps.py --doc-only       # write the document again from the results

Assembled only; no GPU is involved. Writes benchmarks/results/caps.json and docs/caps.md, which a test holds together.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from pathlib import Path

from _common import REPOSITORY, RESULTS, environment, write_json


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=RESULTS / "caps.json")
    parser.add_argument("--doc", type=Path, default=REPOSITORY / "docs" / "caps.md")
    parser.add_argument("--doc-only", action="store_true")
    arguments = parser.parse_args()
    if not arguments.doc_only:
        write_json(arguments.out, document())
    from tritonhook.lab.capabilities import Matrix
    from tritonhook.report.caps import render_document

    matrix = Matrix.from_document(json.loads(arguments.out.read_text())["samples"])
    arguments.doc.write_text(render_document(matrix))
    print(f"wrote {arguments.out} and {arguments.doc}")


def document() -> dict:
    from tritonhook.cli.probe import wanted_tools
    from tritonhook.lab.capability_survey import survey
    from tritonhook.lab.kernels.instructions import PROBES
    from tritonhook.lab.sweep import ResultCache, sweep
    from tritonhook.ptxas.discovery import find_nvdisasm

    tools, nvdisasm, cache = wanted_tools(("all",)), find_nvdisasm(), ResultCache()
    matrix = survey(tools, None, PROBES, lambda jobs: sweep(jobs, cache=cache), nvdisasm)
    statuses = Counter(cell.status.value for cell in matrix.cells.values())
    return {
        "format": 1,
        "environment": {**environment("tritonhook"), "nvdisasm": nvdisasm.version},
        "samples": matrix.to_document(),
        "summary": {
            "ptxas_versions": [a.version for a in matrix.assemblers],
            "probes": len(matrix.probes),
            "cells": len(matrix.cells),
            **{status.replace(" ", "_"): count for status, count in sorted(statuses.items())},
        },
    }


if __name__ == "__main__":
    main()
