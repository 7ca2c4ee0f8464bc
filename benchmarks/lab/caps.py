"""The capability matrix of every ptxas at hand (add more with `tritonhook ptxas add`) for every target they know.

    python benchmarks/lab/caps.py [--out FILE]

Assembled only; no GPU is involved. The documentation site shows the result as docs/reference/instructions.md.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for common.py
from common import RESULTS, environment, write_json


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=RESULTS / "caps.json")
    arguments = parser.parse_args()
    write_json(arguments.out, document())
    print(f"wrote {arguments.out}")


def document() -> dict:
    from tritonhook.cli._sweeps import wanted_tools
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
