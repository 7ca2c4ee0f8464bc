"""What tells the configurations of one kernel apart, and which one an autotuner chose; which ranks met a kernel."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from tritonhook.capture.model import Capture
from tritonhook.capture.store import CaptureFolder


def configuration(capture: Capture) -> str:
    """E.g. "4 warps, 3 stages, BLOCK=128"."""
    counts = ((capture.options.get(f"num_{what}"), what) for what in ("warps", "stages", "ctas"))
    words = [f"{count} {what}" for count, what in counts if count is not None and (what, count) != ("ctas", 1)]
    if capture.options.get("maxnreg") is not None:
        words.append(f"maxnreg {capture.options['maxnreg']}")
    constants = capture.options.get("constants")
    if isinstance(constants, dict):
        words += [f"{name}={value}" for name, value in constants.items() if value is not None]
    return ", ".join(words)


def has_variants(captures: Iterable[Capture]) -> bool:
    """Whether a kernel is there more than once, so that its name does not tell which one is meant."""
    counts = Counter((capture.kernel, capture.arch) for capture in captures)
    return any(count > 1 for count in counts.values())


def tuning_words(folder: CaptureFolder, record: str) -> str:
    """Whether an autotuner tried this one, and chose it: "won", "tried", or "won 1 of 3" tunings."""
    tried = [tuning for tuning in folder.tunings if record in tuning.among or record == tuning.winner]
    won = sum(tuning.winner == record for tuning in tried)
    if not tried:
        return ""
    if won in (0, len(tried)):
        return "won" if won else "tried"
    return f"won {won} of {len(tried)}"


def ranks_of(folder: CaptureFolder, record: str) -> str:
    """E.g. "0 1 3"; "-" is a process that has none."""
    return " ".join(sorted({s.rank for s in folder.seen(record)}, key=lambda rank: (len(rank), rank)))
