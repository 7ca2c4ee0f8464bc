"""Read what ptxas prints: its first error. Paths of temporary files are left out; they say nothing to a reader."""

from __future__ import annotations

import re

_ERROR = re.compile(r"^ptxas\S*\s+(?:\S+, line (?P<line>\d+); )?(?:error|fatal)\s*:\s*(?P<text>.*)")
_LONGEST = 500


def first_error(log: str) -> str:
    """The first error in a log, such as "line 38: Not a name of any known instruction: 'mvo'"; else its last line."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    chosen = next((line for line in lines if "error" in line or "fatal" in line), lines[-1] if lines else "")
    match = _ERROR.match(chosen)
    if match is not None:
        chosen = f"line {match['line']}: {match['text']}" if match["line"] else match["text"]
    return chosen[:_LONGEST]
