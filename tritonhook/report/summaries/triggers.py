"""The Summary of a search for the part of a name that changes the code."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from tritonhook.report.format import number
from tritonhook.report.summaries.probe import no_answers, telling_options
from tritonhook.report.summary import Summary, Table, Tone


def triggers_summary(document: Mapping[str, Any]) -> Summary:
    """The document must fit its schema (report/schema)."""
    found = document["triggers"]
    rows = tuple(
        (
            str(t["kernel"]),
            str(t["arch"]),
            str(t["ptxas"]),
            telling_options(t["options"]),
            str(t["sentence"]) if t["trigger"] is not None else f"{document['name']} changes nothing",
            _elsewhere(t),
            number(t["names_tried"]) if t["trigger"] is not None else "",
        )
        for t in found
    )
    triggers = Counter(t["trigger"] for t in found if t["trigger"] is not None)
    if triggers:
        verdict, tone = ", ".join(f"`{trigger}` is enough" for trigger in triggers), Tone.CHANGED
    elif found:
        verdict, tone = "the name changes nothing", Tone.GOOD
    else:
        verdict, tone = "nothing could be compared", Tone.UNSURE
    columns = ("kernel", "target", "ptxas", "options", "what it takes", "elsewhere in the name", "names tried")
    tables = (Table("Places", columns, rows, 6),) if rows else ()
    notes = no_answers(document["without_answer"])
    return Summary("Minimal trigger", str(document["name"]), verdict, tone, (), tables, notes)


def _elsewhere(found: Mapping[str, Any]) -> str:
    """Where else in a name the trigger was tried; empty if it works everywhere."""
    places = found.get("places", {})
    if all(places.values()):
        return ""
    return ", ".join(f"{place}: {number(works)}" for place, works in places.items())
