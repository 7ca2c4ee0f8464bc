"""Result of `bisect`: which version of ptxas changed a kernel first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from typing import ClassVar, Literal

from tritonhook._util.schema import Fields, Positive, like
from tritonhook.report.result import Result, Summary, Table, Tone, count, grouped, number
from tritonhook.report.results.snapshot import TITLES, KernelFigures, Named, namer
from tritonhook.snapshot.bisection import Search, value_of

_BESIDE = ("registers", "spill_stores", "spill_loads", "stack")  # every table of versions shows these


class VersionFields(Fields):
    """A kernel under one version of ptxas. changed: whether it differs from the good version; null: not known. reason:
    why this version does not assemble the kernel; "" if it does.

    values: the compared figure: a number, "stores + loads" for spills, or the hash of the code. made: all figures of
    the code. Both have several entries if this ptxas gives different code for the same input.
    """

    version: str
    changed: bool | None
    reason: str
    values: tuple[str, ...]
    made: tuple[KernelFigures, ...]

    @classmethod
    def of(cls, search: Search, version: str) -> VersionFields:
        tried = search.tried[version]
        values = {value for facts in tried.facts if (value := value_of(facts, search.on)) is not None}
        texts = sorted(" + ".join(map(str, value)) if isinstance(value, tuple) else str(value) for value in values)
        made = tuple(map(KernelFigures.of, tried.facts))
        return cls(version, search.is_changed(version), tried.failure, tuple(texts), made)

    def row(self, figures: Sequence[str]) -> tuple[str, ...]:
        shown = (" or ".join(dict.fromkeys(number(made.figures[name]) for made in self.made)) for name in figures)
        codes = " or ".join(sorted({code for made in self.made for code in made.codes}))
        return (self.version, *shown, self.reason or codes)

    @property
    def tone(self) -> Tone:
        return Tone.UNSURE if self.changed is None else Tone.CHANGED if self.changed else Tone.NEUTRAL


class BisectedKernel(Fields):
    """One kernel. number, specialisation: as in KernelChange.

    first: the oldest tried version that changed the kernel; null if the good and the bad version give the same value,
    or if the search was impossible. problem: why it was impossible: the good or the bad version gives no value; null if
    it was possible. before: the newest version older than `first` that did not change it. between: versions between
    `before` and `first` that have no result. returned: versions after `first` that give the good version's value again.
    tried: the versions tried, the oldest first.
    """

    kernel: str
    arch: str
    specialisation: tuple[str, ...]
    number: Positive
    first: str | None
    before: str | None
    between: tuple[str, ...]
    returned: tuple[str, ...]
    problem: str | None
    tried: tuple[VersionFields, ...]

    @classmethod
    def of(cls, search: Search) -> BisectedKernel:
        tried = tuple(VersionFields.of(search, version) for version in search.versions if version in search.tried)
        return like(search, cls, **asdict(search.identity), tried=tried)

    @property
    def step(self) -> str:
        """Values before and after the first change. Raises KeyError if nothing changed."""
        values = {tried.version: " or ".join(tried.values) for tried in self.tried}
        return f"{values[self.before or '']} → {values[self.first or '']}"


class Bisect(Result, tag="bisect"):
    """The first version of ptxas that changed a kernel.

    subject: file or folder of the kernels. good, bad: the first and the last version of the search. on: the figure that
    is compared. versions: all versions from good to bad. all_versions: whether all of them were tried. notes: e.g.
    which versions were fetched.
    """

    verbs: ClassVar = "bisect"

    subject: str
    good: str
    bad: str
    on: Literal["spills", "stack", "registers", "shared", "instructions", "loop_instructions", "code"]
    versions: tuple[str, ...]
    all_versions: bool
    kernels: tuple[BisectedKernel, ...]
    notes: tuple[str, ...]

    @classmethod
    def of(cls, subject: str, searches: Sequence[Search], all_versions: bool, notes: Sequence[str]) -> Bisect:
        """Build from at least one search; all searches cover the same versions."""
        kernels = tuple(map(BisectedKernel.of, searches))
        return like(searches[0], cls, subject=subject, all_versions=all_versions, kernels=kernels, notes=tuple(notes))

    def summary(self) -> Summary:
        name = namer(self.kernels)
        tried = len({tried.version for kernel in self.kernels for tried in kernel.tried})
        return Summary(
            f"First ptxas that changed {self._on}",
            f"{self.subject}, from {self.good} to {self.bad}",
            *self._verdict(),
            tuple(self._facts(name)),
            tuple(self._tables(name)),
            (*self.notes, f"tried {tried:,} of the {len(self.versions):,} versions from {self.good} to {self.bad}"),
        )

    @property
    def _on(self) -> str:
        return self.on.replace("_", " ")

    @property
    def _changed(self) -> list[BisectedKernel]:
        return [kernel for kernel in self.kernels if kernel.first is not None]

    def _verdict(self) -> tuple[str, Tone]:
        first = Counter(kernel.first for kernel in self._changed)
        problems = [kernel.problem for kernel in self.kernels if kernel.problem is not None]
        if len(self.kernels) == 1 and first:
            return f"ptxas {next(iter(first))} changed it first: {self._on} {self.kernels[0].step}", Tone.CHANGED
        if len(self.kernels) == 1 and problems:
            return f"not known: {problems[0]}", Tone.UNSURE
        if not first and not problems:
            return f"ptxas {self.good} and {self.bad} give the same {self._on}", Tone.GOOD
        of = count(len(self.kernels), "kernel")
        unknown = f"{len(problems):,} of {of} not known" if problems else ""
        if not first:
            return unknown, Tone.UNSURE
        changed = f"{sum(first.values()):,} of {of} changed"
        by = ", ".join(f"{version} ({times:,})" for version, times in first.most_common())
        return f"{', '.join(filter(None, (changed, unknown)))}; first by ptxas {by}", Tone.CHANGED

    def _facts(self, name: Callable[[Named], str]) -> Iterator[str]:
        """Yield further facts: which versions just before the first change have no result, and which later versions
        give the old code again."""
        for kernel in self._changed:
            if kernel.between:
                skipped = f"{', '.join(kernel.between)} {_do(kernel.between, 'does', 'do')} not assemble it"
                between = f"between {kernel.before} and {kernel.first}"
                yield f"the first change of {name(kernel)} lies {between}: {skipped}"
            if kernel.returned:
                newer = f"{', '.join(kernel.returned)} {_do(kernel.returned, 'gives', 'give')} what {self.good} gives"
                more = "" if self.all_versions else "; --all tries every version"
                yield f"the change of {name(kernel)} did not last: {newer}{more}"
        if len(self.kernels) > 1:
            problems = ((name(kernel), kernel.problem) for kernel in self.kernels if kernel.problem is not None)
            for problem, names in grouped(problems).items():
                yield f"not known for {names}: {problem}"

    def _tables(self, name: Callable[[Named], str]) -> Iterator[Table]:
        if len(self.kernels) == 1:
            yield self._versions(self.kernels[0], "")
        elif changed := self._changed:
            columns = ("kernel", "first changed by", "last version before", self._on)
            rows = tuple((name(k), str(k.first), str(k.before), k.step) for k in changed)
            yield Table("Changed kernels", columns, rows, left=len(columns))
            for kernel in changed if self.all_versions else ():
                yield self._versions(kernel, f": {name(kernel)}")

    def _versions(self, kernel: BisectedKernel, which: str) -> Table:
        """Make the table of one kernel, with a row for each version tried."""
        figures = [figure for figure in dict.fromkeys((self.on, *_BESIDE)) if figure in TITLES]
        columns = ("ptxas", *(TITLES[figure] for figure in figures), "code")
        rows, tones = tuple(tried.row(figures) for tried in kernel.tried), tuple(tried.tone for tried in kernel.tried)
        return Table(f"Versions tried{which}", columns, rows, tones=tones, words=(len(columns) - 1,))


def _do(versions: Sequence[str], singular: str, several: str) -> str:
    return singular if len(versions) == 1 else several
