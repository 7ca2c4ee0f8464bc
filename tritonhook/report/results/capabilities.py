"""Result of `lab caps`: which instructions each architecture has.

One or two targets are shown in full. With more targets, those with equal cells share a column, and further tables show
opcodes, driver calls, and the cells in which an older ptxas differs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Annotated, ClassVar

from msgspec import Meta

from tritonhook._util.schema import Count, Fields, Version
from tritonhook.lab.capabilities import EVIDENCE, Cell, Matrix, PtxasVersion, Status
from tritonhook.report.result import Result, Summary, Table, Tone, count

_SIGNS = {Status.REJECTED: "-", Status.UNKNOWN_VERSION: "?", Status.CRASHED: "crash"}
LEGEND = (
    "inline: the SASS opcode named in the row. syscall: calls a function of the driver, alone or with the opcode. "
    "emulated: other opcodes do the work. -: ptxas refuses it. ?: this ptxas is too old for the instruction."
)
_DETAILED_ARCHS = 2  # for more targets than these, there is no room for opcodes and reasons
_Outcome = tuple[Status, str, str]


class PtxasCells(Fields):
    """One ptxas. ptx_version: the newest PTX version that it reads; the probes are written in it. cells: for each
    probe, a list with an index into `outcomes` for each of `archs`."""

    ptx_version: Version
    archs: tuple[str, ...]
    cells: dict[str, tuple[Count, ...]]


class Capabilities(Result, tag="capabilities"):
    """The instructions of each architecture.

    evidence: how they were found. ptxas: the cells of each version of ptxas. outcomes: all different cells: lists of
    status, SASS opcodes, and ptxas's reason or the driver calls, in which {arch} stands for the target.
    """

    verbs: ClassVar = "lab caps"

    evidence: str
    ptxas: Annotated[dict[Version, PtxasCells], Meta(min_length=1)]
    outcomes: dict[Annotated[str, Meta(pattern=r"\A[0-9]{1,9}\Z")], _Outcome]

    @classmethod
    def of(cls, matrix: Matrix) -> Capabilities:
        """Build from a matrix. `outcomes` are its distinct cells; the cells of each ptxas are indices into them."""
        numbers = {cell: i for i, cell in enumerate(dict.fromkeys(matrix.cells.values()))}

        def row(version: PtxasVersion, probe: str) -> tuple[int, ...]:
            return tuple(numbers[matrix.cells[version.version, arch, probe]] for arch in version.archs)

        ptxas = {
            tool.version: PtxasCells(tool.ptx_version, tool.archs, {probe: row(tool, probe) for probe in matrix.probes})
            for tool in matrix.assemblers
        }
        outcomes = {str(i): (cell.status, cell.opcode, cell.reason) for cell, i in numbers.items()}
        return cls(EVIDENCE, ptxas, outcomes)

    @property
    def matrix(self) -> Matrix:
        """The cells as a Matrix. Raises KeyError or ValueError if outcomes are missing."""
        outcomes = {int(number): Cell(*outcome) for number, outcome in self.outcomes.items()}
        cells = {
            (version, arch, probe): outcomes[number]
            for version, cells in self.ptxas.items()
            for probe, numbers in cells.cells.items()
            for arch, number in zip(cells.archs, numbers, strict=True)
        }
        versions = tuple(PtxasVersion(version, cells.ptx_version, cells.archs) for version, cells in self.ptxas.items())
        return Matrix(versions, tuple(list(self.ptxas.values())[-1].cells), cells)

    def summary(self) -> Summary:
        matrix = self.matrix
        newest = matrix.newest
        counts = Counter(matrix.cells[newest.version, arch, p].status for p in matrix.probes for arch in newest.archs)
        return Summary(
            "Capabilities",
            f"ptxas {', '.join(a.version for a in matrix.assemblers)}",
            f"{count(len(matrix.probes), 'instruction')} on {count(len(newest.archs), 'architecture')}",
            Tone.NEUTRAL,
            (", ".join(f"{n:,} {status.value}" for status, n in counts.most_common()),),
            _tables(matrix),
            (EVIDENCE, *([LEGEND] if _is_condensed(matrix) else []), *_target_changes(matrix)),
        )


def _tables(matrix: Matrix) -> tuple[Table, ...]:
    """Return a table of all cells for one or two targets; for more, a condensed table and tables of what it leaves
    out."""
    newest = matrix.newest
    if not _is_condensed(matrix):
        return tuple(_in_full(matrix, assembler) for assembler in reversed(matrix.assemblers))
    tables = (
        _condensed(matrix),
        _text_table("Emulated", ("instruction", "on", "made of"), _made_of(matrix, newest, Status.EMULATED)),
        _text_table(
            "Calls into the driver", ("instruction", "on", "made of"), _made_of(matrix, newest, Status.SYSCALL)
        ),
        _text_table("Older ptxas", ("ptxas", "instruction", "on", "then and now"), _changes(matrix)),
    )
    return tuple(table for table in tables if table.rows)


def _is_condensed(matrix: Matrix) -> bool:
    return len(matrix.newest.archs) > _DETAILED_ARCHS


def _text_table(title: str, columns: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Table:
    return Table(title, columns, tuple(rows), len(columns))


def _title(assembler: PtxasVersion) -> str:
    return f"ptxas {assembler.version}, PTX {assembler.ptx_version}"


def _in_full(matrix: Matrix, assembler: PtxasVersion) -> Table:
    def row(probe: str, arch: str) -> tuple[str, ...]:
        cell = matrix.cells[assembler.version, arch, probe]
        return probe, arch, cell.status.value, cell.opcode, cell.reason_for(arch)

    rows = (row(probe, arch) for probe in matrix.probes for arch in assembler.archs)
    return _text_table(_title(assembler), ("instruction", "target", "", "SASS", "reason"), rows)


# --- the condensed table -------------------------------------------------------------------------


def _condensed(matrix: Matrix) -> Table:
    """Show the cells of the newest ptxas. Targets whose cells are equal share a column."""
    newest = matrix.newest
    groups = merged(matrix, newest)

    def row(probe: str) -> tuple[str, ...]:
        statuses = (matrix.cells[newest.version, archs[0], probe].status for archs in groups)
        return probe, *(_SIGNS.get(s, s.value) for s in statuses), _opcodes(matrix, newest, probe)

    columns = ("instruction", *map(_listed, groups), "SASS")
    return _text_table(_title(newest), columns, map(row, matrix.probes))


def merged(matrix: Matrix, assembler: PtxasVersion) -> list[tuple[str, ...]]:
    """Group targets whose cells are equal, ordered by the first target of each group."""
    groups: dict[tuple[Status, ...], list[str]] = {}
    for arch in assembler.archs:
        column = tuple(matrix.cells[assembler.version, arch, probe].status for probe in matrix.probes)
        groups.setdefault(column, []).append(arch)
    return [tuple(group) for group in groups.values()]


def _listed(archs: Iterable[str]) -> str:
    """List targets, with the prefix only once: "sm_80, 86, 87"."""
    first, *others = archs
    return ", ".join([first, *(arch.removeprefix("sm_") for arch in others)])


def _opcodes(matrix: Matrix, assembler: PtxasVersion, probe: str) -> str:
    """List the SASS opcodes of an inline instruction, the most frequent one first. Each other opcode stands after the
    targets that have it: "HMMA; sm_100, 103: UTCHMMA"."""

    def of(arch: str) -> str:
        cell = matrix.cells[assembler.version, arch, probe]
        return cell.opcode if cell.status is Status.INLINE else ""

    values = _by_value(assembler.archs, of)
    return "; ".join(text if i == 0 else f"{_listed(archs)}: {text}" for i, (text, archs) in enumerate(values))


def _by_value(archs: Sequence[str], value: Callable[[str], str]) -> list[tuple[str, list[str]]]:
    """Group targets by value, the most frequent value first. Leave out targets with an empty value."""
    by_value: dict[str, list[str]] = {}
    for arch in archs:
        if text := value(arch):
            by_value.setdefault(text, []).append(arch)
    return sorted(by_value.items(), key=lambda item: -len(item[1]))


# --- what the condensed table leaves out ---------------------------------------------------------


def _made_of(matrix: Matrix, assembler: PtxasVersion, status: Status) -> Iterator[tuple[str, str, str]]:
    """Yield (instruction, targets, opcodes with reasons) for the cells with this status."""
    for probe in matrix.probes:

        def made_of(arch: str, probe: str = probe) -> str:
            cell = matrix.cells[assembler.version, arch, probe]
            return "; ".join(filter(None, (cell.opcode, cell.reason))) if cell.status is status else ""

        for text, archs in _by_value(assembler.archs, made_of):
            yield probe, _listed(archs), text


def _changes(matrix: Matrix) -> Iterator[tuple[str, str, str, str]]:
    """Yield (versions, instruction, targets, change) where older versions of ptxas have another status than the newest.
    change: e.g. "syscall, now inline"."""
    newest = matrix.newest
    changes: dict[tuple[str, str, str], list[str]] = {}
    for assembler in matrix.assemblers[:-1]:
        for probe in matrix.probes:

            def change(arch: str, version: str = assembler.version, probe: str = probe) -> str:
                then, now = matrix.cell(version, arch, probe), matrix.cell(newest.version, arch, probe)
                if then is None or now is None or then.status is now.status:
                    return ""
                why = (
                    f" ({then.reason_for('this target')})" if then.reason and then.status is not Status.SYSCALL else ""
                )
                return f"{then.status.value}{why}, now {now.status.value}"

            for text, archs in _by_value(assembler.archs, change):
                changes.setdefault((probe, _listed(archs), text), []).append(assembler.version)
    for (probe, where, text), versions in changes.items():
        yield ", ".join(versions), probe, where, text


def _target_changes(matrix: Matrix) -> Iterator[str]:
    """Yield a line of text for each older ptxas whose targets differ from those of the newest."""
    newest = matrix.newest
    for assembler in matrix.assemblers[:-1]:
        if missing := [arch for arch in newest.archs if arch not in assembler.archs]:
            yield f"ptxas {assembler.version} does not support {_listed(missing)}."
        if gone := [arch for arch in assembler.archs if arch not in newest.archs]:
            yield f"ptxas {assembler.version} supports {_listed(gone)}, and {newest.version} does not."
