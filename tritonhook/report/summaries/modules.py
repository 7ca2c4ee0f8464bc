"""The Summary of a diff of two modules: the kernels whose code differs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tritonhook.compare.diff import WORSE_WHEN_GROWING
from tritonhook.report.format import both, count, number, short
from tritonhook.report.summary import Summary, Table, Tone

_MOST_KERNELS = 50
_CODE = {"different code": "different", "only scheduling differs": "scheduling"}
_COLUMNS = {"registers": "registers", "stack": "stack", "spill_stores": "spill stores", "code_bytes": "code, bytes"}


def modules_summary(document: Mapping[str, Any]) -> Summary:
    """The document must fit its schema (report/schema)."""
    kernels = document["kernels"]
    changed = [kernel for kernel in kernels if kernel["verdict"] != "same code"]
    facts = [_only(document[f"only_{side}"], side) for side in "ab" if document[f"only_{side}"]]
    if same := len(kernels) - len(changed):
        facts.insert(0, f"{count(same, 'kernel')} with the same code")
    verdict = (
        "same code"
        if document["same_code"]
        else f"the code of {len(changed):,} of {count(len(kernels), 'kernel')} differs"
    )
    tone = Tone.BAD if any(map(_worse, changed)) else Tone.GOOD if document["same_code"] else Tone.CHANGED
    tables = [Table("Sides", ("", "a", "b"), _sides(document), 3)]
    if changed:
        tables.append(_kernels(changed))
    return Summary(
        "Diff of modules", "", verdict, tone, tuple(facts), tuple(tables), tuple(document.get("notes") or ())
    )


def _only(names: list[str], side: str) -> str:
    more = f" and {len(names) - 3:,} more" if len(names) > 3 else ""
    return f"{count(len(names), 'kernel')} only in {side}: {', '.join(map(short, names[:3]))}{more}"


def _sides(document: Mapping[str, Any]) -> tuple[tuple[str, str, str], ...]:
    rows = {"kernels": "kernels", "arch": "target", "ptxas": "ptxas", "file_bytes": "file, bytes"}
    a, b = document["a"], document["b"]
    return tuple((label, number(a[field]), number(b[field])) for field, label in rows.items())


def _kernels(changed: list[Mapping[str, Any]]) -> Table:
    """A row for each kernel that differs: those with other instructions first, then those whose code grew most."""
    ordered = sorted(changed, key=lambda k: (k["verdict"] != "different code", -_growth(k), str(k["a"])))
    shown = ordered[:_MOST_KERNELS]
    title = f"Kernels whose code differs ({len(changed):,})"
    if len(changed) > len(shown):
        title += f", the first {len(shown)}; --json has all"
    columns = ("kernel", "in b", "code", *_COLUMNS.values())
    rows = tuple(
        (
            short(k["a"]),
            short(k["b"]) if k["b"] != k["a"] else "",
            _CODE[str(k["verdict"])],
            *(both(k["resources"][field]["a"], k["resources"][field]["b"]) for field in _COLUMNS),
        )
        for k in shown
    )
    return Table(title, columns, rows, 3, tuple(Tone.BAD if _worse(k) else Tone.NEUTRAL for k in shown), one_line=True)


def _growth(kernel: Mapping[str, Any]) -> int:
    size = kernel["resources"]["code_bytes"]
    return abs(int(size["b"]) - int(size["a"]))


def _worse(kernel: Mapping[str, Any]) -> bool:
    pairs = (kernel["resources"].get(field, {}) for field in WORSE_WHEN_GROWING)
    return any(None not in (pair.get("a"), pair.get("b")) and pair["b"] > pair["a"] for pair in pairs if pair)
