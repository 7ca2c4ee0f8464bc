"""The page of a sweep: a heat map of kernels by ptxas, whose cells open."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from tritonhook._util.versions import version_key
from tritonhook.report.format import number
from tritonhook.report.pages.listing import sass_listing
from tritonhook.report.results.cells import MEANINGS, SIGNS, Shown, differences, gravest, names_tables
from tritonhook.report.results.probe import CellCode, NameTrigger, Probe
from tritonhook.report.summary import Figure, Page, Summary, Table

_CLASS = {"X": "crash", "D": "changed", "~": "unsteady", ".": "same", "-": "none", "": "absent"}
# The fields of a cell that the page's script reads, in its order.
_COLUMNS = (
    *("ptxas", "template", "sign", "names", "differences", "draws", "scheduler"),
    *("measures", "messages", "sections", "code"),
)


def probe_page(result: Probe) -> Page:
    cells = result.shown()
    return _page(result.summary(), cells, result.codes or {}, names_tables(cells))


def name_trigger_page(result: NameTrigger) -> Page:
    summary = result.summary()
    return _page(summary, result.shown(), {}, summary.tables)


def _page(summary: Summary, cells: Sequence[Shown], codes: Mapping[str, CellCode], tables: tuple[Table, ...]) -> Page:
    versions = sorted({cell.ptxas for cell in cells}, key=version_key)
    templates = list(dict.fromkeys(cell.template for cell in cells))
    telling = [t for t in templates if any(c.template == t and c.sign in "XD" for c in cells)]
    rows = _rows(cells, versions)
    parts = {
        "versions": versions,
        "rows": rows,
        "with_options": any(row["options"] for row in rows),
        "templates": telling if len(templates) > 1 else [],
        "figures": _figures(cells),
        "legend": [(sign, MEANINGS[sign], _CLASS[sign]) for sign in SIGNS if any(c.sign == sign for c in cells)],
        "what": _what(cells),
        "tables": tables,
    }
    data = {
        "sweep": {
            "columns": list(_COLUMNS),
            "cells": [_compact(cell) for cell in cells],
            "words": MEANINGS,
            "classes": _CLASS,
            "signs": list(SIGNS),
            "listings": {key: _listing(pair) for key, pair in codes.items()},
        }
    }
    return Page(summary, "probe", parts, data)


def _rows(cells: Sequence[Shown], versions: Sequence[str]) -> list[dict[str, Any]]:
    """A row for each kernel, target and options; for each ptxas the gravest sign, and the cells behind it."""
    rows: dict[tuple[str, str, str], dict[str, list[int]]] = {}
    for index, cell in enumerate(cells):
        by_version = rows.setdefault((cell.kernel, cell.arch, cell.options), {})
        by_version.setdefault(cell.ptxas, []).append(index)
    return [
        {
            "kernel": kernel,
            "arch": arch,
            "options": options,
            "cells": [_button(cells, by_version.get(version, [])) for version in versions],
        }
        for (kernel, arch, options), by_version in rows.items()
    ]


def _button(cells: Sequence[Shown], chosen: Sequence[int]) -> dict[str, Any]:
    sign = gravest([cells[i].sign for i in chosen])
    return {"sign": sign, "class": _CLASS[sign], "cells": chosen}


def _compact(cell: Shown) -> list[Any]:
    return [getattr(cell, name) for name in _COLUMNS]


def _listing(code: CellCode) -> dict[str, Any]:
    return {"id": "sass", "title": "SASS", "kind": "sass", **sass_listing(code.a, code.b, code.loops)}


def _figures(cells: Sequence[Shown]) -> list[Figure]:
    signs = Counter(cell.sign for cell in cells)
    compared = len(cells) - signs["-"]
    changed = signs["D"] + signs["X"]
    taken = sum(cell.scheduler[1] is True for cell in cells)
    return [
        Figure("cells shown", number(len(cells)), f"{compared:,} compared"),
        Figure("changed", number(changed), f"{100 * changed / compared:.0f}% of those compared" if compared else ""),
        Figure("crash under the name only", number(signs["X"]), "timeouts and memory too"),
        Figure("ptxas's other scheduler", number(taken), "seen under the name"),
        Figure("do not assemble", number(signs["-"]), "under any name"),
    ]


def _what(cells: Sequence[Shown]) -> list[dict[str, Any]]:
    """What differs in changed cells, with the width of a bar."""
    changed = differences(cells)
    most = max((n for _, n in changed), default=1)
    return [{"name": name, "count": n, "share": 100 * n / most} for name, n in changed]
