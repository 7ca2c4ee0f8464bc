"""Known miscompilations: find PTX statements that some versions of ptxas assemble wrongly. ptxas itself is not run."""

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
    """Find each statement that matches the pattern of a bug, in order. A module is not parsed if it lacks the opcodes
    of all these bugs."""
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
    """A statement that matches the pattern of a bug, and the verdict on one version of ptxas for the module's target.
    ptxas: the version; None if it is not known."""

    place: BugPlace
    ptxas: str | None
    verdict: PtxasVerdict

    @property
    def is_suspect(self) -> bool:
        """Whether this ptxas miscompiles the statement, or may miscompile it."""
        return self.ptxas is not None and self.verdict is not PtxasVerdict.RIGHT

    @property
    def warning(self) -> str:
        bug = self.place.bug
        wrong = self.verdict is PtxasVerdict.WRONG
        verb = "miscompiles" if wrong else "may miscompile (not tested, but a neighbouring version miscompiles)"
        return (
            f"ptxas {self.ptxas} {verb} {self.place.function}, line {self.place.line}: it {bug.does} ({bug.name}): "
            f"{bug.remedy}; see {PAGE}"
        )


@dataclass(frozen=True, slots=True)
class KnownModule:
    """A PTX module that was checked for known bugs. name: its file, or the id of its first kernel. target: e.g.
    "sm_90a". found: the matches. unread: reason why the module could not be read; None if it was read."""

    name: str
    target: str | None
    ptxas: str | None
    found: Sequence[Hit] = ()
    unread: str | None = None


def findings(text: str, ptxas: str | None, level: str = "-O3") -> tuple[Hit, ...]:
    """Find all matches in a module's text, with verdicts on this version of ptxas at this optimisation level. Raises
    PtxError if the text is not PTX."""
    return _findings(text, ptxas, level, MISCOMPILATIONS)


def suspects(text: str, ptxas: str | None, level: str = "-O3") -> tuple[Hit, ...]:
    """Find statements that this version of ptxas miscompiles, or may miscompile. Returns an empty tuple if the version
    is None.

    A text is not parsed if it lacks the opcodes of all bugs that this version may have. Raises PtxError.
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
    """List a warning for each statement that ptxas miscompiles or may miscompile. Raises PtxError."""
    return [suspect.warning for suspect in suspects(text, ptxas, level)]


def bugs_met(text: str, ptxas: str | None, level: str) -> frozenset[str]:
    """Return the names of the bugs of this ptxas that a module can trigger; empty if the module cannot be read. The
    result is cached."""
    key = hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest(), ptxas, level
    if key not in _met:
        _met[key] = frozenset()
        with suppress(PtxError):
            _met[key] = frozenset(suspect.place.bug.name for suspect in suspects(text, ptxas, level))
    return _met[key]


_met: dict[tuple[bytes, str | None, str], frozenset[str]] = {}


def note_of(modules: Iterable[tuple[str | None, str | None, str]]) -> list[str]:
    """Write one note about many kernels: which bugs they can trigger, each with the number of kernels. Returns a list
    with the note, or an empty list if there is no bug. modules: (text, ptxas, level) of each kernel; texts that cannot
    be read are skipped."""
    met: Counter[str] = Counter()
    for (text, ptxas, level), kernels in Counter(modules).items():
        met.update(dict.fromkeys(bugs_met(text or "", ptxas, level), kernels))
    if not met:
        return []
    listed = ", ".join(f"{bug} ({kernels:,})" for bug, kernels in sorted(met.items()))
    return [
        f"known bugs of ptxas that kernels can trigger (number of kernels): {listed}; `tritonhook verify --known` "
        "lists the statements"
    ]
