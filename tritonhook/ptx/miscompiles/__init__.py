"""Known miscompilations: find PTX that some versions of ptxas assemble wrongly. Pure; runs no ptxas."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from tritonhook.errors import PtxError
from tritonhook.ptx.miscompiles.floats import FLOATS
from tritonhook.ptx.miscompiles.integers import INTEGERS
from tritonhook.ptx.miscompiles.matrices import MATRICES
from tritonhook.ptx.miscompiles.normal import normal_operations
from tritonhook.ptx.miscompiles.packed import PACKED
from tritonhook.ptx.miscompiles.record import Miscompilation, PtxasVerdict
from tritonhook.ptx.module import Ptx, line_numbers

MISCOMPILATIONS = (*MATRICES, *PACKED, *INTEGERS, *FLOATS)
PAGE = "docs/explanation/miscompilations.md"


@dataclass(frozen=True, slots=True)
class BugPlace:
    """A statement that some versions of ptxas assemble wrongly."""

    bug: Miscompilation
    function: str
    line: int


def places(ptx: Ptx, bugs: Sequence[Miscompilation] = MISCOMPILATIONS) -> tuple[BugPlace, ...]:
    """Find every statement that a bug matches, in order. A module without the opcodes of these bugs is not parsed."""
    return tuple(_places(ptx, _possible(ptx.text, bugs)))


def _possible(text: str, bugs: Sequence[Miscompilation]) -> list[Miscompilation]:
    return [bug for bug in bugs if bug.is_possible(text)]


def _places(ptx: Ptx, bugs: Sequence[Miscompilation]) -> Iterator[BugPlace]:
    if not bugs:
        return
    line = line_numbers(ptx)
    for function in normal_operations(ptx):
        for operation in function:
            for bug in bugs:
                if bug.matches(operation):
                    statement = operation.statement
                    yield BugPlace(bug, statement.function, line(statement.position))


@dataclass(frozen=True, slots=True)
class Hit:
    """A matching statement, and what a version of ptxas makes of it for the module's target. ptxas: None if unknown."""

    place: BugPlace
    ptxas: str | None
    verdict: PtxasVerdict

    @property
    def is_suspect(self) -> bool:
        """Whether this ptxas is wrong, or may be."""
        return self.ptxas is not None and self.verdict is not PtxasVerdict.RIGHT

    @property
    def warning(self) -> str:
        bug = self.place.bug
        says = (
            "miscompiles" if self.verdict is PtxasVerdict.WRONG else "was not tried, and versions beside it miscompile"
        )
        return (
            f"ptxas {self.ptxas} {says} {self.place.function}, line {self.place.line}: it {bug.does} ({bug.name}): "
            f"{bug.remedy}; see {PAGE}"
        )


@dataclass(frozen=True, slots=True)
class KnownModule:
    """A module of PTX that was read. name: its file, or the id of its first kernel. target: such as "sm_90a".

    unread: why it could not be read; None if it was.
    """

    name: str
    target: str | None
    ptxas: str | None
    found: Sequence[Hit] = ()
    unread: str | None = None


def findings(text: str, ptxas: str | None, level: str = "-O3") -> tuple[Hit, ...]:
    """Find every match in a module's text, for this version of ptxas at this level. Raises PtxError if it is not
    PTX."""
    return _findings(text, ptxas, level, MISCOMPILATIONS)


def suspects(text: str, ptxas: str | None, level: str = "-O3") -> tuple[Hit, ...]:
    """Find code that this ptxas version miscompiles, or may miscompile; empty if the version is unknown. Raises
    PtxError.

    If no opcode of this version's bugs occurs, the text is not parsed.

    A text without the opcodes of bugs that this version may have is not read further.
    """
    if ptxas is None:
        return ()
    hits = _findings(text, ptxas, level, [bug for bug in MISCOMPILATIONS if bug.may_be(ptxas)])
    return tuple(hit for hit in hits if hit.is_suspect)


def _findings(text: str, ptxas: str | None, level: str, bugs: Sequence[Miscompilation]) -> tuple[Hit, ...]:
    possible = _possible(text, bugs)
    if not possible:
        return ()
    ptx = Ptx(text)
    return tuple(Hit(place, ptxas, _verdict(place.bug, ptxas, ptx.target, level)) for place in places(ptx, possible))


def _verdict(bug: Miscompilation, ptxas: str | None, target: str, level: str) -> PtxasVerdict:
    return PtxasVerdict.NOT_KNOWN if ptxas is None else bug.verdict(ptxas, target, level)


def warnings_of(text: str, ptxas: str | None, level: str = "-O3") -> list[str]:
    """Write a warning for each suspect. Raises PtxError."""
    return [suspect.warning for suspect in suspects(text, ptxas, level)]


def bugs_met(text: str, ptxas: str | None, level: str) -> frozenset[str]:
    """List the names of the bugs that a module meets; empty if it cannot be read. Each process checks a text only
    once."""
    key = hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest(), ptxas, level
    if key not in _met:
        _met[key] = frozenset()
        with suppress(PtxError):
            _met[key] = frozenset(suspect.place.bug.name for suspect in suspects(text, ptxas, level))
    return _met[key]


_met: dict[tuple[bytes, str | None, str], frozenset[str]] = {}


def note_of(modules: Iterable[tuple[str | None, str | None, str]]) -> list[str]:
    """Write one note on many kernels (module text, ptxas, level): the bugs that they meet, each with the number of
    kernels. Empty if they meet none; unreadable texts are skipped."""
    met: Counter[str] = Counter()
    for (text, ptxas, level), kernels in Counter(modules).items():
        met.update(dict.fromkeys(bugs_met(text or "", ptxas, level), kernels))
    if not met:
        return []
    listed = ", ".join(f"{bug} ({kernels:,})" for bug, kernels in sorted(met.items()))
    return [
        f"known bugs of ptxas that kernels meet, with their number: {listed}; `tritonhook verify --known` lists where"
    ]
