"""The document of a policy: its entries, and what becomes of each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tritonhook.tuning.policy_check import Checked, State

FORMAT = 1


def policy_document(path: str, captures: str | None, checked: Sequence[Checked]) -> dict[str, Any]:
    """A policy as JSON values. captures: the folder that it was compared with; None if with none."""
    return {
        "format": FORMAT,
        "kind": "policy",
        "path": path,
        "captures": captures,
        "counts": {state.value: sum(one.state is state for one in checked) for state in State},
        "kernels": [_kernel(one) for one in checked],
    }


def _kernel(one: Checked) -> dict[str, Any]:
    entry = one.entry
    return {
        "kernel": entry.kernel,
        "arch": entry.arch,
        "front_end": entry.front_end,
        "lever": entry.lever.text,
        "gain_percent": entry.gain_percent,
        "interval_percent": list(entry.interval_percent),
        "gpu": entry.gpu,
        "date": entry.date,
        "ptxas": entry.ptxas,
        "ptx": entry.ptx,
        "code": entry.code,
        "state": one.state.value,
        "reason": one.reason,
    }
