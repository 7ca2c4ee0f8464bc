"""JSON for machines. `format` counts the versions of each document; docs/reference/json.md describes its fields."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tritonhook.capture.store import CaptureFolder, describe
from tritonhook.compare.diff import CubinDiff, LoopSummary
from tritonhook.compare.names import Build, NameComparison
from tritonhook.cubin.byte_map import file_layout
from tritonhook.cubin.image import Cubin
from tritonhook.errors import CaptureError
from tritonhook.lab.published_table import Row
from tritonhook.ptxas.assembler import Crash
from tritonhook.ptxas.tool import Tool
from tritonhook.report.code import diff_code

FORMAT = 1


def diff_document(diff: CubinDiff, a_ptxas: str | None = None, b_ptxas: str | None = None) -> dict[str, Any]:
    """A diff. `a_ptxas`, `b_ptxas`: versions where the caller knows them better than the image does."""
    records = diff.scheduler_records
    other = diff.other_scheduler
    s = diff.sass
    return {
        "format": FORMAT,
        "kind": "diff",
        "verdict": diff.verdict.value,
        "summary": diff.summary,
        "a": _side(diff.a, diff.a_kernel, a_ptxas),
        "b": _side(diff.b, diff.b_kernel, b_ptxas),
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


def _side(cubin: Cubin, kernel: str, ptxas: str | None) -> dict[str, Any]:
    return {
        "kernel": kernel,
        "arch": f"sm_{cubin.arch}",
        "ptxas": cubin.ptxas_version or ptxas,
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


def comparison_document(
    comparison: NameComparison, ptxas: Tool | None = None, arguments: Sequence[str] = (), full: bool = False
) -> dict[str, Any]:
    """An A/B of names: the three builds, the diff of the pair of equal length, and crashes. full: with the code."""
    version = None if ptxas is None else ptxas.version
    diff = None if comparison.diff is None else diff_document(comparison.diff, version, version)
    if full and diff is not None and comparison.diff is not None:
        builds = (comparison.original, comparison.renamed, comparison.control)
        texts = {build.kernel: build.ptx.text for build in builds}
        kernels = (comparison.diff.a_kernel, comparison.diff.b_kernel)
        diff["code"] = diff_code(comparison.diff, *(texts.get(kernel) for kernel in kernels))
    return {
        "format": FORMAT,
        "kind": "names",
        "ptxas": {
            "version": version,
            "path": None if ptxas is None else str(ptxas.path),
            "arguments": list(arguments),
        },
        "original": _build(comparison.original),
        "renamed": _build(comparison.renamed),
        "control": _build(comparison.control),
        "runs": comparison.runs,
        "codes_seen": dict(zip(("original", "renamed", "control"), comparison.codes, strict=True)),
        "control_is_neutral": comparison.control_is_neutral,
        "control_diff": None if comparison.control_diff is None else comparison.control_diff.summary,
        "diff": diff,
    }


def _build(build: Build) -> dict[str, Any]:
    crash = build.result if isinstance(build.result, Crash) else None
    return {
        "kernel": build.kernel,
        "file_bytes": None if build.cubin is None else len(build.cubin.data),
        "crash": None if crash is None else crash_document(crash),
    }


def crash_document(crash: Crash) -> dict[str, Any]:
    return {
        "summary": crash.summary,
        "signal": crash.signal,
        "returncode": crash.returncode,
        "timeout": crash.timeout,
        "command": crash.command,
        "stderr": crash.stderr,
        "ptxas": crash.tool.version,
    }


def table_document(rows: Sequence[Row], ptxas: Tool) -> dict[str, Any]:
    """The published table and what was assembled here."""
    return {
        "format": FORMAT,
        "kind": "table",
        "ptxas": ptxas.version,
        "rows": [
            {
                "condition": row.title,
                "published": None if row.published is None else {"size": row.published[0], "capmerc": row.published[1]},
                "size_ratio": row.size_ratio,
                "size_ratio_equal_length": row.fair_size_ratio,
                "capmerc_ratio": row.capmerc_ratio,
                "capmerc_bytes": list(row.capmerc_bytes),
                "scheduler_records": row.records,
                "code_changed": row.code_changed,
                "failure": row.failure,
                "note": row.note,
            }
            for row in rows
        ],
    }


def captures_document(folder: CaptureFolder) -> dict[str, Any]:
    """A capture folder: processes, kernels and crashes; kernels that cannot be read, with the reason."""
    kernels: list[dict[str, Any]] = []
    damaged: list[dict[str, str]] = []
    for record in folder.records:
        try:
            kernels.append(_capture(folder, record))
        except CaptureError as error:
            damaged.append({"record": record, "error": str(error)})
    return {
        "format": FORMAT,
        "kind": "captures",
        "path": str(folder.path),
        "processes": [dict(process) for process in folder.processes],
        "torn_lines": folder.torn,
        "kernels": kernels,
        "damaged": damaged,
        "tunings": [
            {"winner": t.winner, "among": list(t.among), "by": t.by, "process": t.process} for t in folder.tunings
        ],
        "crashes": [str(path.parent) for path in folder.crashes],
    }


def _capture(folder: CaptureFolder, record: str) -> dict[str, Any]:
    return {
        "record": record,
        "seen": [{"process": s.process, "rank": s.rank, "cache_hit": s.cache_hit} for s in folder.seen(record)],
        **describe(folder.capture(record)),
    }
