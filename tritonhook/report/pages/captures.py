"""Pages of captures: a folder's kernels in one table that filters and sorts, and one kernel with its stages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from tritonhook.report.code import read_code
from tritonhook.report.pages.common import Page, Summary, Table, Tone, count, flat, number, short, size
from tritonhook.report.pages.listing import single_listing, text_listing

_RESOURCES = ("registers", "stack", "shared", "spill_stores", "spill_loads")
_WHY_NO_CODE = (
    "This document holds no code. `tritonhook report CAPTURE` and `tritonhook show CAPTURE --html FILE` read it from "
    "the capture's folder."
)


def captures_page(document: Mapping[str, Any]) -> Page:
    """Raises KeyError, TypeError or ValueError where the document is none."""
    kernels = document["kernels"]
    sizes = [k.get("resources") or {} for k in kernels]
    tunings = _tuning_words(document)
    largest = max((r.get("code_bytes") or 0 for r in sizes), default=0) or 1
    rows = [
        {
            "record": str(k["record"]),
            "kernel": str(k["kernel"]),
            "arch": str(k["arch"]),
            "ptxas": number((k.get("ptxas") or {}).get("version")),
            "configuration": _configuration(k.get("options") or {}),
            "registers": number(r.get("registers")) if r else "",
            "stack": number(r.get("stack")) if r else "",
            "code": number(r.get("code_bytes")) if r else "",
            "share": 100 * (r.get("code_bytes") or 0) / largest,
            "stages": " ".join(map(str, k["stages"])),
            "seen": len(k["seen"]),
            "hits": sum(bool(s["cache_hit"]) for s in k["seen"]),
            "tuning": tunings.get(k["record"], ""),
            "renamed": k.get("rewritten_from"),
            "note": k.get("note"),
            "details": _details(k),
        }
        for k, r in zip(kernels, sizes, strict=True)
    ]
    parts = {
        "figures": _figures(document),
        "rows": rows,
        "with_resources": any(sizes),
        "with_tunings": bool(tunings),
        "processes": [_process(p) for p in document["processes"]],
        "crashes": list(map(str, document["crashes"])),
        "damaged": [(str(d["record"]), str(d["error"])) for d in document["damaged"]],
    }
    return Page(captures_summary(document), "captures", parts)


def captures_summary(document: Mapping[str, Any]) -> Summary:
    kernels, crashes, damaged = (document[key] for key in ("kernels", "crashes", "damaged"))
    tone = Tone.BAD if crashes else Tone.UNSURE if damaged or not kernels else Tone.NEUTRAL
    facts = []
    renamed = sum(k.get("rewritten_from") is not None for k in kernels)
    if renamed:
        facts.append(f"{renamed:,} renamed")
    if crashes:
        facts.append(f"ptxas crashed {count(len(crashes), 'time')}")
    if damaged:
        facts.append(f"{count(len(damaged), 'record')} cannot be read")
    shown = sorted(kernels, key=lambda k: -((k.get("resources") or {}).get("code_bytes") or 0))[:20]
    rows = tuple(
        (
            str(k["kernel"]),
            str(k["arch"]),
            number((k.get("ptxas") or {}).get("version")),
            *(number((k.get("resources") or {}).get(key)) for key in ("registers", "stack", "code_bytes")),
            number(len(k["seen"])),
        )
        for k in shown
    )
    columns = ("kernel", "target", "ptxas", "registers", "stack, bytes", "code, bytes", "processes")
    table = Table("Kernels" if len(kernels) <= 20 else "The 20 largest kernels", columns, rows, 3)
    notes = tuple(map(str, document.get("notes") or ()))
    if document.get("torn_lines"):
        notes += (f"{count(document['torn_lines'], 'index line')} torn: a process died while it wrote",)
    processes = count(len(document["processes"]), "process", "processes")
    verdict = f"{count(len(kernels), 'kernel')} of {processes}"
    return Summary("Captures", str(document["path"]), verdict, tone, tuple(facts), (table,) if rows else (), notes)


def _figures(document: Mapping[str, Any]) -> list[dict[str, str]]:
    kernels = document["kernels"]
    archs = Counter(str(k["arch"]) for k in kernels)
    versions = Counter(str((k.get("ptxas") or {}).get("version")) for k in kernels)
    hits = sum(bool(k["seen"]) and all(s["cache_hit"] for s in k["seen"]) for k in kernels)
    front = Counter(str((k.get("metadata") or {}).get("front_end") or "Triton") for k in kernels)
    return [
        {
            "label": "kernels",
            "value": number(len(kernels)),
            "note": ", ".join(f"{n:,} {name}" for name, n in front.most_common(3)),
        },
        {
            "label": "targets",
            "value": ", ".join(list(archs)[:3]) or "none",
            "note": ", ".join(f"{n:,} {a}" for a, n in archs.most_common(3)) if len(archs) > 1 else "",
        },
        {
            "label": "ptxas",
            "value": ", ".join(list(versions)[:2]) or "none",
            "note": f"{len(versions)} versions" if len(versions) > 2 else "",
        },
        {"label": "from cache only", "value": number(hits), "note": "compiled by another process or earlier"},
        {"label": "crashes", "value": number(len(document["crashes"])), "note": "of ptxas, kept with its input"},
    ]


def _configuration(options: Mapping[str, Any]) -> str:
    words = [
        f"{options[k]} {k.removeprefix('num_')}" for k in ("num_warps", "num_stages") if options.get(k) is not None
    ]
    constants = options.get("constants")
    if isinstance(constants, Mapping):
        words += [f"{k}={v}" for k, v in constants.items() if v is not None and k != "NAME"]
    return short(", ".join(words), 160)


def _tuning_words(document: Mapping[str, Any]) -> dict[str, str]:
    found: dict[str, str] = {}
    for tuning in document.get("tunings") or ():
        for record in tuning["among"]:
            found.setdefault(record, "tried")
        found[tuning["winner"]] = "won"
    return found


def _details(kernel: Mapping[str, Any]) -> list[tuple[str, str]]:
    shown = {
        k: v
        for k, v in kernel.items()
        if k in ("record", "hash", "ptxas", "options", "rewritten_from", "note", "resources") and v is not None
    }
    return [(name, short(value, 400)) for name, value in flat(shown)]


def _process(process: Mapping[str, Any]) -> dict[str, str]:
    argv = process.get("argv")
    command = " ".join(map(str, argv)) if isinstance(argv, (list, tuple)) else number(argv)
    return {key: str(process.get(key, "")) for key in ("host", "rank", "pid")} | {"command": short(command, 300)}


# --- one capture ---------------------------------------------------------------------------------


def capture_page(document: Mapping[str, Any]) -> Page:
    """One capture; with `artifacts` (texts by stage) and `code`, where the document has them, as listings."""
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
        "options": Table("Options", ("", ""), tuple(flat(document.get("options") or {})), 2),
        "metadata": Table(
            "Metadata", ("", ""), tuple((k, short(v, 300)) for k, v in flat(document.get("metadata") or {})), 2
        ),
        "resources": summary.tables[0],
        "why_no_code": why,
    }
    return Page(summary, "capture", parts, {"listings": listings} if listings else None)


def capture_summary(document: Mapping[str, Any]) -> Summary:
    resources = document.get("resources") or {}
    ptxas = document.get("ptxas") or {}
    rows = [("target", str(document["arch"])), ("ptxas", number(ptxas.get("version")))]
    if ptxas.get("arguments") is not None:
        rows.append(("ptxas options", " ".join(map(str, ptxas["arguments"]))))
    rows += [(key.replace("_", " "), number(resources[key])) for key in _RESOURCES if key in resources]
    if "code_bytes" in resources:
        rows.append(("code", size(resources["code_bytes"])))
    rows += [("stages", ", ".join(map(str, document["stages"]))), ("hash", str(document["hash"])[:16])]
    facts = []
    if document.get("rewritten_from"):
        facts.append(f"renamed from {document['rewritten_from']}")
    if document.get("cache_hit") is not None:
        facts.append("taken from Triton's disk cache" if document["cache_hit"] else "compiled here")
    if document.get("note"):
        facts.append(str(document["note"]))
    kernel = str(document["kernel"])
    return Summary("Capture", kernel, kernel, Tone.NEUTRAL, tuple(facts), (Table("Kernel", ("", ""), tuple(rows), 2),))
