"""Known miscompilations in PTX: `verify --known`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

from tritonhook._util.schema import Count, Fields
from tritonhook.ptx.miscompiles import PAGE, Hit, KnownModule
from tritonhook.ptx.miscompiles.record import PtxasVerdict
from tritonhook.report.format import count, number, sentence, short
from tritonhook.report.result import Result
from tritonhook.report.summary import Summary, Table, Tone

_TONES = {PtxasVerdict.WRONG: Tone.BAD, PtxasVerdict.NOT_KNOWN: Tone.UNSURE, PtxasVerdict.RIGHT: Tone.GOOD}


class KnownPlace(Fields):
    """A statement that some versions of ptxas assemble wrongly.

    module: the file, or the id of its first kernel. line: in the module's PTX. ptxas: the version in use; null: not
    known. verdict: what that version makes of it. does: what a wrong version does. sources: where that is published.
    """

    bug: str
    module: str
    function: str
    line: Count
    target: str | None
    ptxas: str | None
    verdict: PtxasVerdict
    does: str
    remedy: str
    sources: tuple[str, ...]

    @classmethod
    def of(cls, module: KnownModule, finding: Hit) -> KnownPlace:
        place, bug = finding.place, finding.place.bug
        return cls(
            bug=bug.name,
            module=module.name,
            function=place.function,
            line=place.line,
            target=module.target,
            ptxas=finding.ptxas,
            verdict=finding.verdict,
            does=bug.does,
            remedy=bug.remedy,
            sources=tuple(bug.sources),
        )

    @property
    def row(self) -> tuple[str, ...]:
        places = short(self.module), short(self.function), number(self.line)
        return (self.bug, *places, self.target or "not known", number(self.ptxas), self.verdict.value)


class KnownUnread(Fields):
    """A module that could not be read."""

    module: str
    reason: str


class Known(Result, tag="known miscompilations"):
    """Known miscompilations in PTX. modules: how many were looked at."""

    verbs: ClassVar = "verify --known"

    path: str
    modules: Count
    places: tuple[KnownPlace, ...]
    unread: tuple[KnownUnread, ...]
    notes: tuple[str, ...]

    @classmethod
    def of(cls, path: str, modules: Sequence[KnownModule]) -> Known:
        places = tuple(KnownPlace.of(module, finding) for module in modules for finding in module.found)
        return cls(
            path=path,
            modules=len(modules),
            places=places,
            unread=tuple(KnownUnread(module.name, module.unread) for module in modules if module.unread is not None),
            notes=(f"what each bug is: {PAGE}",) if places else (),
        )

    def summary(self) -> Summary:
        """Where known bugs are and what to do. The bugs of the ptxas in use come first."""
        verdicts = {place.verdict for place in self.places}
        unsure = PtxasVerdict.NOT_KNOWN in verdicts or self.unread
        unread = (f"{module.module}: not read: {module.reason}" for module in self.unread)
        return Summary(
            "Known miscompilations",
            self.path,
            self._verdict(),
            Tone.BAD if PtxasVerdict.WRONG in verdicts else Tone.UNSURE if unsure else Tone.GOOD,
            tuple(self._facts()),
            (self._table(),) if self.places else (),
            (*unread, *self.notes),
        )

    @property
    def _sorted(self) -> list[KnownPlace]:
        return sorted(self.places, key=lambda place: list(_TONES).index(place.verdict))

    def _verdict(self) -> str:
        read = count(self.modules - len(self.unread), "module") + (f" of {self.modules:,}" if self.unread else "")
        if not self.places:
            return f"no pattern of a known bug of ptxas in {read}"
        said = {PtxasVerdict.WRONG: "the ptxas in use has the bug at", PtxasVerdict.NOT_KNOWN: "not known at"}
        counts = {verdict: sum(place.verdict is verdict for place in self.places) for verdict in said}
        parts = [f"{said[verdict]} {times:,}" for verdict, times in counts.items() if times]
        text = f"{count(len(self.places), 'place')} in {read} with the pattern of a known bug"
        return f"{text}: {', '.join(parts) or 'the ptxas in use is right'}"

    def _facts(self) -> Iterator[str]:
        """What each bug does, with its remedy."""
        told: set[str] = set()
        for place in self._sorted:
            if place.bug not in told:
                yield f"{place.bug}: ptxas {place.does}. {sentence(place.remedy)}."
            told.add(place.bug)

    def _table(self) -> Table:
        columns = ("bug", "module", "function", "line", "target", "ptxas", "this ptxas is")
        places = self._sorted
        rows, tones = tuple(place.row for place in places), tuple(_TONES[place.verdict] for place in places)
        return Table("Places", columns, rows, 3, tones, words=(4, 5, 6))
