"""The Summary of kernels before and after."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from tritonhook._util.demangle import function_name
from tritonhook.report.format import count, number
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
_GROUPS = {"new": "New kernels", "gone": "Gone kernels", "not known": "Kernels whose machine code is not known"}
_SHOWN = ("changed", "not assembled")


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
    parts = [f"{counts['worse']:,} worse"] if counts["worse"] else []
    parts += [
        f"{counts[name]:,} {name}"
        for name in ("not assembled", "changed", "new", "gone", "not known")
        if counts.get(name)
    ]
    if not parts:
        return f"{total}, all with the same code", Tone.GOOD
    bad = counts["worse"] or counts["not assembled"] or any(kernel["fails"] for kernel in kernels)
    return f"{total}: {', '.join(parts)}", Tone.BAD if bad else Tone.CHANGED


def _facts(kernels: Sequence[Mapping[str, Any]], common: Mapping[str, frozenset[str]]) -> list[str]:
    """Who changed how many kernels, and what breaks the rules of --fail-on."""
    by = Counter(kernel["by"] for kernel in kernels if kernel["by"])
    facts = [f"{count(times, 'kernel')} changed by {who}" for who, times in by.most_common()]
    return facts + [
        f"fails: {kernel_name(k, common)}: {', '.join(map(str, k['fails']))}" for k in kernels if k["fails"]
    ]


def _table(kernels: Sequence[Mapping[str, Any]], common: Mapping[str, frozenset[str]]) -> Table:
    """One row for each changed kernel; a column for each figure that changes in one of them."""
    names = [name for name in TITLES if any(_differs(kernel, name) for kernel in kernels)]
    blocks = any(len(set(kernel["blocks_by_registers"] or ())) > 1 for kernel in kernels)
    columns = ("kernel", *(TITLES[name] for name in names), *(("blocks/SM",) if blocks else ()), "changed by")
    rows = []
    for kernel in kernels:
        figures = [_pair(*((kernel[side] or {}).get(name) for side in ("old", "new"))) for name in names]
        fits = [_pair(*(kernel["blocks_by_registers"] or (None, None)))] if blocks else []
        rows.append((kernel_name(kernel, common), *figures, *fits, str(kernel["by"] or "the same code")))
    tones = tuple(Tone.BAD if k["worse"] or k["status"] != "changed" else Tone.CHANGED for k in kernels)
    return Table("Changed kernels, the worst first", columns, tuple(rows), tones=tones, words=(len(columns) - 1,))


def _differs(kernel: Mapping[str, Any], name: str) -> bool:
    a, b = ((kernel[side] or {}).get(name) for side in ("old", "new"))
    return a != b and None not in (a, b)


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
