"""What names do to kernels, over all ptxas: benchmarks/results/name_trigger.json."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, ClassVar

from msgspec import UNSET, Meta, UnsetType, field

from tritonhook._util.schema import Count, Fields, Version
from tritonhook.report.format import count
from tritonhook.report.result import Result
from tritonhook.report.results.cells import NAMES, Shown, sweep_summary
from tritonhook.report.summary import Summary, Table


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
