"""The cells of a sweep over names: what each tells, its sign, and what tables and pages show of many."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from msgspec import UNSET, UnsetType

from tritonhook._util.schema import Count, Fields, Version, like
from tritonhook.lab.name_probe import CRASHES, NameCell, NameVerdict
from tritonhook.lab.name_templates import PRAGMA
from tritonhook.lab.outcome import Outcome, OutcomeKind
from tritonhook.report.format import count
from tritonhook.report.summary import Summary, Table, Tone

SIGNS = ("X", "D", "~", ".", "-")  # the gravest first
MEANINGS = {
    "X": "ptxas crashes under the name only",
    "D": "the name changes the code",
    "~": "ptxas is unsteady",
    ".": "same",
    "-": "does not assemble",
    "": "not asked",
}
_VERDICTS = {NameVerdict.CHANGED: "D", NameVerdict.UNSTEADY: "~", NameVerdict.SAME: ".", NameVerdict.NO_ANSWER: "-"}
_MOST_REASONS = 5
NAMES = "Names (* is the kernel's own)"
_Figure = Count | UnsetType | None


class CellOutcome(Fields):
    """What ptxas made. kind: `assembled`, or how it failed. message, signal: of a failure. The others: of a cubin."""

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

    @property
    def told(self) -> str:
        details = [text for text in (self.signal, self.message) if text]
        return ": ".join([self.kind, *details]) if details or self.kind != OutcomeKind.ASSEMBLED.value else ""

    @property
    def measures(self) -> dict[str, int | None]:
        """By name, those of a cubin."""
        figures = {name: getattr(self, name) for name in self.__struct_fields__[4:]}
        return {name.replace("_", " "): value for name, value in figures.items() if value is not UNSET}


class BothNames(Fields):
    """A property under the name and under the control; null: cannot be told."""

    name: bool | None
    control: bool | None


class SweptCell(Fields):
    """One kernel under one name, for one ptxas, target and set of options.

    template: the name as asked for, or `.pragma`. control: the control name. differences: `code`, `registers`, `stack`,
    `spills`, `shared`, `externs`, `program`, `sections`; or `crash`, `timeout`, `memory`, `rejected`. draws: runs of
    each name that confirmed it; 0: none were needed. sections_changed: bytes under the control and under the name.
    code: a key of `codes`.
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
    code: str | UnsetType | None = UNSET

    @classmethod
    def of(cls, cell: NameCell, code: str | UnsetType | None = UNSET) -> SweptCell:
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
            code=code,
        )

    @property
    def sign(self) -> str:
        crashed = self.verdict is NameVerdict.CHANGED and self.differences[:1] and self.differences[0] in CRASHES
        return "X" if crashed else _VERDICTS[self.verdict]

    @property
    def shown(self) -> Shown:
        control, named = self.with_control.measures, self.with_name.measures
        return Shown(
            kernel=self.kernel,
            arch=self.arch,
            ptxas=self.ptxas,
            options=telling_options(self.options),
            template=self.template,
            sign=self.sign,
            names=(self.control, self.name),
            differences=self.differences,
            draws=self.draws,
            scheduler=(self.other_scheduler.control, self.other_scheduler.name),
            measures=tuple((key, control.get(key), named.get(key)) for key in {**control, **named}),
            messages=(self.with_control.told, self.with_name.told),
            sections=tuple((role, *sizes) for role, sizes in self.sections_changed.items()),
            code=self.code or None,
        )


@dataclass(frozen=True, slots=True)
class Shown:
    """A cell as tables and pages show it. Pairs have the control first."""

    kernel: str
    arch: str
    ptxas: str
    options: str
    template: str
    sign: str
    names: tuple[str, str] | None
    differences: tuple[str, ...]
    draws: int | None
    scheduler: tuple[bool | None, bool | None]
    measures: tuple[tuple[str, int | None, int | None], ...]
    messages: tuple[str, str] = ("", "")
    sections: tuple[tuple[str | int | None, ...], ...] = ()
    code: str | None = None


def telling_options(options: Iterable[str]) -> str:
    """ptxas's options without those that cannot change the code."""
    return " ".join(option for option in options if option not in ("-v", "-lineinfo"))


def gravest(signs: Sequence[str]) -> str:
    """The gravest of several signs; empty for none."""
    return next((sign for sign in SIGNS if sign in signs), "")


def differences(cells: Iterable[Shown]) -> list[tuple[str, int]]:
    """What differs in changed cells, and in how many of them; the most frequent first."""
    return Counter(name for cell in cells if cell.sign in "XD" for name in cell.differences).most_common()


def names_tables(cells: Iterable[Shown]) -> tuple[Table, ...]:
    """Each name with the number of its cells by sign; no table for a single name."""
    rows = tuple((name, *(f"{by_sign[sign]:,}" for sign in SIGNS)) for name, by_sign in signs_of(cells).items())
    columns = ("name", "crash", "changed", "unsteady", "same", "no answer")
    return (Table(NAMES, columns, rows),) if len(rows) > 1 else ()


def signs_of(cells: Iterable[Shown]) -> dict[str, Counter[str]]:
    """How many cells of each name have each sign; names that change most first."""
    counts: dict[str, Counter[str]] = {}
    for cell in cells:
        counts.setdefault(cell.template, Counter())[cell.sign] += 1
    return dict(sorted(counts.items(), key=lambda item: -(item[1]["D"] + item[1]["X"])))


def no_answers(cells: Iterable[SweptCell]) -> Iterator[str]:
    """Why cells have no answer, the most frequent reasons first."""
    outcomes = [cell.with_control for cell in cells]
    reasons = Counter((o.kind, o.message or o.signal or "") for o in outcomes)
    most = reasons.most_common(_MOST_REASONS)
    yield from (f"no answer in {count(n, 'cell')}: {kind}: {why}" for (kind, why), n in most)
    if len(reasons) > len(most):
        yield f"and {len(reasons) - len(most)} other reasons"


class Counts(Protocol):
    """How many cells were asked."""

    @property
    def compared(self) -> int: ...

    @property
    def cells_changed(self) -> int: ...

    @property
    def crashes(self) -> int: ...

    @property
    def cells_unsteady(self) -> int | UnsetType | None: ...


def sweep_summary(cells: Sequence[Shown], counts: Counts) -> Summary:
    """counts: those of `name trigger` are over more cells than it keeps."""
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
        facts.append(f"{count(counts.cells_unsteady, 'cell')} unsteady: the same name has several codes there")
    kernels, versions = {cell.kernel for cell in cells}, {cell.ptxas for cell in cells}
    subject = f"{count(len(kernels), 'kernel')}, {count(len(versions), 'ptxas version')}"
    return Summary("Sweep", subject, verdict, tone, tuple(facts))
