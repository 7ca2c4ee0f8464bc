"""The page of a sweep: which names change which kernels, under which ptxas, as a heat map whose cells open.

From `tritonhook probe --json`, and from the condensed matrix that benchmarks/name_trigger.py keeps.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tritonhook.report.code import read_code
from tritonhook.report.pages.common import Page, Summary, Table, Tone, count, number
from tritonhook.report.pages.listing import sass_listing

SIGNS = ("X", "D", "~", ".", "-")  # the gravest first
WORDS = {
    "X": "ptxas crashes under the name only",
    "D": "the name changes the code",
    "~": "ptxas is unsteady",
    ".": "same",
    "-": "does not assemble",
    "": "not asked",
}
_CLASS = {"X": "crash", "D": "changed", "~": "unsteady", ".": "same", "-": "none", "": "absent"}
_CRASHES = ("crash", "timeout", "memory")
_MEASURES = (
    "code_bytes",
    "registers",
    "stack",
    "spill_stores",
    "spill_loads",
    "shared",
    "capmerc_records",
    "file_bytes",
)
_QUIET = ("-v", "-lineinfo")
# Of a cell, as the page's script has it.
_COLUMNS = (
    "ptxas",
    "template",
    "sign",
    "names",
    "differences",
    "draws",
    "scheduler",
    "measures",
    "messages",
    "sections",
    "code",
)


def sweep_page(document: Mapping[str, Any]) -> Page:
    """Raises KeyError, TypeError or ValueError where the document is none."""
    return _page(sweep_summary(document), list(_probed(document)), document.get("codes") or {})


def sweep_summary(document: Mapping[str, Any]) -> Summary:
    cells = list(_probed(document))
    return _summary(cells, "Sweep", document["summary"], ())


def matrix_page(document: Mapping[str, Any]) -> Page:
    """Of benchmarks/results/name_trigger.json: under one name, kernels by ptxas."""
    return _page(matrix_summary(document), list(_condensed(document)), {})


def matrix_summary(document: Mapping[str, Any]) -> Summary:
    summary = document["summary"]
    notes = tuple(
        f"{text}: in {count(len(places), 'place')}" for text, places in (document.get("triggers") or {}).items()
    )
    shown = f"shown below are the cells of {document['names'][0]}; {summary['cells']:,} were asked, over all names"
    tables: tuple[Table, ...] = ()
    if by_name := document.get("by_name"):
        rows = tuple((name, f"{changed:,}", f"{asked:,}") for name, (changed, asked) in by_name.items())
        tables = (Table("Names (* is the kernel's own)", ("name", "changed", "compared"), rows),)
    base = _summary(list(_condensed(document)), "Sweep", summary, tables)
    facts, notes = (*base.facts, shown), (*base.notes, *notes)
    return Summary(base.what, base.subject, base.verdict, base.tone, facts, base.tables, notes)


def _summary(
    cells: Sequence[Mapping[str, Any]], what: str, summary: Mapping[str, Any], tables: tuple[Table, ...]
) -> Summary:
    compared = summary["cells"] - summary.get(
        "cells_without_answer", summary["cells"] - summary.get("cells_compared", 0)
    )
    changed, crashes = summary["cells_changed"], summary["crashes"]
    if not compared:
        verdict, tone = "nothing could be compared", Tone.UNSURE
    elif changed:
        verdict, tone = f"the name changes {count(changed, 'cell')} of {compared:,}", Tone.CHANGED
    else:
        verdict, tone = f"no name changes any of {count(compared, 'cell')}", Tone.GOOD
    facts = []
    if crashes:
        tone = Tone.BAD
        facts.append(f"ptxas crashes in {count(crashes, 'cell')} under the name only")
    if summary.get("cells_unsteady"):
        facts.append(f"{count(summary['cells_unsteady'], 'cell')} unsteady: the same name has several codes there")
    kernels, versions = ({cell[key] for cell in cells} for key in ("kernel", "ptxas"))
    subject = f"{count(len(kernels), 'kernel')}, {count(len(versions), 'ptxas version')}"
    return Summary(what, subject, verdict, tone, tuple(facts), (*_name_table(cells), *tables))


def _name_table(cells: Sequence[Mapping[str, Any]]) -> tuple[Table, ...]:
    templates = list(dict.fromkeys(cell["template"] for cell in cells))
    if len(templates) < 2:
        return ()
    counts = Counter((cell["template"], cell["sign"]) for cell in cells)
    order = sorted(templates, key=lambda name: -(counts[name, "D"] + counts[name, "X"]))
    rows = tuple((name, *(f"{counts[name, sign]:,}" for sign in SIGNS)) for name in order)
    return (
        Table("Names (* is the kernel's own)", ("name", "crash", "changed", "unsteady", "same", "no answer"), rows),
    )


def _probed(document: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for cell in document["cells"]:
        crash = cell["verdict"] == "changed" and cell["differences"][:1] and cell["differences"][0] in _CRASHES
        verdicts = {"changed": "D", "unsteady": "~", "same": ".", "no answer": "-"}
        yield {
            "kernel": str(cell["kernel"]),
            "arch": str(cell["arch"]),
            "ptxas": str(cell["ptxas"]),
            "options": " ".join(o for o in cell["options"] if o not in _QUIET),
            "template": str(cell["template"]),
            "sign": "X" if crash else verdicts[cell["verdict"]],
            "names": [cell["control"], cell["name"]],
            "differences": list(cell["differences"]),
            "draws": cell["draws"],
            "scheduler": [cell["other_scheduler"]["control"], cell["other_scheduler"]["name"]],
            "measures": _measures(cell["with_control"], cell["with_name"]),
            "messages": [_message(cell["with_control"]), _message(cell["with_name"])],
            "sections": [[role, *sizes] for role, sizes in cell["sections_changed"].items()],
            "code": cell.get("code"),
        }


def _message(outcome: Mapping[str, Any]) -> str:
    words = [str(outcome[key]) for key in ("signal", "message") if outcome.get(key)]
    return ": ".join([outcome["kind"], *words]) if words or outcome["kind"] != "assembled" else ""


def _measures(control: Mapping[str, Any], named: Mapping[str, Any]) -> list[list[Any]]:
    return [
        [key.replace("_", " "), control.get(key), named.get(key)] for key in _MEASURES if key in control or key in named
    ]


def _condensed(document: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for place, by_version in document["samples"].items():
        kernel, _, arch = place.rpartition(" ")
        for version, values in by_version.items():
            sign, differences, taken, pairs = (*values, *[None] * 3)[:4]
            yield {
                "kernel": kernel,
                "arch": arch,
                "ptxas": version,
                "options": "",
                "template": str(document["names"][0]),
                "sign": sign,
                "names": None,
                "differences": differences or [],
                "draws": None,
                "scheduler": [None, taken],
                "measures": [
                    [key.replace("_", " "), *pair] for key, pair in (pairs or {}).items() if pair != [None, None]
                ],
                "messages": ["", ""],
                "sections": [],
                "code": None,
            }


def _version_key(version: str) -> tuple[int, ...]:
    return tuple(int(part) if part.isdigit() else -1 for part in version.split("."))


def _page(summary: Summary, cells: list[dict[str, Any]], codes: Mapping[str, Any]) -> Page:
    versions = sorted({cell["ptxas"] for cell in cells}, key=_version_key)
    templates = list(dict.fromkeys(cell["template"] for cell in cells))
    telling = [t for t in templates if any(c["template"] == t and c["sign"] in "XD" for c in cells)]
    rows: dict[tuple[str, str, str], dict[str, list[int]]] = {}
    for index, cell in enumerate(cells):
        by_version = rows.setdefault((cell["kernel"], cell["arch"], cell["options"]), {})
        by_version.setdefault(cell["ptxas"], []).append(index)
    shown = []
    for key, by_version in rows.items():
        signs = [_gravest([cells[i]["sign"] for i in by_version.get(version, ())]) for version in versions]
        shown.append(
            {
                "kernel": key[0],
                "arch": key[1],
                "options": key[2],
                "cells": [
                    {"sign": sign, "class": _CLASS[sign], "cells": by_version.get(version, [])}
                    for sign, version in zip(signs, versions, strict=True)
                ],
            }
        )
    parts = {
        "versions": versions,
        "rows": shown,
        "with_options": any(row["options"] for row in shown),
        "templates": telling if len(templates) > 1 else [],
        "figures": _figures(cells),
        "legend": [(sign, WORDS[sign], _CLASS[sign]) for sign in SIGNS if any(c["sign"] == sign for c in cells)],
        "what": _what(cells),
    }
    data = {
        "sweep": {
            "columns": list(_COLUMNS),
            "cells": [_compact(cell) for cell in cells],
            "words": WORDS,
            "classes": _CLASS,
            "signs": list(SIGNS),
            "listings": {key: _listing(pair) for key, pair in codes.items()},
        }
    }
    return Page(summary, "sweep", parts, data)


def _gravest(signs: Sequence[str]) -> str:
    return next((sign for sign in SIGNS if sign in signs), "")


def _compact(cell: Mapping[str, Any]) -> list[Any]:
    return [cell[key] for key in _COLUMNS]


def _listing(pair: Mapping[str, Any]) -> dict[str, Any]:
    a, b = read_code(pair["a"]), read_code(pair["b"])
    return {"id": "sass", "title": "SASS", "kind": "sass", **sass_listing(a, b, pair.get("loops") or [])}


def _figures(cells: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    signs = Counter(cell["sign"] for cell in cells)
    compared = len(cells) - signs["-"]
    changed = signs["D"] + signs["X"]
    taken = sum(cell["scheduler"][1] is True for cell in cells)
    return [
        {"label": "cells shown", "value": number(len(cells)), "note": f"{compared:,} compared"},
        {
            "label": "changed",
            "value": number(changed),
            "note": f"{100 * changed / compared:.0f}% of those compared" if compared else "",
        },
        {"label": "crash under the name only", "value": number(signs["X"]), "note": "timeouts and memory too"},
        {"label": "ptxas's other scheduler", "value": number(taken), "note": "seen under the name"},
        {"label": "do not assemble", "value": number(signs["-"]), "note": "whatever the name"},
    ]


def _what(cells: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """What differs in changed cells, and how often registers grow or shrink."""
    changed = [cell for cell in cells if cell["sign"] in "DX"]
    counts = Counter(name for cell in changed for name in cell["differences"])
    most = max(counts.values(), default=1)
    return [{"name": name, "count": n, "share": 100 * n / most} for name, n in counts.most_common()]
