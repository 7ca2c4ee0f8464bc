"""Sweeps over names: `lab probe`, `lab probe --minimise`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, ClassVar

from msgspec import UNSET, Meta, UnsetType, field

from tritonhook._util.schema import Count, Fields, Version, Whole
from tritonhook._util.versions import version_key
from tritonhook.compare.diff import CubinDiff
from tritonhook.lab.minimise import NamePart
from tritonhook.lab.name_probe import NameCell, NameVerdict, SetupKey
from tritonhook.lab.name_templates import PRAGMA
from tritonhook.report.format import count, number
from tritonhook.report.result import Result
from tritonhook.report.results.cells import (
    MEANINGS,
    NAMES,
    SIGNS,
    Shown,
    SweptCell,
    differences,
    gravest,
    names_tables,
    no_answers,
    signs_of,
    sweep_summary,
    telling_options,
)
from tritonhook.report.results.code import Code
from tritonhook.report.results.diff import LoopPair, SassChanges
from tritonhook.report.summary import Summary, Table, Tone

_PRAGMA = f'{PRAGMA} is the kernel with `.pragma "mma_throughput"`, under a name of meaningless letters'
_LEGEND = "; ".join(f"{sign} {MEANINGS[sign]}" for sign in SIGNS)


class SweepCounts(Fields):
    """How many cells."""

    cells: Count
    cells_changed: Count
    cells_unsteady: Count
    cells_without_answer: Count
    crashes: Count

    @property
    def compared(self) -> int:
        return self.cells - self.cells_without_answer


class CellCode(Fields):
    """Both codes of a cell: a: under the control. b: under the name."""

    a: Code
    b: Code
    loops: tuple[LoopPair, ...]

    @classmethod
    def of(cls, diff: CubinDiff) -> CellCode:
        return cls(Code.of(diff.a, diff.a_sass), Code.of(diff.b, diff.b_sass), SassChanges.of(diff).loops)


def code_key(cell: NameCell) -> str | None:
    """A name for the two codes of a cell: equal pairs have equal names. None if a side was not assembled."""
    if cell.named.image is None or cell.controlled.image is None:
        return None
    a, b = cell.controlled.image.kernel(cell.control), cell.named.image.kernel(cell.name)
    return f"{cell.setup.arch}-{a.code_sha256[:16]}-{b.code_sha256[:16]}"


class Probe(Result, tag="probe"):
    """Which names change which kernels. notes: what was not asked. codes: by a cell's `code`."""

    verbs: ClassVar = "lab probe"

    counts: SweepCounts = field(name="summary")
    cells: tuple[SweptCell, ...]
    notes: tuple[str, ...] | UnsetType = UNSET
    codes: dict[str, CellCode] | UnsetType = UNSET

    @classmethod
    def of(
        cls, cells: Sequence[NameCell], notes: Sequence[str] = (), codes: Mapping[str, CellCode] | None = None
    ) -> Probe:
        """codes: the code of changed cells by `code_key`, each pair once, for a page."""
        verdicts = Counter(cell.verdict for cell in cells)
        few = (verdicts[NameVerdict.CHANGED], verdicts[NameVerdict.UNSTEADY], verdicts[NameVerdict.NO_ANSWER])
        counts = SweepCounts(len(cells), *few, sum(cell.is_crash for cell in cells))
        if codes is None:
            return cls(counts, tuple(map(SweptCell.of, cells)), tuple(notes))
        keys = [key if (key := code_key(cell)) in codes else None for cell in cells]
        return cls(counts, tuple(map(SweptCell.of, cells, keys)), tuple(notes), dict(codes))

    def shown(self) -> list[Shown]:
        return [cell.shown for cell in self.cells]

    def summary(self) -> Summary:
        cells = self.shown()
        base = sweep_summary(cells, self.counts)
        quiet = _quiet(cells)
        telling = [replace(t, rows=tuple(r for r in t.rows if r[0] not in quiet)) for t in names_tables(cells)]
        return replace(
            base,
            facts=(*base.facts, *_scheduler(cells), *self._pragma_and_names()),
            tables=(*telling, *_matrix(cells), *_what_changes(cells)),
            notes=tuple(self._notes(cells, quiet)),
        )

    def _pragma_and_names(self) -> Iterator[str]:
        """Count the places where pragma and names agree: the pragma gives the code that the names give, or neither
        changes the code. Places without a steady answer are left out."""
        places: dict[tuple[str, ...], dict[bool, set[str | None]]] = {}
        for cell in self.cells:
            if (sign := cell.sign) not in "~-":
                place = (cell.kernel, cell.arch, cell.ptxas, *cell.options)
                code = (cell.with_name.code_sha256 or "no code") if sign != "." else None
                places.setdefault(place, {}).setdefault(cell.template == PRAGMA, set()).add(code)
        both = [(of[True], (of[False] - {None}) or {None}) for of in places.values() if len(of) == 2]
        if both:
            same = sum(bool(pragma & names) for pragma, names in both)
            yield f"the pragma does what the names do in {same:,} of {count(len(both), 'place')}"

    def _notes(self, cells: Sequence[Shown], quiet: Sequence[str]) -> Iterator[str]:
        if quiet:
            yield f"without any effect: {', '.join(quiet)}"
        yield f"signs: {_LEGEND}"
        if any(cell.template == PRAGMA for cell in cells):
            yield _PRAGMA
        yield from self.notes or ()
        yield from no_answers(cell for cell in self.cells if cell.verdict is NameVerdict.NO_ANSWER)


def _scheduler(cells: Sequence[Shown]) -> Iterator[str]:
    if changed := [cell for cell in cells if cell.sign == "D"]:
        taken = Counter(cell.scheduler[1] for cell in changed)
        yield (
            f"ptxas's other scheduler: taken in {count(taken[True], 'changed cell')}, not taken in {taken[False]:,}, "
            f"cannot tell in {taken[None]:,}"
        )


def _quiet(cells: Sequence[Shown]) -> list[str]:
    """Names with at least one cell that was compared, of which none is changed or unsteady."""
    return [name for name, signs in signs_of(cells).items() if signs["."] and not signs["D"] + signs["X"] + signs["~"]]


def _matrix(cells: Sequence[Shown]) -> Iterator[Table]:
    """Kernels by ptxas version: the gravest sign under the names that change anything, else under all."""
    if all(cell.sign == "-" for cell in cells):
        return
    telling = {cell.template for cell in cells if cell.sign in "XD"}
    versions = sorted({cell.ptxas for cell in cells}, key=version_key)
    rows: dict[tuple[str, str, str], dict[str, list[str]]] = {}
    for cell in cells:
        if not telling or cell.template in telling:
            by_version = rows.setdefault((cell.kernel, cell.arch, cell.options), {})
            by_version.setdefault(cell.ptxas, []).append(cell.sign)
    shown = tuple((*key, *(gravest(of.get(v, ())) for v in versions)) for key, of in sorted(rows.items()))
    yield Table("Kernels by ptxas", ("kernel", "target", "options", *versions), shown, 3)


def _what_changes(cells: Sequence[Shown]) -> Iterator[Table]:
    if rows := tuple((what, f"{n:,}") for what, n in differences(cells)):
        yield Table("What changes", ("", "cells"), rows)


# --- the part of a name that matters -------------------------------------------------------------


class MinimalTrigger(Fields):
    """The part of a name that matters. trigger: null: the name changes nothing; then the fields below are missing.

    start: where it begins. needed, case_matters: for each letter. places: where else in a name it works.
    names_tried: how many.
    """

    kernel: str
    ptxas: Version
    arch: str
    options: tuple[str, ...]
    trigger: str | None
    sentence: str | UnsetType = UNSET
    start: Whole | UnsetType = UNSET
    needed: tuple[bool, ...] | UnsetType = UNSET
    case_matters: tuple[bool | None, ...] | UnsetType = UNSET
    places: dict[str, bool | None] | UnsetType = UNSET
    names_tried: Count | UnsetType = UNSET

    @classmethod
    def of(cls, key: SetupKey, trigger: NamePart | None) -> MinimalTrigger:
        where = (key.kernel, key.ptxas, key.arch, key.options)
        if trigger is None:
            return cls(*where, None)
        letters = (trigger.needed, trigger.cased)
        return cls(*where, trigger.word, trigger.sentence, trigger.start, *letters, dict(trigger.places), trigger.tried)

    def row(self, name: str) -> tuple[str, ...]:
        where = (self.kernel, self.arch, self.ptxas, telling_options(self.options))
        if self.trigger is None:
            return *where, f"{name} changes nothing", "", ""
        places = self.places or {}
        elsewhere = ", ".join(f"{place}: {number(works)}" for place, works in places.items())
        return *where, self.sentence or "", "" if all(places.values()) else elsewhere, number(self.names_tried or 0)


class Triggers(Result, tag="triggers"):
    """The minimal trigger at each place. name: as asked for. without_answer: cells that assemble nothing."""

    verbs: ClassVar = "lab probe --minimise"

    name: str
    triggers: tuple[MinimalTrigger, ...]
    without_answer: tuple[SweptCell, ...]

    @classmethod
    def of(cls, parts: Mapping[SetupKey, NamePart | None], silent: Sequence[NameCell], name: str) -> Triggers:
        """silent: cells without an answer, of places that assemble nothing."""
        return cls(name, tuple(MinimalTrigger.of(*pair) for pair in parts.items()), tuple(map(SweptCell.of, silent)))

    def summary(self) -> Summary:
        words = dict.fromkeys(trigger.trigger for trigger in self.triggers if trigger.trigger is not None)
        if words:
            verdict, tone = ", ".join(f"`{word}` is enough" for word in words), Tone.CHANGED
        elif self.triggers:
            verdict, tone = "the name changes nothing", Tone.GOOD
        else:
            verdict, tone = "nothing could be compared", Tone.UNSURE
        columns = ("kernel", "target", "ptxas", "options", "what it takes", "elsewhere in the name", "names tried")
        rows = tuple(trigger.row(self.name) for trigger in self.triggers)
        tables = (Table("Places", columns, rows, 6),) if rows else ()
        return Summary("Minimal trigger", self.name, verdict, tone, (), tables, tuple(no_answers(self.without_answer)))


# --- over all ptxas ------------------------------------------------------------------------------


class NameTriggerCounts(Fields):
    """How many cells, of those that the benchmark asked."""

    cells: Count
    cells_compared: Count
    cells_changed: Count
    crashes: Count
    cells_unsteady: Count | UnsetType | None = UNSET

    @property
    def compared(self) -> int:
        return self.cells_compared


class NameSample(Fields, array_like=True):
    """A list: the sign of a cell; what differs; whether ptxas took its other scheduler under the name; figures under
    the control and under the name."""

    sign: str
    differences: tuple[str, ...] = ()
    taken: bool | None = None
    measures: dict[str, tuple[Count | None, Count | None]] | None = None


class NameTrigger(Result, tag="name trigger"):
    """A benchmark's result. by_name: changed and compared. samples: by kernel and target, then by ptxas."""

    verbs: ClassVar = "report benchmarks/results/name_trigger.json"

    counts: NameTriggerCounts = field(name="summary")
    names: Annotated[tuple[str, ...], Meta(min_length=1)]
    by_name: dict[str, tuple[Count, Count]]
    triggers: dict[str, tuple[str, ...]]
    samples: dict[str, dict[Version, NameSample]]

    def shown(self) -> list[Shown]:
        """The cells that are kept: those of one name."""
        return [
            self._shown(place, version, sample)
            for place, by_version in self.samples.items()
            for version, sample in by_version.items()
        ]

    def _shown(self, place: str, version: str, sample: NameSample) -> Shown:
        kernel, _, arch = place.rpartition(" ")
        pairs = (sample.measures or {}).items()
        return Shown(
            kernel=kernel,
            arch=arch,
            ptxas=version,
            options="",
            template=self.names[0],
            sign=sample.sign,
            names=None,
            differences=sample.differences,
            draws=None,
            scheduler=(None, sample.taken),
            measures=tuple((name.replace("_", " "), *pair) for name, pair in pairs if pair != (None, None)),
        )

    def summary(self) -> Summary:
        """Kernels by ptxas under one name, and counts over all names."""
        rows = tuple((name, f"{changed:,}", f"{asked:,}") for name, (changed, asked) in self.by_name.items())
        base = sweep_summary(self.shown(), self.counts)
        shown = f"shown below are the cells of {self.names[0]}; {self.counts.cells:,} were asked, over all names"
        return replace(
            base,
            facts=(*base.facts, shown),
            tables=(Table(NAMES, ("name", "changed", "compared"), rows),),
            notes=tuple(f"{text}: in {count(len(where), 'place')}" for text, where in self.triggers.items()),
        )
