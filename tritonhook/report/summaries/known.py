"""The summary of known miscompilations in PTX."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tritonhook.report.format import count, number, sentence, short
from tritonhook.report.summary import Summary, Table, Tone

_TONES = {"wrong": Tone.BAD, "not known": Tone.UNSURE, "right": Tone.GOOD}


def known_summary(document: Mapping[str, Any]) -> Summary:
    """Show where known bugs are and what to do. The bugs of the ptxas in use come first."""
    places = sorted(document["places"], key=lambda place: list(_TONES).index(place["verdict"]))
    unread = [f"{one['module']}: not read: {one['reason']}" for one in document["unread"]]
    wrong, unsure = ([p for p in places if p["verdict"] == verdict] for verdict in ("wrong", "not known"))
    tone = Tone.BAD if wrong else Tone.UNSURE if unsure or unread else Tone.GOOD
    return Summary(
        "Known miscompilations",
        str(document["path"]),
        _verdict(len(wrong), len(unsure), len(places), len(unread), document["modules"]),
        tone,
        tuple(f"{p['bug']}: ptxas {p['does']}. {sentence(p['remedy'])}." for p in _one_a_bug(places)),
        (_table(places),) if places else (),
        (*unread, *document["notes"]),
    )


def _verdict(wrong: int, unsure: int, places: int, unread: int, modules: int) -> str:
    read = count(modules - unread, "module") + (f" of {modules:,}" if unread else "")
    if not places:
        return f"no pattern of a known bug of ptxas in {read}"
    parts = [f"ptxas is wrong at {wrong:,}"] * bool(wrong) + [f"not known at {unsure:,}"] * bool(unsure)
    found = f"{count(places, 'place')} in {read} with the pattern of a known bug"
    return f"{found}: {', '.join(parts) or 'the ptxas in use is right'}"


def _one_a_bug(places: list[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return list({place["bug"]: place for place in reversed(places)}.values())[::-1]


def _table(places: list[Mapping[str, Any]]) -> Table:
    rows = tuple(
        (
            place["bug"],
            short(str(place["module"])),
            short(str(place["function"])),
            number(place["line"]),
            str(place["target"] or "not known"),
            number(place["ptxas"]),
            place["verdict"],
        )
        for place in places
    )
    columns = ("bug", "module", "function", "line", "target", "ptxas", "this ptxas is")
    tones = tuple(_TONES[place["verdict"]] for place in places)
    return Table("Places", columns, rows, 3, tones, words=(4, 5, 6))
