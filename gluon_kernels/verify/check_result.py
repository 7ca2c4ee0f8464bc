"""The results file of `check`: counts and worst case of each kernel, dtype and head_dim; a hash of the sources."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from .check import Verdict

FORMAT = 1
PACKAGE = Path(__file__).parents[1]


def row(kernel: str, dtype: str, head_dim: int, verdicts: Sequence[Verdict]) -> dict[str, Any]:
    """Summarise the verdicts on one kernel. The random seed of a case is its index among the cases of its row."""
    judged = [v for v in verdicts if v.right and v.error is not None and v.allowed]
    worst = max(judged, key=ratio, default=None)
    lse = [v.lse_error for v in verdicts if v.lse_error is not None]
    return {
        "kernel": kernel,
        "dtype": dtype,
        "head_dim": head_dim,
        "right": sum(v.right for v in verdicts),
        "wrong": [{"case": asdict(v.case), "reason": v.reason} for v in verdicts if v.reason],
        "not_run": dict(Counter(v.skipped for v in verdicts if v.skipped)),
        "worst_of_allowed": None if worst is None else ratio(worst),
        "worst_case": None if worst is None else asdict(worst.case),
        "worst_lse_error": max(lse, default=None),
    }


def ratio(verdict: Verdict) -> float:
    """Compute the error of a case as a multiple of the allowed error."""
    assert verdict.error is not None and verdict.allowed
    return verdict.error / verdict.allowed


def document(rows: Sequence[dict[str, Any]], quick: bool, gpu: str, versions: dict[str, str]) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "what": "gluon_kernels check",
        "quick": quick,
        "gpu": gpu,
        **versions,
        "sources": source_hash(),
        "summary": {
            "right": sum(row["right"] for row in rows),
            "wrong": sum(len(row["wrong"]) for row in rows),
            "not_run": sum(sum(row["not_run"].values()) for row in rows),
        },
        "rows": list(rows),
    }


def source_hash() -> str:
    """Compute the SHA-256 of the package's sources."""
    digest = hashlib.sha256()
    for path in sorted(PACKAGE.rglob("*.py")):
        digest.update(f"{path.relative_to(PACKAGE)}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()
