"""Pages of captures: a folder's kernels in a table that filters and sorts, one kernel with its stages, one file with
GPU code."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import to_builtins

from tritonhook.report.pages.listing import single_listing, text_listing
from tritonhook.report.result import Figure, Page, Table, flat, number, short
from tritonhook.report.results.capture import CapturedOne, source_summary
from tritonhook.report.results.captures import Captures, FolderKernel
from tritonhook.report.results.file import File

_WHY_NO_CODE = "This document holds no code. `tritonhook show CAPTURE --html FILE` reads it from the capture's folder."
_DETAILS = ("record", "kernel", "hash", "ptxas", "options", "rewritten_from", "note", "resources")


def captures_page(captures: Captures) -> Page:
    shown, tuned, figures = captures.titles(), captures.outcomes(), captures.figures
    largest = max((_size(kernel) for kernel in captures.kernels), default=0) or 1
    rows = [
        {
            "id": kernel.id,
            "kernel": shown[kernel.record],
            "arch": kernel.arch,
            "ptxas": number(kernel.ptxas.version),
            "configuration": short(kernel.configuration, 160),
            "resources": [(cell(kernel), _sort_key(kernel, name)) for name, cell in figures.items()],
            "share": 100 * _size(kernel) / largest,
            "stages": kernel.kept,
            "seen": len(kernel.seen),
            "hits": kernel.hits,
            "tuning": tuned.get(kernel.record, ""),
            "renamed": kernel.rewritten_from,
            "details": _details(kernel),
        }
        for kernel in captures.kernels
    ]
    parts = {
        "figures": _figures(captures),
        "rows": rows,
        "resources": list(figures),
        "with_tunings": bool(tuned),
        "processes": [_process(process) for process in captures.processes],
        "failed": captures.failed,
        "damaged": [(damage.record, damage.error) for damage in captures.damaged],
    }
    return Page(captures.summary(), "captures", parts)


def _size(kernel: FolderKernel) -> int:
    return kernel.resources.code_bytes if kernel.resources else 0


def _sort_key(kernel: FolderKernel, heading: str) -> int | None:
    """What a column is sorted by; None: what its cells show."""
    return kernel.resources.spill_stores if kernel.resources and heading == "spills" else None


def _figures(captures: Captures) -> list[Figure]:
    kernels = captures.kernels
    archs = Counter(kernel.arch for kernel in kernels)
    versions = Counter(number(kernel.ptxas.version) for kernel in kernels)
    hits = sum(0 < len(kernel.seen) == kernel.hits for kernel in kernels)
    front = Counter(kernel.front_end for kernel in kernels)
    return [
        Figure("kernels", number(len(kernels)), ", ".join(f"{n:,} {name}" for name, n in front.most_common(3))),
        Figure(
            "targets",
            ", ".join(list(archs)[:3]) or "none",
            ", ".join(f"{n:,} {a}" for a, n in archs.most_common(3)) if len(archs) > 1 else "",
        ),
        Figure(
            "ptxas", ", ".join(list(versions)[:2]) or "none", f"{len(versions)} versions" if len(versions) > 2 else ""
        ),
        Figure("from cache only", number(hits), "compiled by another process or earlier"),
        Figure("failed", number(len(captures.failed)), "could not be compiled, and are kept"),
    ]


def _details(kernel: FolderKernel) -> list[tuple[str, str]]:
    given = to_builtins(kernel)
    return [(name, short(text, 400)) for name, text in flat({k: given[k] for k in _DETAILS if given[k] is not None})]


def _process(process: Mapping[str, Any]) -> dict[str, str]:
    argv = process.get("argv")
    command = " ".join(map(str, argv)) if isinstance(argv, (list, tuple)) else number(argv)
    return {key: str(process.get(key, "")) for key in ("host", "rank", "pid")} | {"command": short(command, 300)}


# --- one capture ---------------------------------------------------------------------------------


def capture_page(capture: CapturedOne) -> Page:
    """One capture. Its machine code and the texts of its stages become listings, where the result has them."""
    summary, listings = capture.summary(), list(_listings(capture))
    metadata = tuple((name, short(text, 300)) for name, text in flat(capture.metadata))
    parts = {
        "options": capture.options_table(),
        "metadata": Table("Metadata", ("", ""), metadata, 2),
        "resources": summary.tables[0],
        "became": source_summary(capture.code) if capture.code else None,
        "why_no_code": None if listings else _WHY_NO_CODE,
    }
    return Page(summary, "capture", parts, {"listings": listings} if listings else None)


def _listings(capture: CapturedOne) -> Iterator[dict[str, Any]]:
    if capture.code:
        yield {"id": "sass", "title": "SASS", "kind": "sass", **single_listing(capture.code)}
    for stage, text in (capture.artifacts or {}).items():
        yield {"id": stage, "title": "PTX" if stage == "ptx" else stage, "kind": "text", **text_listing(text)}


# --- one file with GPU code -----------------------------------------------------------------------


_MOST = 20  # listings; the page holds the code of each


def file_page(file: File) -> Page:
    names = file.names()
    coded = [(f"{names[k.kernel]}, {k.arch}", number, k.code) for number, k in enumerate(file.kernels) if k.code]
    listings = [
        {"id": f"sass-{number}", "title": title, "kind": "sass", **single_listing(code)}
        for title, number, code in coded[:_MOST]
    ]
    why = None if listings else "This document holds no code."
    parts = {"why_no_code": why, "left_out": len(coded) - len(listings)}
    return Page(file.summary(), "file", parts, {"listings": listings} if listings else None)
