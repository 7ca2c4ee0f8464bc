"""The document of a diff of two modules: a row for each kernel."""

from __future__ import annotations

from typing import Any

from tritonhook.compare.modules import KernelDelta, ModuleDiff
from tritonhook.cubin.image import Cubin
from tritonhook.report.documents import FORMAT

RESOURCES = ("registers", "stack", "shared", "spill_stores", "spill_loads")


def modules_document(diff: ModuleDiff, a_ptxas: str | None = None, b_ptxas: str | None = None) -> dict[str, Any]:
    """A diff of modules as JSON values. a_ptxas, b_ptxas: the versions that made each side, for images that do not
    name theirs."""
    return {
        "format": FORMAT,
        "kind": "module diff",
        "same_code": diff.identical_code,
        "a": _side(diff.a, a_ptxas),
        "b": _side(diff.b, b_ptxas),
        "kernels": [_kernel(kernel) for kernel in diff.kernels],
        "only_a": list(diff.only_a),
        "only_b": list(diff.only_b),
    }


def _side(cubin: Cubin, ptxas: str | None) -> dict[str, Any]:
    return {
        "arch": f"sm_{cubin.arch}",
        "ptxas": cubin.ptxas_version or ptxas,
        "kernels": len(cubin.kernels),
        "file_bytes": len(cubin.data),
        "sha256": cubin.sha256,
    }


def _kernel(kernel: KernelDelta) -> dict[str, Any]:
    sides = (kernel.a_resources, kernel.b_resources)
    resources = {name: [getattr(side, name) for side in sides] for name in RESOURCES}
    pairs = resources | {"code_bytes": [kernel.a_code_bytes, kernel.b_code_bytes]}
    return {
        "a": kernel.a,
        "b": kernel.b,
        "verdict": kernel.verdict.value,
        "summary": kernel.summary,
        "resources": {name: {"a": a, "b": b} for name, (a, b) in pairs.items()},
    }
