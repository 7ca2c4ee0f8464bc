"""The Summary of a policy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tritonhook.report.format import count, grouped
from tritonhook.report.summary import Summary, Table, Tone

_TONES = {
    "usable": Tone.NEUTRAL,
    "applies": Tone.GOOD,
    "applied": Tone.GOOD,
    "stale": Tone.BAD,
    "unusable": Tone.BAD,
    "not seen": Tone.UNSURE,
}


def policy_summary(document: Mapping[str, Any]) -> Summary:
    """The document must fit its schema (report/schema)."""
    kernels, counts = document["kernels"], document["counts"]
    columns = ("kernel", "arch", "lever", "state", "gain (95% interval)", "measured on")
    tones = tuple(_TONES.get(kernel["state"], Tone.NEUTRAL) for kernel in kernels)
    rows = tuple(map(_row, kernels))
    table = Table("Kernels", columns, rows, left=3, tones=tones, words=(3, 5), one_line=True)
    captures = document["captures"]
    return Summary(
        "Policy",
        str(document["path"]) if captures is None else f"{document['path']} beside {captures}",
        *_verdict(len(kernels), counts),
        tuple(_facts(kernels)),
        (table,) if kernels else (),
    )


def _facts(kernels: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for state in _TONES:
        named = ((f"{k['kernel']} {k['arch']}", k["reason"]) for k in kernels if k["reason"] and k["state"] == state)
        for reason, names in grouped(named).items():
            yield f"{state}: {names}: {reason}"


def _row(kernel: Mapping[str, Any]) -> tuple[str, ...]:
    low, high = kernel["interval_percent"]
    return (
        str(kernel["kernel"]),
        str(kernel["arch"]),
        str(kernel["lever"]),
        str(kernel["state"]),
        f"{kernel['gain_percent']:.1f}% ({low:.1f}% to {high:.1f}%)",
        f"{kernel['gpu']}, {kernel['date']}",
    )


def _verdict(kernels: int, counts: Mapping[str, int]) -> tuple[str, Tone]:
    if not kernels:
        return "no kernel has a lever", Tone.NEUTRAL
    states = [f"{counts[state]:,} {state}" for state in _TONES if counts.get(state)]
    trouble = counts.get("stale", 0) + counts.get("unusable", 0)
    return f"{count(kernels, 'kernel')}: {', '.join(states)}", Tone.BAD if trouble else Tone.GOOD
