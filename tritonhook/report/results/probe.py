"""Result of `lab probe`: which names change a kernel's code."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import ClassVar

from msgspec import UNSET, UnsetType, field

from tritonhook._util.schema import Count, Fields, Version, like
from tritonhook._util.versions import version_key
from tritonhook.lab.name_probe import CRASHES, NameCell, NameVerdict
from tritonhook.lab.name_templates import PRAGMA
from tritonhook.ptxas.result_cache import Outcome
from tritonhook.report.result import Result, Summary, Table, Tone, count

_PRAGMA = f'{PRAGMA} is the kernel with `.pragma "mma_throughput"`, under a name of meaningless letters'
SIGNS = ("X", "D", "~", ".", "-")  # the most severe first
MEANINGS = {
    "X": "ptxas crashes under the name only",
    "D": "the name changes the code",
    "~": "the same name gives several codes",
    ".": "same",
    "-": "does not assemble",
}
_VERDICTS = {NameVerdict.CHANGED: "D", NameVerdict.UNSTEADY: "~", NameVerdict.SAME: ".", NameVerdict.NO_ANSWER: "-"}
_MOST_REASONS = 5
_Figure = Count | UnsetType | None
_LEGEND = "; ".join(f"{sign} {MEANINGS[sign]}" for sign in SIGNS)


class CellOutcome(Fields):
    """Outcome of one ptxas run. kind: `assembled`, or how it failed. message, signal: what a failed ptxas said, and
    which signal ended it. The other fields describe the cubin."""

    kind: str
    message: str
    signal: str | None
    code_sha256: str | UnsetType | None = UNSET
    code_bytes: _Figure = UNSET
    registers: _Figure = UNSET
    stack: _Figure = UNSET
    spill_stores: _Figure = UNSET
    spill_loads: _Figure = UNSET
    shared: _Figure = UNSET
    capmerc_records: _Figure = UNSET
    file_bytes: _Figure = UNSET

    @classmethod
    def of(cls, outcome: Outcome, name: str) -> CellOutcome:
        how = (outcome.kind.value, outcome.message, outcome.signal)
        if outcome.image is None:
            return cls(*how)
        k = outcome.image.kernel(name)
        resources = (k.registers, k.stack, k.spill_stores, k.spill_loads, k.shared)
        return cls(*how, k.code_sha256, k.code_bytes, *resources, k.scheduler_records, outcome.image.file_bytes)


class BothNames(Fields):
    """A property under the name and under the control name; null: not known."""

    name: bool | None
    control: bool | None


class SweptCell(Fields):
    """One kernel under one name, for one ptxas, target and set of options.

    template: the name as requested, or `.pragma`. control: the control name. differences: what differs between the
    names: `code`, `registers`, `stack`, `spills`, `shared`, `externs`, `program`, `sections`; or how a run failed:
    `crash`, `timeout`, `memory`, `rejected`. draws: how many further runs of each name confirmed or refuted the
    difference; 0: none were needed. sections_changed: bytes of each section that differs, under the control name and
    under the name.
    """

    kernel: str
    ptxas: Version
    arch: str
    options: tuple[str, ...]
    template: str
    name: str
    control: str
    verdict: NameVerdict
    differences: tuple[str, ...]
    draws: Count
    other_scheduler: BothNames
    with_name: CellOutcome
    with_control: CellOutcome
    sections_changed: dict[str, tuple[Count | None, ...]]

    @classmethod
    def of(cls, cell: NameCell) -> SweptCell:
        setup = cell.setup
        return like(
            cell,
            cls,
            kernel=setup.kernel,
            ptxas=setup.ptxas,
            arch=setup.arch,
            options=setup.options,
            other_scheduler=BothNames(*cell.other_scheduler),
            with_name=CellOutcome.of(cell.named, cell.name),
            with_control=CellOutcome.of(cell.controlled, cell.control),
            sections_changed=dict(cell.section_changes),
        )

    @property
    def sign(self) -> str:
        crashed = self.verdict is NameVerdict.CHANGED and self.differences[:1] and self.differences[0] in CRASHES
        return "X" if crashed else _VERDICTS[self.verdict]


class SweepCounts(Fields):
    """How many cells there are, in all and with each outcome."""

    cells: Count
    cells_changed: Count
    cells_unsteady: Count
    cells_without_answer: Count
    crashes: Count

    @property
    def compared(self) -> int:
        return self.cells - self.cells_without_answer


class Probe(Result, tag="probe"):
    """Which names change which kernels. notes: what was not tried."""

    verbs: ClassVar = "lab probe"

    counts: SweepCounts = field(name="summary")
    cells: tuple[SweptCell, ...]
    notes: tuple[str, ...] | UnsetType = UNSET

    @classmethod
    def of(cls, cells: Sequence[NameCell], notes: Sequence[str] = ()) -> Probe:
        verdicts = Counter(cell.verdict for cell in cells)
        few = (verdicts[NameVerdict.CHANGED], verdicts[NameVerdict.UNSTEADY], verdicts[NameVerdict.NO_ANSWER])
        counts = SweepCounts(len(cells), *few, sum(cell.is_crash for cell in cells))
        return cls(counts, tuple(map(SweptCell.of, cells)), tuple(notes))

    def summary(self) -> Summary:
        cells = self.cells
        base = _sweep_summary(cells, self.counts)
        quiet = _quiet(cells)
        telling = [replace(t, rows=tuple(r for r in t.rows if r[0] not in quiet)) for t in _names_tables(cells)]
        return replace(
            base,
            facts=(*base.facts, *_scheduler(cells), *self._pragma_and_names()),
            tables=(*telling, *_matrix(cells), *_what_changes(cells)),
            notes=tuple(self._notes(cells, quiet)),
        )

    def _pragma_and_names(self) -> Iterator[str]:
        """Yield in how many settings (kernel, target, ptxas, options) the pragma and the names agree: they give the
        same code, or neither changes the code. Cells without a result and cells with several codes are left out."""
        places: dict[tuple[str, ...], dict[bool, set[str | None]]] = {}
        for cell in self.cells:
            if (sign := cell.sign) not in "~-":
                place = (cell.kernel, cell.arch, cell.ptxas, *cell.options)
                code = (cell.with_name.code_sha256 or "no code") if sign != "." else None
                places.setdefault(place, {}).setdefault(cell.template == PRAGMA, set()).add(code)
        both = [(of[True], (of[False] - {None}) or {None}) for of in places.values() if len(of) == 2]
        if both:
            same = sum(bool(pragma & names) for pragma, names in both)
            yield f"the pragma has the same effect as the names in {same:,} of {count(len(both), 'setting')}"

    def _notes(self, cells: Sequence[SweptCell], quiet: Sequence[str]) -> Iterator[str]:
        if quiet:
            yield f"without any effect: {', '.join(quiet)}"
        yield f"signs: {_LEGEND}"
        if any(cell.template == PRAGMA for cell in cells):
            yield _PRAGMA
        yield from self.notes or ()
        yield from _no_answers(cell for cell in self.cells if cell.verdict is NameVerdict.NO_ANSWER)


def _scheduler(cells: Sequence[SweptCell]) -> Iterator[str]:
    if changed := [cell for cell in cells if cell.sign == "D"]:
        taken = Counter(cell.other_scheduler.name for cell in changed)
        yield (
            f"ptxas's other scheduler: taken in {count(taken[True], 'changed cell')}, not taken in {taken[False]:,}, "
            f"cannot tell in {taken[None]:,}"
        )


def _quiet(cells: Sequence[SweptCell]) -> list[str]:
    """List the names without any effect: at least one of their cells has a result, and in all these the code is the
    same."""
    return [name for name, signs in _signs_of(cells).items() if signs["."] and not signs["D"] + signs["X"] + signs["~"]]


def _matrix(cells: Sequence[SweptCell]) -> Iterator[Table]:
    """Make the table of kernels by ptxas version. A cell shows the most severe sign of several names: of those that
    have an effect in any cell, or of all names if none has one."""
    if all(cell.sign == "-" for cell in cells):
        return
    telling = {cell.template for cell in cells if cell.sign in "XD"}
    versions = sorted({cell.ptxas for cell in cells}, key=version_key)
    rows: dict[tuple[str, str, str], dict[str, list[str]]] = {}
    for cell in cells:
        if not telling or cell.template in telling:
            by_version = rows.setdefault((cell.kernel, cell.arch, _telling_options(cell.options)), {})
            by_version.setdefault(cell.ptxas, []).append(cell.sign)
    shown = tuple((*key, *(gravest(of.get(v, ())) for v in versions)) for key, of in sorted(rows.items()))
    yield Table("Kernels by ptxas", ("kernel", "target", "options", *versions), shown, 3)


def _what_changes(cells: Sequence[SweptCell]) -> Iterator[Table]:
    counts = Counter(name for cell in cells if cell.sign in "XD" for name in cell.differences)
    if rows := tuple((what, f"{n:,}") for what, n in counts.most_common()):
        yield Table("What changes", ("", "cells"), rows)


def _telling_options(options: Iterable[str]) -> str:
    """Format ptxas's options without those that cannot change the code."""
    return " ".join(option for option in options if option not in ("-v", "-lineinfo"))


def gravest(signs: Sequence[str]) -> str:
    """Return the most severe of several signs; "" for none."""
    return next((sign for sign in SIGNS if sign in signs), "")


def _names_tables(cells: Iterable[SweptCell]) -> tuple[Table, ...]:
    """Make a table that counts each name's cells by sign; none for a single name."""
    rows = tuple((name, *(f"{by_sign[sign]:,}" for sign in SIGNS)) for name, by_sign in _signs_of(cells).items())
    columns = ("name", "crash", "changed", "unsteady", "same", "no answer")
    return (Table("Names (* is the kernel's own)", columns, rows),) if len(rows) > 1 else ()


def _signs_of(cells: Iterable[SweptCell]) -> dict[str, Counter[str]]:
    """Count each name's cells by sign; names with the most changes first."""
    counts: dict[str, Counter[str]] = {}
    for cell in cells:
        counts.setdefault(cell.template, Counter())[cell.sign] += 1
    return dict(sorted(counts.items(), key=lambda item: -(item[1]["D"] + item[1]["X"])))


def _no_answers(cells: Iterable[SweptCell]) -> Iterator[str]:
    """Yield the reasons for cells without a result, the most frequent reasons first."""
    outcomes = [cell.with_control for cell in cells]
    reasons = Counter((o.kind, o.message or o.signal or "") for o in outcomes)
    most = reasons.most_common(_MOST_REASONS)
    yield from (f"no answer in {count(n, 'cell')}: {kind}: {why}" for (kind, why), n in most)
    if len(reasons) > len(most):
        yield f"and {len(reasons) - len(most)} other reasons"


def _sweep_summary(cells: Sequence[SweptCell], counts: SweepCounts) -> Summary:
    what = "the name or the pragma" if any(cell.template == PRAGMA for cell in cells) else "the name"
    compared, changed = counts.compared, counts.cells_changed
    if not compared:
        verdict, tone = "nothing could be compared", Tone.UNSURE
    elif changed:
        verdict, tone = f"{what} changes {count(changed, 'cell')} of {compared:,}", Tone.CHANGED
    else:
        verdict, tone = f"{what} changes the code in no cell; {compared:,} were compared", Tone.GOOD
    facts = []
    if counts.crashes:
        tone = Tone.BAD
        facts.append(f"ptxas crashes in {count(counts.crashes, 'cell')} under the name only")
    if counts.cells_unsteady:
        facts.append(f"{count(counts.cells_unsteady, 'cell')} unsteady: the same name gives several codes")
    kernels, versions = {cell.kernel for cell in cells}, {cell.ptxas for cell in cells}
    subject = f"{count(len(kernels), 'kernel')}, {count(len(versions), 'ptxas version')}"
    return Summary("Sweep", subject, verdict, tone, tuple(facts))
