"""The page of a diff, and of a kernel under two names: from their JSON documents."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tritonhook.compare.diff import WORSE_WHEN_GROWING
from tritonhook.cubin.byte_map import CATEGORIES, category
from tritonhook.cubin.opcode_classes import CLASSES, class_counts
from tritonhook.report.code import read_code
from tritonhook.report.pages.common import (
    Page,
    Summary,
    Table,
    Tone,
    both,
    count,
    number,
    percent_of,
    short,
    signed,
    size,
)
from tritonhook.report.pages.listing import sass_listing, text_listing

_TONES = {"same code": Tone.GOOD, "only scheduling differs": Tone.CHANGED, "different code": Tone.CHANGED}
_UNITS = {
    "registers": "per thread",
    "stack": "bytes per thread",
    "min_stack": "bytes per thread",
    "shared": "bytes per block",
    "threads": "per block",
    "spill_stores": "bytes",
    "spill_loads": "bytes",
}
_MOST_LOOPS = 24
_WHY_NO_CODE = "This document holds no instructions. `tritonhook diff A B --save FILE` and `--html` keep them."


def diff_page(document: Mapping[str, Any]) -> Page:
    """Raises KeyError, TypeError or ValueError where the document is none."""
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
            "scheduler": _scheduler(document),
            "class_names": CLASSES,
            "categories": CATEGORIES,
            "why_no_code": None if code else _WHY_NO_CODE,
        },
        _listings(document) if code else None,
    )


def diff_summary(document: Mapping[str, Any]) -> Summary:
    verdict = str(document["verdict"])
    a, b = document["a"], document["b"]
    worse = [row for row in resource_rows(document) if row["tone"] is Tone.BAD]
    tone = Tone.BAD if worse else _TONES.get(verdict, Tone.UNSURE)
    facts = [fact for fact in str(document["summary"]).removeprefix(f"{verdict}: ").split("; ") if " -> " not in fact]
    if worse:
        facts.insert(0, "more in b: " + ", ".join(f"{row['field']} {row['a']} → {row['b']}" for row in worse))
    return Summary(
        "Diff",
        f"{short(a['kernel'])} → {short(b['kernel'])}",
        verdict,
        tone,
        tuple(facts),
        (
            Table("Sides", ("", "a", "b"), tuple(_identity(a, b)), 3),
            Table(
                "Resources",
                ("resource", "a", "b", "change", ""),
                tuple((r["field"], r["a"], r["b"], r["change"], r["words"]) for r in resource_rows(document)),
                tones=tuple(r["tone"] for r in resource_rows(document)),
                words=(4,),
            ),
        ),
        tuple(document.get("notes") or ()),
    )


def _identity(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    return [
        ("kernel", str(a["kernel"]), str(b["kernel"])),
        ("target", str(a["arch"]), str(b["arch"])),
        ("ptxas", number(a.get("ptxas")), number(b.get("ptxas"))),
        ("file", f"{number(a['file_bytes'])} bytes", f"{number(b['file_bytes'])} bytes"),
        ("sha256", str(a["sha256"])[:16], str(b["sha256"])[:16]),
    ]


def _side(document: Mapping[str, Any], name: str) -> dict[str, str]:
    side = document[name]
    return {
        "name": name,
        "kernel": str(side["kernel"]),
        "arch": str(side["arch"]),
        "ptxas": number(side.get("ptxas")),
        "file": f"{number(side['file_bytes'])} bytes",
        "sha256": str(side["sha256"]),
    }


def resource_rows(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Each resource with what became of it, in words."""
    rows = []
    for item in document["resources"]:
        field, a, b = str(item["field"]), item["a"], item["b"]
        label = field.replace("_", " ").replace("min stack", "smallest stack")
        change, words, tone = _judged(field, a, b)
        rows.append(
            {
                "field": label,
                "unit": _UNITS.get(field, ""),
                "a": number(a),
                "b": number(b),
                "change": change,
                "words": words,
                "tone": tone,
            }
        )
    return rows


def _judged(field: str, a: Any, b: Any) -> tuple[str, str, Tone]:
    if a is None or b is None:
        return "", "" if a == b else "known on one side only", Tone.NEUTRAL
    if a == b:
        return "", "same", Tone.NEUTRAL
    if not (isinstance(a, int) and isinstance(b, int)):
        return "", "differs", Tone.CHANGED
    change = signed(b - a)
    if field not in WORSE_WHEN_GROWING:
        return change, "more" if b > a else "fewer", Tone.CHANGED
    relative = f", {percent_of(a, b)}" if a else ""
    return (change, f"worse{relative}", Tone.BAD) if b > a else (change, f"better{relative}", Tone.GOOD)


def _figures(document: Mapping[str, Any]) -> list[dict[str, str]]:
    """The numbers that stand in large type."""
    s = document["sass"]
    a, b = s["instructions"]["a"], s["instructions"]["b"]
    sizes = document["a"]["file_bytes"], document["b"]["file_bytes"]
    registers = next(((r["a"], r["b"]) for r in document["resources"] if r["field"] == "registers"), (None, None))
    stalls = s["stall_cycles"]
    return [
        {"label": "instructions", "value": both(a, b), "note": percent_of(a, b) if a != b else "same number"},
        {"label": "registers", "value": both(*registers), "note": _difference(*registers)},
        {"label": "moved", "value": number(s["moved"]), "note": f"{number(s['in_place'])} in place"},
        {"label": "only on one side", "value": f"{s['removed']:,} / {s['added']:,}", "note": "only in a / only in b"},
        {
            "label": "control fields changed",
            "value": number(s["control_changed"]),
            "note": f"stall cycles {percent_of(stalls['a'], stalls['b']) or 'not known'}, static",
        },
        {"label": "file", "value": f"{size(sizes[0])} → {size(sizes[1])}", "note": percent_of(*sizes)},
    ]


def _difference(a: int | None, b: int | None) -> str:
    return "" if a is None or b is None else "same" if a == b else signed(b - a)


def _layout(document: Mapping[str, Any]) -> dict[str, Any] | None:
    """Both files as bars on one scale, every byte in one place; None where the document does not say."""
    layouts = [document[side].get("layout") for side in ("a", "b")]
    if None in layouts:
        return None
    longest = max(document[side]["file_bytes"] for side in ("a", "b")) or 1
    bars = []
    sums: list[dict[str, int]] = []
    for name, layout in zip(("a", "b"), layouts, strict=True):
        total: dict[str, int] = {}
        for label, start, end in layout:
            total[label] = total.get(label, 0) + end - start
        sums.append(total)
        parts = [
            {
                "label": label,
                "bytes": end - start,
                "x": 100 * start / longest,
                "width": 100 * (end - start) / longest,
                "category": CATEGORIES.index(category(label)),
            }
            for label, start, end in layout
        ]
        bars.append({"name": name, "parts": parts, "bytes": sum(total.values())})
    labels = sorted({*sums[0], *sums[1]}, key=lambda x: -max(sums[0].get(x, 0), sums[1].get(x, 0)))
    rows = [
        {
            "label": x,
            "a": sums[0].get(x),
            "b": sums[1].get(x),
            "change": signed(sums[1].get(x, 0) - sums[0].get(x, 0)),
            "category": CATEGORIES.index(category(x)),
        }
        for x in labels
    ]
    totals = [sum(s.values()) for s in sums]
    return {
        "bars": bars,
        "rows": rows,
        "a": totals[0],
        "b": totals[1],
        "change": signed(totals[1] - totals[0]),
        "used": sorted({row["category"] for row in rows}),
    }


def _loops(document: Mapping[str, Any]) -> dict[str, Any]:
    pairs = document["sass"]["loops"]
    longest = max((pair[s]["instructions"] for pair in pairs for s in ("a", "b") if pair[s]), default=1) or 1
    shown = []
    for index, pair in enumerate(pairs[:_MOST_LOOPS]):
        sides = {name: None if pair[name] is None else _loop(pair[name], longest) for name in ("a", "b")}
        shown.append({"number": index + 1, **sides, "opcodes": _changed_opcodes(pair)})
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


def _changed_opcodes(pair: Mapping[str, Any], most: int = 8) -> list[str]:
    a, b = (pair[name]["opcodes"] if pair[name] else {} for name in ("a", "b"))
    changed = [(name, a.get(name, 0), b.get(name, 0)) for name in {**a, **b} if a.get(name, 0) != b.get(name, 0)]
    changed.sort(key=lambda item: (-abs(item[2] - item[1]), item[0]))
    rest = [f"and {len(changed) - most} more"] if len(changed) > most else []
    return [f"{name} {x:,} → {y:,}" for name, x, y in changed[:most]] + rest


def _opcodes(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Opcodes whose numbers differ, the largest differences first."""
    pairs = [(name, pair["a"], pair["b"]) for name, pair in document["sass"]["opcodes"].items()]
    changed = sorted((p for p in pairs if p[1] != p[2]), key=lambda p: (-abs(p[2] - p[1]), p[0]))
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


def _scheduler(document: Mapping[str, Any]) -> list[tuple[str, ...]]:
    s = document["scheduler"]
    words = {True: "taken", False: "not taken", None: "cannot tell"}
    return [
        ("ptxas's other scheduler", *(words[s["other_scheduler"][side]] for side in ("a", "b"))),
        ("its records in .nv.capmerc", *(number(s["capmerc_records"][side]) for side in ("a", "b"))),
        ("loops with its mark", *(number(s["rescheduled_loops"][side]) for side in ("a", "b"))),
        ("yield bits", *(number(document["sass"]["yield_bits"][side]) for side in ("a", "b"))),
        ("stall cycles, static", *(number(document["sass"]["stall_cycles"][side]) for side in ("a", "b"))),
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
    """`tritonhook ab FILE`: the diff of the pair of equal length, with the three builds beside it."""
    summary = names_summary(document)
    diff = document.get("diff")
    if diff is None:
        return Page(summary)
    inner = diff_page(diff)
    return Page(summary, "diff", {**inner.parts, "extra": summary.tables[:1]}, inner.data)


def names_summary(document: Mapping[str, Any]) -> Summary:
    builds = {name: document[name] for name in ("original", "renamed", "control")}
    ptxas = document["ptxas"]
    table = Table(
        f"Three names, ptxas {number(ptxas['version'])}",
        ("", "kernel", "codes in the runs", "file, bytes", ""),
        tuple(
            (
                name,
                str(build["kernel"]),
                number((document.get("codes_seen") or {}).get(name)),
                number(build["file_bytes"]),
                "" if build["crash"] is None else str(build["crash"]["summary"]),
            )
            for name, build in builds.items()
        ),
        2,
        words=(4,),
    )
    notes = [f"ptxas {number(ptxas['version'])}, {' '.join(ptxas['arguments'])}"]
    if document.get("runs"):
        notes.append(f"assembled {count(document['runs'], 'time')} under each name")
    neutral = document.get("control_is_neutral")
    if neutral is not None:
        notes.append(
            "the control name gives the code of the name without the trigger"
            if neutral
            else f"the control name changes the code too: {document.get('control_diff')}"
        )
    title = f"{short(builds['original']['kernel'])} under the name {short(builds['renamed']['kernel'])}"
    diff = document.get("diff")
    if diff is None:
        crashed = [name for name, build in builds.items() if build["crash"] is not None]
        verdict = f"ptxas crashes under the {' and the '.join(crashed)} name" if crashed else "nothing to compare"
        facts = tuple(str(builds[name]["crash"]["summary"]) for name in crashed)
        return Summary("Names", title, verdict, Tone.BAD, facts, (table,), tuple(notes))
    inner = diff_summary(diff)
    return Summary("Names", title, inner.verdict, inner.tone, inner.facts, (table, *inner.tables), tuple(notes))
