"""The Summary of a tuning."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tritonhook.report.format import count, grouped, number
from tritonhook.report.summaries.captures import spills
from tritonhook.report.summary import Summary, Table, Tone

_TONES = {"WIN": Tone.GOOD, "LEAVE IT": Tone.NEUTRAL, "ASSEMBLED": Tone.NEUTRAL}
_MOST_CODES = 100
_CODE_COLUMNS = ("kernel", "lever", "regs", "spills", "stack")
_OWN = "none: as compiled"


def tuning_summary(document: Mapping[str, Any]) -> Summary:
    """The document must fit its schema (report/schema)."""
    kernels = document["kernels"]
    columns = ("kernel", "share", "verdict", "gain (95% interval)", "lever or reason")
    tones = tuple(_TONES[kernel["verdict"]] for kernel in kernels)
    table = Table("Kernels", columns, tuple(map(_row, kernels)), tones=tones, words=(2, 4))
    return Summary(
        "Tuning",
        document["target"],
        *_verdict(document),
        tuple(_facts(document)),
        (table, *_codes(document)) if kernels else (),
        tuple(dict.fromkeys(_notes(document))),
    )


def _codes(document: Mapping[str, Any]) -> Iterator[Table]:
    """The codes that were assembled and not timed, where they are few enough to read."""
    kernels = [kernel for kernel in document["kernels"] if kernel["verdict"] == "ASSEMBLED" and kernel["candidates"]]
    rows = [
        (kernel["kernel"], one.get("lever", _OWN), number(one["registers"]), spills(one), number(one["stack"]))
        for kernel in kernels
        for one in (kernel["own"], *kernel["candidates"])
    ]
    if 0 < len(rows) <= _MOST_CODES:
        yield Table("Codes (stack, spill stores/loads: bytes)", _CODE_COLUMNS, tuple(rows), 2)


def _row(kernel: Mapping[str, Any]) -> tuple[str, ...]:
    share = "" if kernel["share"] is None else f"{kernel['share']:.1%}"
    is_win = kernel["verdict"] == "WIN"
    what = kernel["lever"] if is_win else kernel["reason"] or count(len(kernel["candidates"]), "other code")
    return kernel["kernel"], share, kernel["verdict"], _gain(kernel) if is_win else "", what


def _gain(kernel: Mapping[str, Any]) -> str:
    low, high = kernel["interval_percent"]
    return f"{kernel['gain_percent']:.1f}% ({low:.1f}% to {high:.1f}%)"


def _verdict(document: Mapping[str, Any]) -> tuple[str, Tone]:
    counts, total = document["counts"], len(document["kernels"])
    if counts.get("ASSEMBLED"):
        codes = sum(len(kernel["candidates"]) for kernel in document["kernels"])
        return f"{count(codes, 'code')} of {count(total, 'kernel')} to race; nothing was timed", Tone.NEUTRAL
    if not total:
        return "no kernel was tuned", Tone.UNSURE
    wins = counts.get("WIN", 0)
    return f"{count(wins, 'win')} of {count(total, 'kernel')}", Tone.GOOD if wins else Tone.NEUTRAL


def _facts(document: Mapping[str, Any]) -> Iterator[str]:
    if document["stopped"]:
        yield f"{document['stopped']}: the kernels that were not done are left as they are"
    if document["counts"].get("ASSEMBLED"):
        yield f"race them on a GPU: `tritonhook tune {document['target']}`"
    if document["counts"].get("WIN"):
        yield f"apply them with `tritonhook run --policy {document['policy']}` or tritonhook.enable(policy=...)"


def _notes(document: Mapping[str, Any]) -> Iterator[str]:
    if document["device"]:
        seconds = sum(kernel["seconds"] for kernel in document["kernels"])
        yield f"{seconds:.0f} s on {document['device']}, and {document['start_seconds']:.0f} s to start processes"
    dropped = (
        (kernel["kernel"], f"{one['lever']}: {one['reason']}")
        for kernel in document["kernels"]
        for one in kernel["dropped"]
        if not one["reason"].startswith("the code of")
    )
    for text, names in grouped(dropped).items():
        yield f"{names}: {text}"
    for reason, names in grouped((one["kernel"], one["reason"]) for one in document["skipped"]).items():
        yield f"not tuned: {names}: {reason}"
