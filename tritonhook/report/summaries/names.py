"""The Summary of one kernel under two names: does the name change its code?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tritonhook.report.format import count, number, short
from tritonhook.report.summaries.diff import diff_summary
from tritonhook.report.summary import Summary, Table, Tone

_BUILDS = ("original", "renamed", "control")


def names_summary(document: Mapping[str, Any]) -> Summary:
    """The document must fit its schema (report/schema)."""
    builds = {name: document[name] for name in _BUILDS}
    title = f"{short(builds['original']['kernel'])} under the name {short(builds['renamed']['kernel'])}"
    crashed = {name: build["crash"] for name, build in builds.items() if build["crash"] is not None}
    facts = [f"under the name {builds[name]['kernel']}: {crash['summary']}" for name, crash in crashed.items()]
    notes = [*_notes(document), *(f"repeat the crash with: {crash['command']}" for crash in crashed.values())]
    table, diff = _builds(document), document["diff"]
    if diff is None:
        under = " and the ".join(crashed)
        verdict = f"ptxas crashes under the {under} name" if crashed else "nothing to compare"
        return Summary("Names", title, verdict, Tone.BAD, tuple(facts), (table,), tuple(notes))
    inner = diff_summary(diff)
    same = inner.verdict == "same code"
    if same and document["control_is_neutral"] is False:
        return _any_name(document, title, table, inner, notes)
    facts.append("the name changes nothing in the code" if same else "the name changes the code")
    if max(document["codes_seen"].values()) > 1:
        facts.append(_draws(document, same))
    facts += inner.facts
    return Summary("Names", title, inner.verdict, inner.tone, tuple(facts), (table, *inner.tables), tuple(notes))


def _any_name(document: Mapping[str, Any], title: str, table: Table, inner: Summary, notes: Sequence[str]) -> Summary:
    """The two names of equal length have one code, and the third name has another."""
    diff = document["diff"]
    pair = [str(diff[side]["kernel"]) for side in "ab"]
    (other,) = (str(document[name]["kernel"]) for name in _BUILDS if document[name]["kernel"] not in pair)
    facts = (f"the names {' and '.join(pair)} have one code, and {other} has another: {document['control_diff']}",)
    verdict = "other code under another name, with or without the trigger"
    return Summary("Names", title, verdict, Tone.UNSURE, facts, (table, *inner.tables), tuple(notes))


def _builds(document: Mapping[str, Any]) -> Table:
    rows = tuple(
        (
            name,
            str(document[name]["kernel"]),
            number(document["codes_seen"][name]),
            number(document[name]["file_bytes"]),
            "" if document[name]["crash"] is None else str(document[name]["crash"]["summary"]),
        )
        for name in _BUILDS
    )
    columns = ("", "kernel", "codes in the runs", "file, bytes", "")
    return Table(f"Three names, ptxas {number(document['ptxas']['version'])}", columns, rows, 2, words=(4,))


def _notes(document: Mapping[str, Any]) -> list[str]:
    ptxas = document["ptxas"]
    notes = [f"ptxas {number(ptxas['version'])}, {' '.join(ptxas['arguments'])}"]
    if document["runs"]:
        notes.append(f"assembled {count(document['runs'], 'time')} under each name")
    neutral, control = document["control_is_neutral"], document["control"]["kernel"]
    if neutral is None:
        notes.append(f"control {control}: not assembled, so that the effect of the name alone is not known")
    elif neutral:
        notes.append(f"control {control}: the code of the name without the trigger, byte for byte")
    else:
        notes.append(f"control {control}: ptxas gives this ordinary name other code too: {document['control_diff']}")
    return notes


def _draws(document: Mapping[str, Any], same: bool) -> str:
    seen = ", ".join(f"{n} for {document[name]['kernel']}" for name, n in document["codes_seen"].items())
    found = "one of them common to all" if same else "none of them common to all; the nearest are compared"
    return f"ptxas is not deterministic on this kernel: {document['runs']} runs gave codes: {seen}; {found}"
