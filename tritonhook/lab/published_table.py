"""The published table of the name effect, measured again: the conditions of microkernel.py and any further
kernel, assembled under a plain name, a control of equal length, and the name with "cutlass"."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from tritonhook.compare.names import Build, NameComparison, compare_names
from tritonhook.lab.kernels.published import CONDITIONS
from tritonhook.ptx.module import Ptx
from tritonhook.ptxas.toolchain import Toolchain
from tritonhook.rename import PREFIX, Rename

PTXAS = "12.8.93"  # the version of the published table
ATTENTION_PUBLISHED = (1.15, 3.20)
_CAPMERC = ".nv.capmerc.text.{kernel}"


@dataclass(frozen=True, slots=True)
class Row:
    """One condition: what was published and what was assembled here."""

    title: str
    published: tuple[float, float] | None
    note: str
    comparison: NameComparison

    @property
    def size_ratio(self) -> float | None:
        """File size under the cutlass name over the plain name's: the published way, length and all."""
        return _ratio(_size(self.comparison.original), _size(self.comparison.renamed))

    @property
    def fair_size_ratio(self) -> float | None:
        """The same against the control name, which is as long."""
        return _ratio(_size(self.comparison.control), _size(self.comparison.renamed))

    @property
    def capmerc_bytes(self) -> tuple[int | None, int | None]:
        return _capmerc(self.comparison.original), _capmerc(self.comparison.renamed)

    @property
    def capmerc_ratio(self) -> float | None:
        return _ratio(*self.capmerc_bytes)

    @property
    def records(self) -> int | None:
        """16-byte records of the other scheduler under the cutlass name."""
        build = self.comparison.renamed
        return None if build.cubin is None else build.cubin.scheduler_records(build.kernel)

    @property
    def code_changed(self) -> bool | None:
        diff = self.comparison.diff
        return None if diff is None else not diff.identical_code

    @property
    def failure(self) -> str | None:
        """Why there is no cubin under the cutlass name, and whether the control name fares better."""
        crashes = dict(self.comparison.crashes)
        crashed = crashes.get(self.comparison.renamed.kernel)
        if crashed is None:
            return None
        control = "and under the control name" if self.comparison.control.kernel in crashes else "only"
        return f"{crashed.summary} under the cutlass name {control}"


def _size(build: Build) -> int | None:
    return None if build.cubin is None else len(build.cubin.data)


def _capmerc(build: Build) -> int | None:
    section = None if build.cubin is None else build.cubin.section(_CAPMERC, build.kernel)
    return None if section is None else section.size


def _ratio(a: int | None, b: int | None) -> float | None:
    return b / a if a and b is not None else None


@dataclass(frozen=True, slots=True)
class Subject:
    """A further kernel for the table, with the options its own compiler gives ptxas."""

    title: str
    ptx: Ptx
    arguments: Sequence[str]
    published: tuple[float, float] | None = None
    note: str = ""


def measure(toolchain: Toolchain, subjects: Iterable[Subject] = ()) -> Iterator[Row]:
    """The rows, in the order of the published table; the further kernels come last."""
    # Without line info, as the published sizes of the minimal kernels are.
    work = [Subject(c.title, c.ptx(), ("-v",), c.published, c.note) for c in CONDITIONS] + list(subjects)
    with ThreadPoolExecutor(max_workers=2) as pool:
        yield from pool.map(lambda subject: _row(toolchain, subject), work)


def _row(toolchain: Toolchain, subject: Subject) -> Row:
    comparison = compare_names(subject.ptx, Rename(prefix=PREFIX), toolchain, subject.arguments)
    return Row(subject.title, subject.published, subject.note, comparison)
