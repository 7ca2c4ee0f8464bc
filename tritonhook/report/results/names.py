"""Results of `diff --rename` and `demo`: whether the name of a kernel changes its code. The kernel is assembled under
two names and a control name. The trigger is "cutlass" in a name: ptxas then uses its other scheduler.

Also the result of `demo --table`: the published table of that effect, beside ratios measured on this machine.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Annotated, ClassVar, Literal

from msgspec import UNSET, Meta, UnsetType

from tritonhook._util.schema import Count, Fields, Number, Whole, like
from tritonhook.compare import names
from tritonhook.compare.diff import CodeVerdict
from tritonhook.compare.names import NameComparison
from tritonhook.lab import published_table
from tritonhook.ptxas import toolchain
from tritonhook.ptxas.tool import Tool
from tritonhook.report.result import Result, Summary, Table, Tone, count, number, short
from tritonhook.report.results.capture import KernelFields
from tritonhook.report.results.diff import Diff


class AssemblerFields(Fields):
    """The ptxas that was used. version, path: null if not known."""

    version: str | None
    path: str | None
    arguments: tuple[str, ...]


class CrashFields(Fields):
    """A run of ptxas that crashed. summary: one line. signal: the signal that ended it. command: a command that repeats
    it."""

    summary: str
    signal: str | None
    returncode: Whole
    timeout: bool
    command: str
    stderr: str
    ptxas: str


class NameBuild(Fields):
    """The build of a kernel under one name. file_bytes: null if ptxas crashed."""

    kernel: str
    file_bytes: Count | None
    crash: CrashFields | None

    @classmethod
    def of(cls, build: names.RenamedBuild) -> NameBuild:
        if isinstance(crash := build.result, toolchain.Crash):
            return cls(build.kernel, None, like(crash, CrashFields, ptxas=crash.tool.version))
        return cls(build.kernel, len(crash.cubin.data), None)


class CodesSeen(Fields):
    """How many different machine codes ptxas gave under each name."""

    original: Count
    renamed: Count
    control: Count


class Names(Result, tag="names"):
    """One kernel under two names and a control name.

    runs: how often the kernel was assembled under each name. control_is_neutral: whether the control name gives the
    same code as the name without the trigger; null: not assembled. control_diff: how these two codes differ. diff:
    compares the two names of equal length; null if one of them crashed ptxas.
    """

    verbs: ClassVar = "diff --rename"

    ptxas: AssemblerFields
    original: NameBuild
    renamed: NameBuild
    control: NameBuild
    runs: Count
    codes_seen: CodesSeen
    control_is_neutral: bool | None
    control_diff: str | None
    diff: Diff | None
    format: Literal[1] = 1  # written also when it is part of another result

    @classmethod
    def of(
        cls, comparison: NameComparison, ptxas: Tool | None = None, arguments: Sequence[str] = (), full: bool = False
    ) -> Names:
        """Build from a NameComparison. ptxas, arguments: the assembler and its options. full: add the code, for an HTML
        page or a saved file."""
        version, path = (None, None) if ptxas is None else (ptxas.version, str(ptxas.path))
        original, renamed, control = builds = comparison.original, comparison.renamed, comparison.control
        diff = comparison.diff
        if diff is not None:
            texts = {build.kernel: build.ptx.text for build in builds}
            ptx = texts.get(diff.a_kernel), texts.get(diff.b_kernel)
            difference = Diff.of(diff, (version, version), ptx, (original.kernel, renamed.kernel), full=full)
        return cls(
            ptxas=AssemblerFields(version, path, tuple(arguments)),
            original=NameBuild.of(original),
            renamed=NameBuild.of(renamed),
            control=NameBuild.of(control),
            runs=comparison.runs,
            codes_seen=CodesSeen(*comparison.codes),
            control_is_neutral=comparison.control_is_neutral,
            control_diff=None if comparison.control_diff is None else comparison.control_diff.summary,
            diff=None if diff is None else difference,
        )

    def summary(self) -> Summary:
        table, notes, title = self.builds_table(), tuple(self._notes()), self._title
        crashes = tuple(f"under the name {build.kernel}: {crash.summary}" for _, build, crash in self._crashes)
        if self.diff is None:
            under = " and the ".join(name for name, *_ in self._crashes)
            verdict = f"ptxas crashes under the {under} name" if under else "nothing to compare"
            return Summary("Names", title, verdict, Tone.BAD, crashes, (table,), notes)
        inner = self.diff.summary()
        tables = (table, *inner.tables)
        if self._is_same and self.control_is_neutral is False:
            verdict = "the code changes with the name, but not with the trigger"
            return Summary("Names", title, verdict, Tone.UNSURE, (self._other(self.diff),), tables, notes)
        facts = (*crashes, *self._facts(), *inner.facts)
        return Summary("Names", title, inner.verdict, inner.tone, facts, tables, notes)

    @property
    def _title(self) -> str:
        return f"{short(self.original.kernel)} under the name {short(self.renamed.kernel)}"

    @property
    def _builds(self) -> tuple[tuple[str, NameBuild, int], ...]:
        seen = self.codes_seen
        return (
            ("original", self.original, seen.original),
            ("renamed", self.renamed, seen.renamed),
            ("control", self.control, seen.control),
        )

    @property
    def _crashes(self) -> list[tuple[str, NameBuild, CrashFields]]:
        return [(name, build, build.crash) for name, build, _ in self._builds if build.crash is not None]

    @property
    def _is_same(self) -> bool:
        return self.diff is not None and self.diff.verdict is CodeVerdict.SAME_CODE

    def _other(self, diff: Diff) -> str:
        """Explain that the code is the same under both names of equal length, and differs under the third name."""
        pair = [diff.a.kernel, diff.b.kernel]
        (other,) = (build.kernel for _, build, _ in self._builds if build.kernel not in pair)
        return f"the names {' and '.join(pair)} have one code, and {other} has another: {self.control_diff}"

    def _facts(self) -> Iterator[str]:
        yield "the name changes nothing in the code" if self._is_same else "the name changes the code"
        if max(seen for *_, seen in self._builds) > 1:
            codes = ", ".join(f"{seen} for {build.kernel}" for _, build, seen in self._builds)
            same = "one code is common to all names"
            told = same if self._is_same else "no code is common to all names; the nearest codes are compared"
            found = f"number of different codes in {self.runs} runs: {codes}"
            yield f"ptxas is not deterministic on this kernel: {found}; {told}"

    def builds_table(self) -> Table:
        rows = tuple(
            (name, build.kernel, number(seen), number(build.file_bytes), build.crash.summary if build.crash else "")
            for name, build, seen in self._builds
        )
        columns = ("", "kernel", "codes", "file, bytes", "")
        return Table(f"Three names, ptxas {number(self.ptxas.version)}", columns, rows, 2, words=(4,))

    def _notes(self) -> Iterator[str]:
        yield f"ptxas {number(self.ptxas.version)}, {' '.join(self.ptxas.arguments)}"
        if self.runs:
            yield f"assembled {count(self.runs, 'time')} under each name"
        control = self.control.kernel
        if self.control_is_neutral is None:
            yield f"control {control}: not assembled, so the effect of the name alone is not known"
        elif self.control_is_neutral:
            yield f"control {control}: gives the code of the name without the trigger, byte for byte"
        else:
            yield f"control {control}: the code also differs under this ordinary name: {self.control_diff}"
        for *_, crash in self._crashes:
            yield f"repeat the crash with: {crash.command}"


class Demo(Result, tag="demo"):
    """The demo's kernel under several names. comparisons: one for each kernel, by its original name."""

    verbs: ClassVar = "demo"

    captures: tuple[KernelFields, ...]
    comparisons: Annotated[dict[str, Names], Meta(min_length=1)]

    @property
    def first(self) -> Names:
        return next(iter(self.comparisons.values()))

    def summary(self) -> Summary:
        names = self.first.summary()
        return replace(names, notes=(*names.notes, "assembled, not executed or timed"))


# --- the published table --------------------------------------------------------------------------


_CODE = {True: "changed", False: "same", None: "not known"}


class PublishedRatio(Fields):
    """Published ratios. size, capmerc: value with the trigger divided by value without it."""

    size: Number | UnsetType | None = UNSET
    capmerc: Number | UnsetType | None = UNSET


class PublishedRow(Fields):
    """One condition of the published table. A ratio is the value with the trigger divided by the value without it.

    size_ratio: ratio of the file sizes. size_ratio_equal_length: the same for names of equal length. capmerc_ratio:
    ratio of the sizes of the section .nv.capmerc. capmerc_bytes: these sizes. failure: error of ptxas.
    """

    condition: str
    published: PublishedRatio | None
    size_ratio: Number | None
    size_ratio_equal_length: Number | None
    capmerc_ratio: Number | None
    capmerc_bytes: tuple[Count | None, Count | None]
    scheduler_records: Count | tuple[Count | None, ...] | None
    code_changed: bool | None
    failure: str | None
    note: str | None

    @classmethod
    def of(cls, row: published_table.ConditionRow) -> PublishedRow:
        return like(
            row,
            cls,
            condition=row.title,
            published=None if row.published is None else PublishedRatio(*row.published),
            size_ratio_equal_length=row.fair_size_ratio,
            scheduler_records=row.records,
        )

    @property
    def row(self) -> tuple[str, ...]:
        published = self.published or PublishedRatio()
        a, b = self.capmerc_bytes
        return (
            self.condition,
            _ratio(self.size_ratio, published.size),
            _ratio(self.size_ratio_equal_length),
            _ratio(self.capmerc_ratio, published.capmerc),
            "-" if b is None else f"{number(a)} → {number(b)}",
            "ptxas crash" if self.failure else _CODE[self.code_changed],
        )

    @property
    def tone(self) -> Tone:
        return Tone.BAD if self.failure else Tone.CHANGED if self.code_changed else Tone.NEUTRAL


def _ratio(here: float | None, published: float | UnsetType | None = None) -> str:
    """Format a ratio with the published one, if any: "1.55 (1.56)"."""
    beside = "" if published is None or published is UNSET else f" ({published:.2f})"
    return ("-" if here is None else f"{here:.2f}") + beside


class PublishedTable(Result, tag="table"):
    """The published table of the name effect, measured again on this machine. ptxas: its version. targets:
    architectures of the rows. notes: why another ptxas than the published one was used."""

    verbs: ClassVar = "demo --table"

    ptxas: str
    rows: tuple[PublishedRow, ...]
    targets: tuple[str, ...] | UnsetType = UNSET
    notes: tuple[str, ...] | UnsetType = UNSET

    @classmethod
    def of(cls, rows: Sequence[published_table.ConditionRow], ptxas: Tool, notes: Sequence[str] = ()) -> PublishedTable:
        targets = dict.fromkeys(row.comparison.original.ptx.target for row in rows)
        return cls(ptxas.version, tuple(map(PublishedRow.of, rows)), tuple(targets), tuple(notes))

    def summary(self) -> Summary:
        changed = sum(bool(row.code_changed) for row in self.rows)
        said = (f"{row.condition}: {row.note}" for row in self.rows if row.note)
        return Summary(
            "Published table",
            ", ".join([f"ptxas {self.ptxas}", *(self.targets or ())]),
            f"the name changes the code in {changed} of {count(len(self.rows), 'condition')}",
            Tone.CHANGED if changed else Tone.GOOD,
            tuple(f"{row.condition}: {row.failure}" for row in self.rows if row.failure),
            (self._table(),),
            (*(self.notes or ()), *said),
        )

    def _table(self) -> Table:
        title = f"Values with cutlass in the name, divided by values without it; ptxas {self.ptxas}"
        columns = (
            *("condition", "size (published)", "at equal name length"),
            *("capmerc (published)", "capmerc, bytes", "code"),
        )
        rows, tones = tuple(row.row for row in self.rows), tuple(row.tone for row in self.rows)
        return Table(title, columns, rows, tones=tones, words=(5,))
