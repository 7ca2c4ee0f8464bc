"""The document of a diff: two kernels' code, resources and sections."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from tritonhook.compare.diff import CubinDiff, LoopSummary
from tritonhook.cubin.byte_map import file_layout
from tritonhook.cubin.image import Cubin
from tritonhook.ptx.triggers import trigger_of
from tritonhook.report.documents import FORMAT


def diff_document(
    diff: CubinDiff,
    a_ptxas: str | None = None,
    b_ptxas: str | None = None,
    a_ptx: str | None = None,
    b_ptx: str | None = None,
    names: tuple[str, str] | None = None,
) -> dict[str, Any]:
    """A diff as JSON values. a_ptxas, b_ptxas: the versions that made each side, for images that do not name theirs.
    a_ptx, b_ptx: the PTX of each side; None if it is not at hand. names: the kernels' own names, where one has
    a control name in its image."""
    records = diff.scheduler_records
    other = diff.other_scheduler
    a_name, b_name = names or (diff.a_kernel, diff.b_kernel)
    s = diff.sass
    return {
        "format": FORMAT,
        "kind": "diff",
        "verdict": diff.verdict.value,
        "summary": diff.summary,
        "a": _side(diff.a, a_name, diff.a_kernel, a_ptxas, a_ptx),
        "b": _side(diff.b, b_name, diff.b_kernel, b_ptxas, b_ptx),
        "sections": [
            {"role": d.role, "a_bytes": d.a_bytes, "b_bytes": d.b_bytes, "changed": d.changed} for d in diff.sections
        ],
        "resources": [{"field": d.field, "a": d.a, "b": d.b} for d in diff.resources],
        "sass": {
            "instructions": {"a": s.a_instructions, "b": s.b_instructions},
            "in_place": s.in_place,
            "identical": s.identical,
            "moved": s.moved,
            "removed": s.removed,
            "added": s.added,
            "control_changed": s.control_changed,
            "yield_bits": {"a": s.a_yield_bits, "b": s.b_yield_bits},
            "stall_cycles": {"a": s.a_stall_cycles, "b": s.b_stall_cycles},
            "opcodes": {name: {"a": a, "b": b} for name, (a, b) in s.opcodes.items()},
            "loops": [{"a": _loop(pair.a), "b": _loop(pair.b)} for pair in s.loops],
        },
        "scheduler": {
            "other_scheduler": {"a": other[0], "b": other[1]},
            "capmerc_records": {"a": records[0], "b": records[1]},
            "rescheduled_loops": {"a": s.a_rescheduled_loops, "b": s.b_rescheduled_loops},
        },
    }


def _side(cubin: Cubin, name: str, kernel: str, ptxas: str | None, ptx: str | None) -> dict[str, Any]:
    made_by = cubin.ptxas_version or ptxas
    return {
        "name": name,
        "kernel": kernel,
        "arch": f"sm_{cubin.arch}",
        "ptxas": made_by,
        "trigger": asdict(trigger_of(kernel, ptx, made_by)),
        "file_bytes": len(cubin.data),
        "sha256": cubin.sha256,
        "layout": [list(extent) for extent in file_layout(cubin, kernel)],
    }


def _loop(loop: LoopSummary | None) -> dict[str, Any] | None:
    if loop is None:
        return None
    return {
        "offset": loop.offset,
        "instructions": loop.instructions,
        "yield_bits": loop.yield_bits,
        "stall_cycles": loop.stall_cycles,
        "rescheduled": loop.rescheduled,
        "opcodes": dict(loop.opcodes),
    }
