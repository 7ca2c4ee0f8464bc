"""The published table of the name effect, beside what was assembled here, `demo --table`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from msgspec import UNSET, UnsetType

from tritonhook._util.schema import Count, Fields, Number, like
from tritonhook.lab import published_table
from tritonhook.ptxas.tool import Tool
from tritonhook.report.format import count, number
from tritonhook.report.result import Result
from tritonhook.report.summary import Summary, Table, Tone

_CODE = {True: "changed", False: "same", None: "not known"}


class PublishedRatio(Fields):
    """What was published. size, capmerc: with the trigger, divided by without."""

    size: Number | UnsetType | None = UNSET
    capmerc: Number | UnsetType | None = UNSET


class PublishedRow(Fields):
    """One condition of the published table; ratios are with the trigger, divided by without.

    size_ratio, size_ratio_equal_length: of the file; with names of equal length. capmerc_ratio, capmerc_bytes: of
    .nv.capmerc. failure: of ptxas.
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
    """ "1.55 (1.56)": the ratio here, and the published one if there is one."""
    beside = "" if published is None or published is UNSET else f" ({published:.2f})"
    return ("-" if here is None else f"{here:.2f}") + beside


class PublishedTable(Result, tag="table"):
    """The published table of the name effect, assembled here. ptxas: its version. targets: of the rows. notes: why it
    is not the published ptxas."""

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
        title = f"With cutlass in the name, divided by without; ptxas {self.ptxas}"
        columns = (
            *("condition", "size (published)", "at equal name length"),
            *("capmerc (published)", "capmerc, bytes", "code"),
        )
        rows, tones = tuple(row.row for row in self.rows), tuple(row.tone for row in self.rows)
        return Table(title, columns, rows, tones=tones, words=(5,))
