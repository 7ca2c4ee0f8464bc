"""What tells the configurations of one kernel apart, which one an autotuner chose, and which ranks met a kernel.

All of it from the JSON document of a capture folder.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

_COUNTS = {"warps": "num_warps", "stages": "num_stages", "ctas": "num_ctas", "maxnreg": "maxnreg"}


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


def varying_options(kernels: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, str]]:
    """Return, by record, the options and constexprs that tell kernels of one name and target apart. A kernel whose name
    is there once has none."""
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for kernel in kernels:
        groups.setdefault((str(kernel["kernel"]), str(kernel["arch"])), []).append(kernel)
    found: dict[str, dict[str, str]] = {}
    for group in groups.values():
        settings = {str(kernel["record"]): _settings(kernel["options"]) for kernel in group}
        names = dict.fromkeys(name for each in settings.values() for name in each)
        telling = [name for name in names if len({each.get(name) for each in settings.values()}) > 1]
        for record, each in settings.items():
            if given := {name: each[name] for name in telling if name in each}:
                found[record] = given
    return found


def _settings(options: Mapping[str, Any]) -> dict[str, str]:
    """What an autotuner varies: "warps", "stages", "ctas", "maxnreg" and the constexprs."""
    counts = {name: options.get(key) for name, key in _COUNTS.items()}
    constants = options.get("constants")
    given = counts | (dict(constants) if isinstance(constants, Mapping) else {})
    return {str(name): str(value) for name, value in given.items() if value is not None}


def tunings(document: Mapping[str, Any]) -> dict[str, str]:
    """Return, by record, whether an autotuner tried it and chose it: "won", "tried", or "won 1 of 3"."""
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
