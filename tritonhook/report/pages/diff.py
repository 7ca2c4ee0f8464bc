"""Pages of a diff, of one kernel under two names, and of the demo: bars of the files, loops, and the code."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from tritonhook.cubin.byte_map import CATEGORIES, category
from tritonhook.cubin.opcode_classes import CLASSES, class_counts
from tritonhook.report.documents.code import read_code
from tritonhook.report.format import both, number, percent_of, signed, size
from tritonhook.report.pages.listing import sass_listing, text_listing
from tritonhook.report.summaries.demo import demo_summary
from tritonhook.report.summaries.diff import changed_opcodes, diff_summary, resource_rows, scheduler_rows
from tritonhook.report.summaries.names import names_summary
from tritonhook.report.summaries.published import published_summary
from tritonhook.report.summary import Figure, Page

_MOST_LOOPS = 24
_WHY_NO_CODE = "This document holds no instructions. `tritonhook diff A B --save FILE` and `--html` keep them."


def diff_page(document: Mapping[str, Any]) -> Page:
    """The document must fit its schema (report/schema)."""
    summary = diff_summary(document)
    code = document.get("code")
    return Page(
        summary,
        "diff",
        {
            "sides": [_side(document, name) for name in ("a", "b")],
            "figures": _figures(document),
            "resources": resource_rows(document),
            "layout": _layout(document),
            "loops": _loops(document),
            "opcodes": _opcodes(document),
            "scheduler": scheduler_rows(document),
            "class_names": CLASSES,
            "categories": CATEGORIES,
            "why_no_code": None if code else _WHY_NO_CODE,
        },
        _listings(document) if code else None,
    )


def _side(document: Mapping[str, Any], name: str) -> dict[str, str]:
    side = document[name]
    return {
        "name": name,
        "kernel": str(side["name"]),
        "control": "" if side["kernel"] == side["name"] else str(side["kernel"]),
        "arch": str(side["arch"]),
        "ptxas": number(side.get("ptxas")),
        "file": f"{number(side['file_bytes'])} bytes",
        "sha256": str(side["sha256"]),
    }


def _figures(document: Mapping[str, Any]) -> list[Figure]:
    """The numbers in large type."""
    s = document["sass"]
    a, b = s["instructions"]["a"], s["instructions"]["b"]
    sizes = document["a"]["file_bytes"], document["b"]["file_bytes"]
    registers = next(((r["a"], r["b"]) for r in document["resources"] if r["field"] == "registers"), (None, None))
    stalls = s["stall_cycles"]
    return [
        Figure("instructions", both(a, b), percent_of(a, b) if a != b else "same number"),
        Figure("registers", both(*registers), _difference(*registers)),
        Figure("moved", number(s["moved"]), f"{number(s['in_place'])} in place"),
        Figure("only on one side", f"{s['removed']:,} / {s['added']:,}", "only in a / only in b"),
        Figure(
            "control fields changed",
            number(s["control_changed"]),
            f"stall cycles {percent_of(stalls['a'], stalls['b']) or 'not known'}, static",
        ),
        Figure("file", f"{size(sizes[0])} → {size(sizes[1])}", percent_of(*sizes)),
    ]


def _difference(a: int | None, b: int | None) -> str:
    return "" if a is None or b is None else "same" if a == b else signed(b - a)


def _layout(document: Mapping[str, Any]) -> dict[str, Any] | None:
    """Both files as bars on one scale, with each byte in one part. None if the document has no layout."""
    layouts = {side: document[side].get("layout") for side in ("a", "b")}
    if None in layouts.values():
        return None
    longest = max(document[side]["file_bytes"] for side in layouts) or 1
    sums = {side: _sizes(layout) for side, layout in layouts.items()}
    a, b = sums.values()
    totals = [sum(sizes.values()) for sizes in (a, b)]
    labels = sorted({**a, **b}, key=lambda label: -max(a[label], b[label]))
    return {
        "bars": [
            {
                "name": side,
                "parts": [_part(label, start, end, longest) for label, start, end in layout],
                "bytes": sum(sums[side].values()),
            }
            for side, layout in layouts.items()
        ],
        "rows": [
            {
                "label": label,
                "a": a.get(label),
                "b": b.get(label),
                "change": signed(b[label] - a[label]),
                "category": CATEGORIES.index(category(label)),
            }
            for label in labels
        ],
        "a": totals[0],
        "b": totals[1],
        "change": signed(totals[1] - totals[0]),
        "used": sorted({CATEGORIES.index(category(label)) for label in labels}),
    }


def _sizes(layout: Iterable[tuple[str, int, int]]) -> Counter[str]:
    """Bytes by the label of a part."""
    sizes: Counter[str] = Counter()
    for label, start, end in layout:
        sizes[label] += end - start
    return sizes


def _part(label: str, start: int, end: int, longest: int) -> dict[str, Any]:
    """A part of a file as a part of its bar, in percent of the longest file."""
    return {
        "label": label,
        "bytes": end - start,
        "x": 100 * start / longest,
        "width": 100 * (end - start) / longest,
        "category": CATEGORIES.index(category(label)),
    }


def _loops(document: Mapping[str, Any]) -> dict[str, Any]:
    pairs = document["sass"]["loops"]
    longest = max((pair[s]["instructions"] for pair in pairs for s in ("a", "b") if pair[s]), default=1) or 1
    shown = []
    for index, pair in enumerate(pairs[:_MOST_LOOPS]):
        sides = {name: None if pair[name] is None else _loop(pair[name], longest) for name in ("a", "b")}
        shown.append({"number": index + 1, **sides, "opcodes": _opcode_changes(pair)})
    return {"shown": shown, "more": max(0, len(pairs) - _MOST_LOOPS)}


def _loop(loop: Mapping[str, Any], longest: int) -> dict[str, Any]:
    counts = class_counts(loop["opcodes"])
    bars, x = [], 0.0
    for index, name in enumerate(CLASSES):
        width = 100 * counts[name] / longest
        if width:
            bars.append({"x": x, "width": width, "class": index, "label": f"{name}: {counts[name]:,}"})
        x += width
    return {**loop, "bars": bars, "offset": f"0x{loop['offset']:04x}"}


def _opcode_changes(pair: Mapping[str, Any], most: int = 8) -> list[str]:
    a, b = (pair[name]["opcodes"] if pair[name] else {} for name in ("a", "b"))
    changed = [(name, a.get(name, 0), b.get(name, 0)) for name in {**a, **b} if a.get(name, 0) != b.get(name, 0)]
    changed.sort(key=lambda item: (-abs(item[2] - item[1]), item[0]))
    rest = [f"and {len(changed) - most} more"] if len(changed) > most else []
    return [f"{name} {x:,} → {y:,}" for name, x, y in changed[:most]] + rest


def _opcodes(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Opcodes whose count differs, with the width of a bar."""
    changed = changed_opcodes(document)
    largest = max((abs(b - a) for _, a, b in changed), default=1)
    return [
        {
            "name": name,
            "a": number(a),
            "b": number(b),
            "change": signed(b - a),
            "share": 50 * abs(b - a) / largest,
            "more": b > a,
        }
        for name, a, b in changed
    ]


def _listings(document: Mapping[str, Any]) -> dict[str, Any]:
    a, b = (read_code(document["code"][side]) for side in ("a", "b"))
    listings = [{"id": "sass", "title": "SASS", "kind": "sass", **sass_listing(a, b, document["sass"]["loops"])}]
    if a.ptx is not None and b.ptx is not None:
        names = (a.sass.kernel, b.sass.kernel)
        listings.append({"id": "ptx", "title": "PTX", "kind": "text", **text_listing(a.ptx, b.ptx, names)})
    return {"listings": listings}


# --- one kernel under two names ------------------------------------------------------------------


def names_page(document: Mapping[str, Any]) -> Page:
    """`tritonhook ab FILE`: the diff of the two names of equal length, with the three builds beside it."""
    summary = names_summary(document)
    diff = document["diff"]
    if diff is None:
        return Page(summary)
    inner = diff_page(diff)
    return Page(summary, "diff", {**inner.parts, "extra": summary.tables[:1]}, inner.data)


def demo_page(document: Mapping[str, Any]) -> Page:
    """`tritonhook demo`: the first kernel's page, with the published table above it."""
    inner = names_page(next(iter(document["comparisons"].values())))
    tables = published_summary(document["table"]).tables
    parts = {**inner.parts, "extra": (*tables, *inner.parts.get("extra", ()))}
    return replace(inner, summary=demo_summary(document), parts=parts)
