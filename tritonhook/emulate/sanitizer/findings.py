"""Findings of the sanitizer for people: text, and lines of the PTX and of the source."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tritonhook._util.text import file_line
from tritonhook.emulate.errors import Misaligned, OutOfBounds
from tritonhook.ptx.locations import source_places
from tritonhook.ptx.module import Ptx

RACE, PROXY, BARRIER = "race", "missing proxy fence", "barrier in divergence"
OUTSIDE, MISALIGNED, UNWRITTEN = OutOfBounds.kind, Misaligned.kind, "uninitialised"
HANG, SHUFFLE, FENCE = "hang", "shuffle", "missing wgmma.fence"
HINT = "; the compiler ordered these, not the source: try num_stages=1"
ORDER, ROOM = "nondeterministic", "CTAs without room"


@dataclass(frozen=True, slots=True)
class Place:
    """An access in a finding. what: e.g. "read by warp 2 of CTA 0". line: line of the PTX. instruction: text of the
    instruction. source: e.g. "f.py:12"; "" if unknown."""

    what: str
    line: int
    instruction: str
    source: str = ""

    def __str__(self) -> str:
        at = f"line {self.line}" + (f" ({self.source})" if self.source else "")
        return f"{self.what} at {at}: {self.instruction}"


@dataclass(frozen=True, slots=True)
class Finding:
    """One fault. kind: a constant above, e.g. RACE. text: describes the fault. places: the accesses in the order of
    execution."""

    kind: str
    text: str
    places: tuple[Place, ...]

    def __str__(self) -> str:
        return "; ".join([f"{self.kind}: {self.text}", *map(str, self.places)])


def source_lines(ptx: Ptx) -> Callable[[int], str]:
    """Return a function from a line of the PTX to its source line, e.g. "f.py:12"; "" if unknown."""
    place = source_places(ptx.text)

    def source(line: int) -> str:
        at = place(line)
        return file_line(*at) if at is not None else ""

    return source
