"""What the sanitizer says to people: each finding with lines of the PTX and of the source."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass

from tritonhook.ptx.module import Ptx

_FILE = re.compile(r'\s*\.file\s+(\d+)\s+"([^"]*)"')
_LOC = re.compile(r"\s*\.loc\s+(\d+)\s+(\d+)")

RACE, PROXY, BARRIER = "race", "missing proxy fence", "barrier in divergence"
OUTSIDE, MISALIGNED, UNWRITTEN = "out of bounds", "misaligned", "uninitialised"
FAULT, HANG, SHUFFLE, FENCE = "fault", "hang", "shuffle", "missing wgmma.fence"


@dataclass(frozen=True, slots=True)
class Place:
    """An access. what: "read by warp 2 of CTA 0". line: of the PTX. instruction: its text. source: "f.py:12" or ""."""

    what: str
    line: int
    instruction: str
    source: str = ""

    def __str__(self) -> str:
        at = f"line {self.line}" + (f" ({self.source})" if self.source else "")
        return f"{self.what} at {at}: {self.instruction}"


@dataclass(frozen=True, slots=True)
class Finding:
    """kind: see above. text: what is wrong. places: the accesses, in the order in which they were executed."""

    kind: str
    text: str
    places: tuple[Place, ...]

    def __str__(self) -> str:
        return "; ".join([f"{self.kind}: {self.text}", *map(str, self.places)])


def source_lines(ptx: Ptx) -> Callable[[int], str]:
    """The place in the source that `.loc` names for a line of the PTX; "" for none."""
    files: dict[str, str] = {}
    lines: list[int] = []
    names: list[tuple[str, str]] = []
    for number, text in enumerate(ptx.text.splitlines(), 1):
        if (match := _LOC.match(text)) is not None:
            lines.append(number)
            names.append((match[1], match[2]))
        elif (match := _FILE.match(text)) is not None:
            files[match[1]] = match[2].rpartition("/")[2]

    def source(line: int) -> str:
        at = bisect_right(lines, line) - 1
        return f"{files.get(names[at][0], names[at][0])}:{names[at][1]}" if at >= 0 else ""

    return source
