"""HTML page of a diff: both files as bars, loops, and the code."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from typing import Any

from msgspec import UNSET

from tritonhook.compare.diff import LoopDelta, LoopSummary
from tritonhook.cubin.byte_map import CATEGORIES, category
from tritonhook.cubin.sass import CLASSES, class_counts
from tritonhook.report.pages.listing import sass_listing, text_listing
from tritonhook.report.result import Figure, Page, both, number, percent_of, signed, size
from tritonhook.report.results.diff import CodePair, Diff, DiffSide
from tritonhook.report.results.names import Demo, Names

_MOST_LOOPS = 24
_WHY_NO_CODE = "This document holds no instructions. `tritonhook diff A B --save FILE` and `--html` keep them."


def diff_page(diff: Diff) -> Page:
    parts = {
        "sides": {"a": diff.a, "b": diff.b},
        "figures": _figures(diff),
        "resources": [(resource, *resource.judgement(diff.same_threads)) for resource in diff.resources],
        "layout": _layout(diff.a, diff.b),
        "loops": _loops(diff.sass.loops),
        "opcodes": diff.changed_opcodes(),
        "scheduler": diff.scheduler_rows(),
        "class_names": CLASSES,
        "categories": CATEGORIES,
        "why_no_code": None if diff.code else _WHY_NO_CODE,
    }
    data = {"listings": list(_listings(diff.code, diff.sass.loops))} if diff.code else None
    return Page(diff.summary(), "diff", parts, data)


def _figures(diff: Diff) -> list[Figure]:
    """List the figures in large type at the top of the page."""
    s, sizes = diff.sass, (diff.a.file_bytes, diff.b.file_bytes)
    a, b = s.instructions.a, s.instructions.b
    registers = next(((r.a, r.b) for r in diff.resources if r.field == "registers"), (None, None))
    stalls = percent_of(s.stall_cycles.a, s.stall_cycles.b) or "not known"
    return [
        Figure("instructions", both(a, b), percent_of(a, b) if a != b else "same number"),
        Figure("registers", both(*registers), _difference(*registers)),
        Figure("moved", number(s.moved), f"{number(s.in_place)} in place"),
        Figure("only on one side", f"{s.removed:,} / {s.added:,}", "only in a / only in b"),
        Figure("control fields changed", number(s.control_changed), f"stall cycles {stalls}, static"),
        Figure("file", f"{size(sizes[0])} → {size(sizes[1])}", percent_of(*sizes)),
    ]


def _difference(a: object, b: object) -> str:
    if not (isinstance(a, int) and isinstance(b, int)):
        return ""
    return "same" if a == b else signed(b - a)


def _layout(a_side: DiffSide, b_side: DiffSide) -> dict[str, Any] | None:
    """Draw both files as bars on one scale, each byte in one part. None if a side has no layout."""
    if a_side.layout is UNSET or b_side.layout is UNSET:
        return None
    longest = max(a_side.file_bytes, b_side.file_bytes) or 1
    a, b = (_sizes(layout) for layout in (a_side.layout, b_side.layout))
    labels = sorted({**a, **b}, key=lambda label: -max(a[label], b[label]))
    categories = {label: CATEGORIES.index(category(label)) for label in labels}
    parts = (
        [(label, end - start, 100 * start / longest, 100 * (end - start) / longest) for label, start, end in layout]
        for layout in (a_side.layout, b_side.layout)
    )
    return {
        "bars": list(zip(("a", "b"), parts, (a.total(), b.total()), strict=True)),
        "rows": [(label, a.get(label), b.get(label), b[label] - a[label]) for label in labels],
        "categories": categories,
    }


def _sizes(layout: Iterable[tuple[str, int, int]]) -> Counter[str]:
    """Sum bytes by part label."""
    sizes: Counter[str] = Counter()
    for label, start, end in layout:
        sizes[label] += end - start
    return sizes


def _loops(pairs: Sequence[LoopDelta]) -> dict[str, Any]:
    longest = max((loop.instructions for pair in pairs for loop in pair.sides if loop), default=1) or 1
    shown = [
        {"a": _loop(pair.a, longest), "b": _loop(pair.b, longest), "opcodes": _opcode_changes(pair)}
        for pair in pairs[:_MOST_LOOPS]
    ]
    return {"shown": shown, "more": max(0, len(pairs) - _MOST_LOOPS)}


def _loop(loop: LoopSummary | None, longest: int) -> dict[str, Any] | None:
    if loop is None:
        return None
    counts = class_counts(loop.opcodes)
    bars, x = [], 0.0
    for index, name in enumerate(CLASSES):
        width = 100 * counts[name] / longest
        if width:
            bars.append({"x": x, "width": width, "class": index, "label": f"{name}: {counts[name]:,}"})
        x += width
    return {**asdict(loop), "bars": bars}


def _opcode_changes(pair: LoopDelta, most: int = 8) -> list[str]:
    a, b = (loop.opcodes if loop else {} for loop in pair.sides)
    changed = [(name, a.get(name, 0), b.get(name, 0)) for name in {**a, **b} if a.get(name, 0) != b.get(name, 0)]
    changed.sort(key=lambda item: (-abs(item[2] - item[1]), item[0]))
    rest = [f"and {len(changed) - most} more"] if len(changed) > most else []
    return [f"{name} {x:,} → {y:,}" for name, x, y in changed[:most]] + rest


def _listings(code: CodePair, loops: Sequence[LoopDelta]) -> Iterator[dict[str, Any]]:
    a, b = code.a, code.b
    yield {"id": "sass", "title": "SASS", "kind": "sass", **sass_listing(a, b, loops)}
    if a.ptx is not None and b.ptx is not None:
        yield {"id": "ptx", "title": "PTX", "kind": "text", **text_listing(a.ptx, b.ptx, (a.kernel, b.kernel))}


# --- one kernel under several names ---------------------------------------------------------------


def names_page(names: Names) -> Page:
    """Make the page of the two names of equal length, and list all three builds."""
    if names.diff is None:
        return Page(names.summary())
    inner = diff_page(names.diff)
    return replace(inner, summary=names.summary(), parts={**inner.parts, "extra": (names.builds_table(),)})


def demo_page(demo: Demo) -> Page:
    return replace(names_page(demo.first), summary=demo.summary())
