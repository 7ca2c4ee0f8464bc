"""The capability matrix as text: a condensed table for the newest ptxas, what the words in it mean, and where older
ptxas differ."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from tritonhook.lab.capabilities import EVIDENCE, Cell, Matrix, PtxasVersion, Status
from tritonhook.report.terminal import PlainTable

_SHORT = {Status.REJECTED: "-", Status.UNKNOWN_VERSION: "?", Status.CRASHED: "crash"}
LEGEND = (
    "inline: the SASS opcode named in the row. syscall: calls a function of the driver, alone or beside the opcode. "
    "emulated: other opcodes do the work. -: ptxas refuses it. ?: this ptxas does not read the PTX version it needs."
)
_DETAILED_ARCHS = 2  # so few columns leave room for opcodes and reasons


def short(cell: Cell) -> str:
    return _SHORT.get(cell.status, cell.status.value)


def reason(cell: Cell, arch: str) -> str:
    return cell.reason.replace("{arch}", arch)


# --- columns -------------------------------------------------------------------------------------


def merged(matrix: Matrix, assembler: PtxasVersion) -> list[tuple[str, ...]]:
    """Architectures whose columns are equal, in the order of their first."""
    groups: dict[tuple[Status, ...], list[str]] = {}
    for arch in assembler.archs:
        column = tuple(matrix.cells[assembler.version, arch, probe].status for probe in matrix.probes)
        groups.setdefault(column, []).append(arch)
    return [tuple(group) for group in groups.values()]


def listed(archs: Iterable[str]) -> str:
    """sm_80, 86, 87: the prefix once."""
    first, *others = archs
    return ", ".join([first, *(arch.removeprefix("sm_") for arch in others)])


def _by_value(archs: Sequence[str], value: Callable[[str], str]) -> list[tuple[str, list[str]]]:
    """Architectures by a value, "" left out; the most frequent value first."""
    found: dict[str, list[str]] = {}
    for arch in archs:
        if text := value(arch):
            found.setdefault(text, []).append(arch)
    return sorted(found.items(), key=lambda item: -len(item[1]))


def opcodes(matrix: Matrix, assembler: PtxasVersion, probe: str) -> str:
    """The opcode wherever the instruction is inline or beside a syscall; others after their architectures."""

    def of(arch: str) -> str:
        cell = matrix.cells[assembler.version, arch, probe]
        return cell.opcode if cell.status is Status.INLINE else ""

    values = _by_value(assembler.archs, of)
    return "; ".join(text if i == 0 else f"{listed(archs)}: {text}" for i, (text, archs) in enumerate(values))


# --- what the table leaves out -------------------------------------------------------------------


def details(matrix: Matrix, assembler: PtxasVersion, status: Status) -> Iterator[tuple[str, str, str]]:
    """(probe, architectures, what it is made of) of the cells with this status."""
    for probe in matrix.probes:

        def made_of(arch: str, probe: str = probe) -> str:
            cell = matrix.cells[assembler.version, arch, probe]
            parts = ([cell.opcode] if cell.opcode else []) + ([cell.reason] if cell.reason else [])
            return "; ".join(parts) if cell.status is status else ""

        for text, archs in _by_value(assembler.archs, made_of):
            yield probe, listed(archs), text


def differences(matrix: Matrix) -> Iterator[tuple[str, str, str, str]]:
    """(versions, probe, architectures, "then, now inline") where an older ptxas has another status than the newest."""
    newest = matrix.newest
    found: dict[tuple[str, str, str], list[str]] = {}
    for assembler in matrix.assemblers[:-1]:
        for probe in matrix.probes:

            def change(arch: str, version: str = assembler.version, probe: str = probe) -> str:
                then, now = matrix.cell(version, arch, probe), matrix.cell(newest.version, arch, probe)
                if then is None or now is None or then.status is now.status:
                    return ""
                why = f" ({reason(then, 'this target')})" if then.reason and then.status is not Status.SYSCALL else ""
                return f"{then.status.value}{why}, now {now.status.value}"

            for text, archs in _by_value(assembler.archs, change):
                found.setdefault((probe, listed(archs), text), []).append(assembler.version)
    for (probe, where, text), versions in found.items():
        yield ", ".join(versions), probe, where, text


def target_changes(matrix: Matrix) -> Iterator[str]:
    """A sentence for each older ptxas whose targets are not the newest's."""
    newest = matrix.newest
    for assembler in matrix.assemblers[:-1]:
        if missing := [arch for arch in newest.archs if arch not in assembler.archs]:
            yield f"ptxas {assembler.version} does not know {listed(missing)}."
        if gone := [arch for arch in assembler.archs if arch not in newest.archs]:
            yield f"ptxas {assembler.version} knows {listed(gone)}, and {newest.version} does not."


def heading(matrix: Matrix) -> str:
    newest = matrix.newest
    return f"ptxas {newest.version}, PTX {newest.ptx_version}; {EVIDENCE}"


# --- terminal ------------------------------------------------------------------------------------


def render_matrix(matrix: Matrix) -> RenderableType:
    """With few architectures every cell in full, else one word a cell."""
    parts: list[RenderableType] = []
    newest = matrix.newest
    if len(newest.archs) <= _DETAILED_ARCHS:
        parts += [_in_full(matrix, assembler) for assembler in reversed(matrix.assemblers)]
        return Group(*parts, Text(f"These were {EVIDENCE}.", style="bold"))
    columns = merged(matrix, newest)
    table = PlainTable("", *map(listed, columns), "SASS", title=heading(matrix), padding=(0, 2, 0, 0))
    for probe in matrix.probes:
        cells = [short(matrix.cells[newest.version, archs[0], probe]) for archs in columns]
        table.add_row(probe, *cells, opcodes(matrix, newest, probe))
    parts += [table, Text(LEGEND, style="dim")]
    parts += [_table("Made of", details(matrix, newest, Status.EMULATED), "emulated", "on", "SASS")]
    parts += [_table("Driver calls", details(matrix, newest, Status.SYSCALL), "syscall", "on", "")]
    if len(matrix.assemblers) > 1:
        parts += [_table("Older ptxas", differences(matrix), "ptxas", "", "on", "")]
    return Group(*parts)


def _table(title: str, rows: Iterable[tuple[str, ...]], *columns: str) -> RenderableType:
    table = PlainTable(*columns, title=title, padding=(0, 2, 0, 0))
    for row in rows:
        table.add_row(*row)
    return table if table.row_count else Text("")


def _in_full(matrix: Matrix, assembler: PtxasVersion) -> RenderableType:
    title = f"ptxas {assembler.version}, PTX {assembler.ptx_version}"
    table = PlainTable("", "target", "", "SASS", "", title=title, padding=(0, 2, 0, 0))
    for probe in matrix.probes:
        for arch in assembler.archs:
            cell = matrix.cells[assembler.version, arch, probe]
            table.add_row(probe, arch, cell.status.value, cell.opcode, reason(cell, arch))
    return table


# --- Markdown ------------------------------------------------------------------------------------


def render_markdown(matrix: Matrix) -> str:
    """The condensed table and its notes as a document."""
    newest = matrix.newest
    columns = merged(matrix, newest)
    lines = [f"*{heading(matrix)}.*", "", LEGEND, "Targets whose columns would be equal share one.", ""]
    header = ["instruction", *map(listed, columns), "SASS"]
    rows = [
        [
            probe,
            *(short(matrix.cells[newest.version, archs[0], probe]) for archs in columns),
            _code(opcodes(matrix, newest, probe)),
        ]
        for probe in matrix.probes
    ]
    lines += _markdown_table(header, rows)
    for title, status in (("Emulated", Status.EMULATED), ("Calls into the driver", Status.SYSCALL)):
        found = [(probe, archs, _code(text)) for probe, archs, text in details(matrix, newest, status)]
        if found:
            lines += ["", f"## {title}", "", *_markdown_table(["instruction", "on", "made of"], found)]
    if others := list(differences(matrix)):
        lines += ["", "## Older ptxas", ""]
        lines += [f"- {sentence}" for sentence in target_changes(matrix)]
        lines += ["", *_markdown_table(["ptxas", "instruction", "on", "then and now"], others)]
    return "\n".join(lines) + "\n"


def _code(text: str) -> str:
    return f"`{text}`" if text else ""


def _markdown_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = [header, ["---"] * len(header), *rows]
    return ["| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines]


_INTRODUCTION = """# Which instructions each architecture has

What ptxas makes of one-instruction probes, as `tritonhook caps` asks them, for all targets from sm_80 on and {count}
versions of ptxas: {versions}.

This is *assembled*, never *executed*: it says what a compiler for the target may emit, not that a GPU of that name runs
it, nor how fast. Each probe (`tritonhook/lab/kernels/instructions.py`) is in the newest PTX version that its ptxas
reads. `benchmarks/caps.py` writes this file and `benchmarks/results/caps.json`, which has every cell of every version
with ptxas's reasons.

What to take from it:

- **GB10 and RTX 50 (sm_12x)**: loads to `.shared::cluster`, plain or multicast, call the driver in every version,
  beside an inline path for a CTA's own memory (with multicast: for a cluster of one CTA). The same loads to
  `.shared::cta` are inline. Where such a call is, `setmaxnreg` is dropped.
- **`mma.sync` with fp8 is native on sm_89 and sm_12x alone**: sm_90, sm_10x and sm_11x convert to f16 and use HMMA.
- **`a` and `f` matter**: plain sm_120 and sm_121 are refused block-scaled MMA, `kind::f8f6f4`, `ldmatrix` and
  `stmatrix` of 8 bits, conversions to and from fp4, fp6 and ue8m0, `tensormap.replace` and `setmaxnreg`. sm_120f has
  them, but neither sparse `kind::mxf4nvf4` nor `multimem` of fp8. sm_121a agrees with sm_120a in every cell.
- **Packed f32x2 arithmetic** is taken for all targets from sm_100 on, but sm_110 and sm_12x get two instructions.

"""


def render_document(matrix: Matrix) -> str:
    """docs/caps.md."""
    versions = ", ".join(a.version for a in matrix.assemblers)
    return _INTRODUCTION.format(count=len(matrix.assemblers), versions=versions) + render_markdown(matrix)
