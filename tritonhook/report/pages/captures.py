"""Pages of captures: a folder's kernels in a table that filters and sorts, and one kernel with its stages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from tritonhook.report.documents.code import read_code
from tritonhook.report.format import flat, number, short
from tritonhook.report.pages.listing import single_listing, text_listing
from tritonhook.report.summaries.autotuning import configuration, tunings
from tritonhook.report.summaries.captures import (
    RESOURCES,
    capture_summary,
    captures_summary,
    front_end,
    names_of,
    options_table,
    resource,
    resources_of,
    stages,
)
from tritonhook.report.summary import Figure, Page, Table

_WHY_NO_CODE = (
    "This document holds no code. `tritonhook report CAPTURE` and `tritonhook show CAPTURE --html FILE` read it from "
    "the capture's folder."
)


def captures_page(document: Mapping[str, Any]) -> Page:
    """The document must fit its schema (report/schema)."""
    kernels = document["kernels"]
    sizes = [resources_of(k) for k in kernels]
    tuned = tunings(document)
    names = names_of(kernels)
    largest = max((r.get("code_bytes") or 0 for r in sizes), default=0) or 1
    rows = [
        {
            "id": str(k["id"]),
            "kernel": names[k["kernel"]],
            "arch": str(k["arch"]),
            "ptxas": number(k["ptxas"]["version"]),
            "configuration": short(configuration(k["options"]), 160),
            "resources": [(resource(k, name), _sort_key(r, name)) for name in RESOURCES.values()],
            "share": 100 * (r.get("code_bytes") or 0) / largest,
            "stages": stages(k),
            "seen": len(k["seen"]),
            "hits": sum(bool(s["cache_hit"]) for s in k["seen"]),
            "tuning": tuned.get(k["record"], ""),
            "renamed": k["rewritten_from"],
            "details": _details(k),
        }
        for k, r in zip(kernels, sizes, strict=True)
    ]
    parts = {
        "figures": _figures(document),
        "rows": rows,
        "resources": list(RESOURCES),
        "with_tunings": bool(tuned),
        "processes": [_process(p) for p in document["processes"]],
        "crashes": list(map(str, document["crashes"])),
        "damaged": [(str(d["record"]), str(d["error"])) for d in document["damaged"]],
    }
    return Page(captures_summary(document), "captures", parts)


def _sort_key(resources: Mapping[str, Any], name: str) -> int | None:
    """What a column is sorted by; None: what its cells show."""
    return resources.get("spill_stores") if name == "spills" else None


def _figures(document: Mapping[str, Any]) -> list[Figure]:
    kernels = document["kernels"]
    archs = Counter(str(k["arch"]) for k in kernels)
    versions = Counter(number(k["ptxas"]["version"]) for k in kernels)
    hits = sum(bool(k["seen"]) and all(s["cache_hit"] for s in k["seen"]) for k in kernels)
    front = Counter(map(front_end, kernels))
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
        Figure("crashes", number(len(document["crashes"])), "of ptxas, kept with its input"),
    ]


def _details(kernel: Mapping[str, Any]) -> list[tuple[str, str]]:
    shown = {
        k: v
        for k, v in kernel.items()
        if k in ("record", "hash", "ptxas", "options", "rewritten_from", "note", "resources", "kernel")
        and v is not None
    }
    return [(name, short(value, 400)) for name, value in flat(shown)]


def _process(process: Mapping[str, Any]) -> dict[str, str]:
    argv = process.get("argv")
    command = " ".join(map(str, argv)) if isinstance(argv, (list, tuple)) else number(argv)
    return {key: str(process.get(key, "")) for key in ("host", "rank", "pid")} | {"command": short(command, 300)}


# --- one capture ---------------------------------------------------------------------------------


def capture_page(document: Mapping[str, Any]) -> Page:
    """One capture. Where the document has `artifacts` (texts by stage) and `code`, they become listings."""
    listings = []
    code = document.get("code")
    if code is not None:
        listings.append({"id": "sass", "title": "SASS", "kind": "sass", **single_listing(read_code(code))})
    for stage, text in (document.get("artifacts") or {}).items():
        listings.append(
            {
                "id": str(stage),
                "title": str(stage).upper() if stage == "ptx" else str(stage),
                "kind": "text",
                **text_listing(str(text)),
            }
        )
    why = None if listings else _WHY_NO_CODE
    summary = capture_summary(document)
    parts = {
        "options": options_table(document),
        "metadata": Table("Metadata", ("", ""), tuple((k, short(v, 300)) for k, v in flat(document["metadata"])), 2),
        "resources": summary.tables[0],
        "why_no_code": why,
    }
    return Page(summary, "capture", parts, {"listings": listings} if listings else None)
