"""Measure the published table of the name effect again: the conditions of kernels/published.py and any further
kernel, assembled under a plain name, a control name of equal length, and the name with "cutlass"."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from tritonhook.compare.names import NameComparison, RenamedBuild, compare_names
from tritonhook.lab.kernels.published import CONDITIONS
from tritonhook.ptx.module import Ptx
from tritonhook.ptxas.toolchain import Toolchain
from tritonhook.rename import PREFIX, Rename

PTXAS = "12.8.93"  # the version of the published table
ATTENTION_PUBLISHED = (1.15, 3.20)
_CAPMERC = ".nv.capmerc.text.{kernel}"


@dataclass(frozen=True, slots=True)
class ConditionRow:
    """One condition: what was published and what was assembled here."""

    title: str
    published: tuple[float, float] | None
    note: str
    comparison: NameComparison

    @property
    def size_ratio(self) -> float | None:
        """File size under the cutlass name over that under the plain name, as published. The names differ in length."""
        return _ratio(_size(self.comparison.original), _size(self.comparison.renamed))

    @property
    def fair_size_ratio(self) -> float | None:
        """File size under the cutlass name over that under the control name, which has the same length."""
        return _ratio(_size(self.comparison.control), _size(self.comparison.renamed))

    @property
    def capmerc_bytes(self) -> tuple[int | None, int | None]:
        return _capmerc(self.comparison.original), _capmerc(self.comparison.renamed)

    @property
    def capmerc_ratio(self) -> float | None:
        return _ratio(*self.capmerc_bytes)

    @property
    def records(self) -> int | None:
        """Number of records of the other scheduler under the cutlass name."""
        build = self.comparison.renamed
        return None if build.cubin is None else build.cubin.scheduler_records(build.kernel)

    @property
    def code_changed(self) -> bool | None:
        diff = self.comparison.diff
        return None if diff is None else not diff.identical_code

    @property
    def failure(self) -> str | None:
        """Why there is no cubin under the cutlass name, and whether there is one under the control name."""
        crashes = dict(self.comparison.crashes)
        crashed = crashes.get(self.comparison.renamed.kernel)
        if crashed is None:
            return None
        control = "and under the control name" if self.comparison.control.kernel in crashes else "only"
        return f"{crashed.summary} under the cutlass name {control}"


def _size(build: RenamedBuild) -> int | None:
    return None if build.cubin is None else len(build.cubin.data)


def _capmerc(build: RenamedBuild) -> int | None:
    section = None if build.cubin is None else build.cubin.section(_CAPMERC, build.kernel)
    return None if section is None else section.size


def _ratio(a: int | None, b: int | None) -> float | None:
    return b / a if a and b is not None else None


@dataclass(frozen=True, slots=True)
class ExtraRow:
    """A further kernel for the table, with the options that its own compiler gives ptxas."""

    title: str
    ptx: Ptx
    arguments: Sequence[str]
    published: tuple[float, float] | None = None
    note: str = ""


def measure(toolchain: Toolchain, extra: Iterable[ExtraRow] = ()) -> Iterator[ConditionRow]:
    """Yield the rows in the order of the published table; the extra ones come last. Raises AssembleError."""
    # Without line info, as in the published sizes of the minimal kernels.
    work = [ExtraRow(c.title, c.ptx(), ("-v",), c.published, c.note) for c in CONDITIONS] + list(extra)
    with ThreadPoolExecutor(max_workers=2) as pool:
        yield from pool.map(lambda row: _measured(toolchain, row), work)


def _measured(toolchain: Toolchain, row: ExtraRow) -> ConditionRow:
    comparison = compare_names(row.ptx, Rename(prefix=PREFIX), toolchain, row.arguments)
    return ConditionRow(row.title, row.published, row.note, comparison)
