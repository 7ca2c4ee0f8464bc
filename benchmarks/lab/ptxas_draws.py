"""How steady is ptxas? The same PTX assembled again and again, with its memory at random and at fixed places.

    python -m benchmarks ptxas_draws [--runs 32] [--out FILE]

A Triton GEMM, compiled offline, under its own name and a control name (neither contains "cutlass"), for each
architecture and each ptxas at hand that reads its PTX. Counts the different codes (bytes of `.text`). Assembled
only: it says nothing about speed. Summary: `unsteady_pairs` of `pairs` (architecture, ptxas) gave more than one
code with memory at random places, `unsteady_pairs_fixed` with `setarch -R`.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from benchmarks.common import environment

ARCHITECTURES = (80, 90, 100, 120)
NAMES = ("gemm", "gemm_of_another_name")


QUICK = ("--runs", "1")
SMALL = {"ARCHITECTURES": (90,)}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--runs", type=int, default=32, help="per name and layout")


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    from tritonhook.ptxas.assembler import fixed_layout_prefix
    from tritonhook.ptxas.discovery import available_ptxas

    tools = {tool.version: tool for tool in available_ptxas()}
    with tempfile.TemporaryDirectory() as cache:
        os.environ["TRITON_CACHE_DIR"] = cache
        modules = {arch: gemm(arch) for arch in ARCHITECTURES}
    samples = {}
    for arch, ptx in modules.items():
        for version, tool in sorted(tools.items()):
            counts = draw(tool, ptx, arguments.runs)
            if counts is not None:
                samples[f"sm_{arch}, ptxas {version}"] = counts
                print(f"sm_{arch}  ptxas {version}: {counts}", flush=True)
    summary = {
        "pairs": len(samples),
        "unsteady_pairs": sum(unsteady(counts, "random") for counts in samples.values()),
        "unsteady_pairs_fixed": sum(unsteady(counts, "fixed") for counts in samples.values()),
    }
    return {
        "environment": {**environment("triton", "tritonhook"), "setarch": bool(fixed_layout_prefix())},
        "runs": arguments.runs,
        "samples": samples,
        "summary": summary,
    }


def gemm(arch: int) -> Any:
    import triton_kernels

    from tritonhook.ptx.module import Ptx

    return Ptx(triton_kernels.compile_gemm(arch).asm["ptx"].rstrip("\0"))


def draw(tool: Any, ptx: Any, runs: int) -> dict[str, dict[str, list[int]]] | None:
    """Runs per code, most frequent first, by layout and name; None if this ptxas does not read the PTX."""
    from tritonhook.ptxas.assembler import Assembled, assemble

    def code(module: Any, fixed: bool) -> str | None:
        result = assemble(tool, module, ("-v", "-lineinfo"), fixed_layout=fixed)
        if not isinstance(result, Assembled):
            return None
        return hashlib.sha256(result.cubin.text(module.entries[0])).hexdigest()[:8]

    own = ptx.entries[0]
    if code(ptx, True) is None:
        return None
    counts: dict[str, dict[str, list[int]]] = {}
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        for layout, fixed in (("random", False), ("fixed", True)):
            counts[layout] = {}
            for name in NAMES:
                module = ptx.rename_entries({own: name})
                codes = Counter(pool.map(lambda _: code(module, fixed), range(runs)))  # noqa: B023  (used at once)
                counts[layout][name] = [count for _, count in codes.most_common()]
    return counts


def unsteady(counts: dict[str, dict[str, list[int]]], layout: str) -> bool:
    return any(len(codes) > 1 for codes in counts[layout].values())
