"""Pages that are tables only: the published table, capabilities, minimal triggers, the demo."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from tritonhook.report.pages.common import Page, Summary, Table, Tone, count, number


def published_summary(document: Mapping[str, Any]) -> Summary:
    """`tritonhook table --json`."""
    rows = []
    for row in document["rows"]:
        published = row["published"] or {}
        code = row["failure"] or {True: "changed", False: "same", None: "not known"}[row["code_changed"]]
        values = (
            published.get("size"),
            row["size_ratio"],
            row["size_ratio_equal_length"],
            published.get("capmerc"),
            row["capmerc_ratio"],
        )
        rows.append((str(row["condition"]), *("-" if v is None else f"{v:.2f}" for v in values), str(code)))
    columns = (
        "condition",
        "size, published",
        "size",
        "size, equal name length",
        "capmerc, published",
        "capmerc",
        "code",
    )
    changed = sum(bool(row["code_changed"]) for row in document["rows"])
    table = Table(f"With cutlass in the name over without, ptxas {document['ptxas']}", columns, tuple(rows), words=(6,))
    notes = tuple(f"{row['condition']}: {row['note']}" for row in document["rows"] if row.get("note"))
    verdict = f"the name changes the code in {changed} of {count(len(rows), 'condition')}"
    return Summary(
        "Published table",
        f"ptxas {document['ptxas']}",
        verdict,
        Tone.CHANGED if changed else Tone.GOOD,
        (),
        (table,),
        notes,
    )


def triggers_summary(document: Mapping[str, Any]) -> Summary:
    """`tritonhook probe --minimise --json`."""
    found = document["triggers"]
    rows = tuple(
        (
            str(t["kernel"]),
            str(t["arch"]),
            str(t["ptxas"]),
            str(t["sentence"]) if t["trigger"] is not None else f"{document['name']} changes nothing",
            number(t.get("names_tried")),
        )
        for t in found
    )
    words = Counter(t["trigger"] for t in found if t["trigger"] is not None)
    verdict = ", ".join(f"`{word}` is enough" for word in words) or "the name changes nothing"
    notes = (f"no answer in {count(len(document['without_answer']), 'place')}",) if document["without_answer"] else ()
    table = Table("Places", ("kernel", "target", "ptxas", "what it takes", "names tried"), rows, 4)
    return Summary(
        "Minimal trigger", str(document["name"]), verdict, Tone.CHANGED if words else Tone.GOOD, (), (table,), notes
    )


_SIGNS = {"inline": "●", "syscall": "S", "emulated": "E", "rejected": "-", "unknown PTX version": "?", "crashed": "X"}
_CLASSES = {"inline": "inline", "syscall": "crash", "emulated": "unsteady", "crashed": "crash"}


def capabilities_summary(document: Mapping[str, Any]) -> Summary:
    """`tritonhook caps --json`: of the newest ptxas, what stands where."""
    outcomes = document["outcomes"]
    version, part = list(document["ptxas"].items())[-1]
    archs = tuple(map(str, part["archs"]))
    rows = tuple(
        (probe, *(str(outcomes[str(n)][0]).replace("unknown PTX version", "?") for n in numbers))
        for probe, numbers in part["cells"].items()
    )
    table = Table(f"ptxas {version}, PTX {part['ptx_version']}", ("instruction", *archs), rows, 1 + len(archs))
    counts = Counter(str(outcomes[str(n)][0]) for row in part["cells"].values() for n in row)
    facts = (", ".join(f"{n:,} {status}" for status, n in counts.most_common()),)
    verdict = f"{count(len(rows), 'instruction')} on {count(len(archs), 'architecture')}"
    subject = f"ptxas {', '.join(document['ptxas'])}"
    return Summary("Capabilities", subject, verdict, Tone.NEUTRAL, facts, (table,), (str(document["evidence"]),))


def capabilities_page(document: Mapping[str, Any]) -> Page:
    """Every ptxas, the newest first."""
    outcomes = {str(number): outcome for number, outcome in document["outcomes"].items()}
    matrices = [
        {
            "title": f"ptxas {version}, PTX {part['ptx_version']}",
            "archs": list(map(str, part["archs"])),
            "rows": [
                _capability(probe, [outcomes[str(n)] for n in row], part["archs"])
                for probe, row in part["cells"].items()
            ],
        }
        for version, part in reversed(list(document["ptxas"].items()))
    ]
    legend = [(sign, status, _CLASSES.get(status, "none")) for status, sign in _SIGNS.items()]
    return Page(capabilities_summary(document), "capabilities", {"matrices": matrices, "legend": legend})


def _capability(probe: str, row: list[list[Any]], archs: list[str]) -> dict[str, Any]:
    opcodes = Counter(str(opcode) for status, opcode, _ in row if status == "inline" and opcode)
    return {
        "probe": probe,
        "opcode": next(iter(dict(opcodes.most_common(1))), ""),
        "cells": [
            {
                "sign": _SIGNS.get(status, "?"),
                "class": _CLASSES.get(status, "none"),
                "text": ": ".join(filter(None, (f"{arch} {status}", opcode, reason.replace("{arch}", arch)))),
            }
            for arch, (status, opcode, reason) in zip(archs, row, strict=True)
        ],
    }
