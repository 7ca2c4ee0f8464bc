"""What tells the configurations of one kernel apart, which one an autotuner chose, and which ranks met a kernel.

All of it from the JSON document of a capture folder.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any


def configuration(options: Mapping[str, Any]) -> str:
    """A kernel's configuration: "4 warps, 3 stages, BLOCK=128"."""
    counts = ((options.get(f"num_{what}"), what) for what in ("warps", "stages", "ctas"))
    parts = [f"{count} {what}" for count, what in counts if count is not None and (what, count) != ("ctas", 1)]
    if options.get("maxnreg") is not None:
        parts.append(f"maxnreg {options['maxnreg']}")
    constants = options.get("constants")
    if isinstance(constants, Mapping):
        parts += [f"{name}={value}" for name, value in constants.items() if value is not None]
    return ", ".join(parts)


def has_variants(document: Mapping[str, Any]) -> bool:
    """Whether a kernel is there more than once, so that its name does not tell which one is meant."""
    counts = Counter((kernel["kernel"], kernel["arch"]) for kernel in document["kernels"])
    return any(count > 1 for count in counts.values())


def tunings(document: Mapping[str, Any]) -> dict[str, str]:
    """By record, whether an autotuner tried it and chose it: "won", "tried", or "won 1 of 3"."""
    tried: Counter[str] = Counter()
    won: Counter[str] = Counter()
    for tuning in document["tunings"]:
        tried.update({*tuning["among"], tuning["winner"]})
        won[tuning["winner"]] += 1
    return {record: _outcome(won[record], count) for record, count in tried.items()}


def _outcome(won: int, tried: int) -> str:
    if won in (0, tried):
        return "won" if won else "tried"
    return f"won {won} of {tried}"


def ranks(kernel: Mapping[str, Any]) -> str:
    """The ranks that met a kernel: "0 1 3"; "-" is a process that has none."""
    return " ".join(sorted({str(s["rank"]) for s in kernel["seen"]}, key=lambda rank: (len(rank), rank)))
