"""What the sanitizer says to people: each finding with lines of the PTX and of the source."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tritonhook._util.text import file_line
from tritonhook.emulate.errors import Fault
from tritonhook.ptx.locations import source_places
from tritonhook.ptx.module import Ptx

RACE, PROXY, BARRIER = "race", "missing proxy fence", "barrier in divergence"
OUTSIDE, MISALIGNED, UNWRITTEN = "out of bounds", "misaligned", "uninitialised"
FAULT, HANG, SHUFFLE, FENCE = "fault", "hang", "shuffle", "missing wgmma.fence"
HINT = "; the compiler ordered these, not the source: try num_stages=1"
ORDER, ROOM = "nondeterministic", "CTAs without room"


def kind_of(fault: Fault) -> str:
    """Return the kind of a fault that ended a kernel."""
    if fault.text.startswith("misaligned"):
        return MISALIGNED
    return OUTSIDE if "outside" in fault.text else FAULT


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
    """Return a function that names the source of a line of the PTX, such as "f.py:12"; "" if it is not known."""
    place = source_places(ptx.text)

    def source(line: int) -> str:
        at = place(line)
        return file_line(*at) if at is not None else ""

    return source
