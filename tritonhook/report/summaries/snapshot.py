"""Summaries of a lock, and of kernels before and after."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from tritonhook._util.demangle import function_name
from tritonhook.capture.model import front_end_name
from tritonhook.report.format import count, number
from tritonhook.report.summaries.captures import spills
from tritonhook.report.summary import Summary, Table, Tone

TITLES = {
    "spill_stores": "spill stores",
    "spill_loads": "spill loads",
    "stack": "stack",
    "registers": "registers",
    "shared": "shared",
    "instructions": "instructions",
    "loop_instructions": "in loops",
}
_LOCKED = {"stack": "stack", "shared": "shared", "instrs": "instructions", "in loops": "loop_instructions"}
_GROUPS = {"new": "New kernels", "gone": "Gone kernels", "not known": "Kernels whose machine code is not known"}
_SHOWN = ("changed", "not assembled")


def lock_summary(document: Mapping[str, Any]) -> Summary:
    """A row for each kernel of a lock. The document must fit its schema (report/schema)."""
    kernels, path = document["kernels"], str(document["path"])
    common = common_words(kernels)
    texts = {
        "ptxas": [number(kernel["ptxas"]) for kernel in kernels],
        "front end": [front_end_name(kernel["front_end"]) for kernel in kernels],
    }
    same = {name: found[0] for name, found in texts.items() if len(set(found)) == 1}
    columns = {"kernel": [kernel_name(kernel, common) for kernel in kernels]}
    columns |= {"regs": [number(kernel["registers"]) for kernel in kernels], "spills": list(map(spills, kernels))}
    columns |= {name: [number(kernel[field]) for kernel in kernels] for name, field in _LOCKED.items()}
    left = len(columns)
    columns |= {name: found for name, found in texts.items() if name not in same}
    title = "Kernels (stack, spill stores/loads, shared: bytes)"
    rows = tuple(zip(*columns.values(), strict=True))
    table = Table(title, tuple(columns), rows, words=tuple(range(left, len(columns))), one_line=True)
    return Summary(
        "Lock",
        path,
        f"{count(len(kernels), 'kernel')} locked",
        Tone.NEUTRAL,
        ("; ".join(f"{name}: {text}" for name, text in same.items()),) if same else (),
        (table,) if kernels else (),
        (f"`tritonhook check {path} CAPTURES` says what has changed since",),
    )


def changes_summary(document: Mapping[str, Any]) -> Summary:
    """The document must fit its schema (report/schema)."""
    kernels, counts = document["kernels"], document["counts"]
    shown = [kernel for kernel in kernels if kernel["status"] in _SHOWN]
    common = common_words(kernels)
    tables = [_table(shown, common)] if shown else []
    tables += [
        Table(_GROUPS[status], ("kernel",), tuple((kernel_name(kernel, common),) for kernel in found))
        for status in _GROUPS
        if (found := [kernel for kernel in kernels if kernel["status"] == status])
    ]
    return Summary(
        "Kernels before and after",
        f"{document['old']} → {document['new']}",
        *_verdict(counts, kernels),
        tuple(_facts(kernels, common)),
        tuple(tables),
        tuple(map(str, document["notes"])),
    )


def _verdict(counts: Mapping[str, int], kernels: Sequence[Mapping[str, Any]]) -> tuple[str, Tone]:
    total = count(len(kernels), "kernel")
    further = {"changed": f" ({counts['worse']:,} worse)"} if counts["worse"] else {}
    parts = [
        f"{counts[name]:,} {name}{further.get(name, '')}"
        for name in ("not assembled", "changed", "new", "gone", "not known")
        if counts.get(name)
    ]
    if not parts:
        return f"{total}, all with the same code", Tone.GOOD
    bad = counts["worse"] or counts["not assembled"] or any(kernel["fails"] for kernel in kernels)
    return f"{total}: {', '.join(parts)}", Tone.BAD if bad else Tone.CHANGED


def _facts(kernels: Sequence[Mapping[str, Any]], common: Mapping[str, frozenset[str]]) -> list[str]:
    """Who changed how many kernels, and what breaks the rules of --fail-on."""
    by = Counter((kernel["status"], kernel["by"]) for kernel in kernels if kernel["by"])
    facts = [
        f"{count(times, 'kernel')} {'not assembled: ' if status == 'not assembled' else 'changed by '}{who}"
        for (status, who), times in by.most_common()
    ]
    if same := sum(kernel["code_changed"] and _has_equal_figures(kernel) for kernel in kernels):
        facts.append(f"{count(same, 'kernel')} with other code, but equal figures")
    return facts + [
        f"fails: {kernel_name(k, common)}: {', '.join(map(str, k['fails']))}" for k in kernels if k["fails"]
    ]


def _table(kernels: Sequence[Mapping[str, Any]], common: Mapping[str, frozenset[str]]) -> Table:
    """One row for each changed kernel; a column for each figure that changes in one of them."""
    names = [name for name in TITLES if any(_differs(kernel, name) for kernel in kernels)]
    blocks = any(len(set(kernel["blocks_by_registers"] or ())) > 1 for kernel in kernels)
    bounds = any(_bounds(kernel) for kernel in kernels)
    further = (*(("blocks/SM",) if blocks else ()), *(("launch bounds",) if bounds else ()), "changed by")
    columns = ("kernel", *(TITLES[name] for name in names), *further)
    rows = []
    for kernel in kernels:
        figures = [_pair(*((kernel[side] or {}).get(name) for side in ("old", "new"))) for name in names]
        fits = [_pair(*(kernel["blocks_by_registers"] or (None, None)))] if blocks else []
        fits += [_bounds(kernel)] if bounds else []
        rows.append((kernel_name(kernel, common), *figures, *fits, str(kernel["by"] or "the same code")))
    tones = tuple(Tone.BAD if k["worse"] or k["status"] != "changed" else Tone.CHANGED for k in kernels)
    words = tuple(range(len(columns) - 1 - bounds, len(columns)))
    return Table("Changed kernels, the worst first", columns, tuple(rows), tones=tones, words=words)


def _bounds(kernel: Mapping[str, Any]) -> str:
    """The launch bounds of both sides; "" where they are equal, or a side is not known."""
    sides = [kernel[side] for side in ("old", "new")]
    if None in sides or not all(side["codes"] for side in sides):
        return ""
    a, b = (set(side["launch_bounds"]) for side in sides)
    if a == b:
        return ""
    return " → ".join(", ".join(sorted(own)) or "none" for own in (a - b, b - a))


def _differs(kernel: Mapping[str, Any], name: str) -> bool:
    a, b = ((kernel[side] or {}).get(name) for side in ("old", "new"))
    return a != b and None not in (a, b)


def _has_equal_figures(kernel: Mapping[str, Any]) -> bool:
    """Whether all figures are known and equal on both sides."""
    old, new = ({name: (kernel[side] or {}).get(name) for name in TITLES} for side in ("old", "new"))
    return old == new and None not in old.values()


def _pair(a: int | None, b: int | None) -> str:
    shown = ["not known" if value is None else number(value) for value in (a, b)]
    return shown[0] if shown[0] == shown[1] else f"{shown[0]} → {shown[1]}"


def common_words(kernels: Sequence[Mapping[str, Any]]) -> dict[str, frozenset[str]]:
    """By kernel name: what the specialisations of all kernels of this name have in common. It tells no rows apart."""
    common: dict[str, frozenset[str]] = {}
    for kernel in kernels:
        name, own = str(kernel["kernel"]), frozenset(map(str, kernel["specialisation"]))
        common[name] = common.get(name, own) & own
    return common


def kernel_name(kernel: Mapping[str, Any], common: Mapping[str, frozenset[str]]) -> str:
    own = [text for text in map(str, kernel["specialisation"]) if text not in common[str(kernel["kernel"])]]
    further = [] if kernel["number"] == 1 else [f"#{kernel['number']}"]
    return " ".join([function_name(str(kernel["kernel"])), str(kernel["arch"]), *own, *further])
