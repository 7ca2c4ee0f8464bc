"""Code in a terminal: the listing of one kernel, or the lines that differ between two kernels."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TextIO

from rich.console import Group
from rich.text import Text

from tritonhook._util.demangle import function_name
from tritonhook._util.text import file_line
from tritonhook.compare.alignment import Pair, align, align_texts
from tritonhook.cubin.sass import Instruction, Sass
from tritonhook.ptx.locations import Place, charged, source_places
from tritonhook.report.render.terminal import drawn
from tritonhook.report.result import number, visible
from tritonhook.report.results.capture import CodeFields, Row

_CONTEXT = 3  # equal lines that stay visible around a change
_STYLES = {"-": "red", "+": "green", "<": "yellow", ">": "yellow", "@": "cyan"}
_LOCATIONS = re.compile(r'^#loc(\d*) = loc\("([^"]*)":(\d+):\d+\)', re.MULTILINE)
_OTHER_LOCATIONS = re.compile(r"^#loc(\d+) = loc\((.*#loc.*)\)$", re.MULTILINE)
_INNER = re.compile(r"#loc(\d*)")
_AT = re.compile(r" loc\(#loc(\d*)\)$")
_WRITTEN = re.compile(r" loc\((?:[^()]|\([^()]*\))*\)")  # a location in MLIR; may be `loc("x"(#loc))`
_POSITION = re.compile(r"\s*\.loc\s")


@dataclass(frozen=True, slots=True)
class _CodeLine:
    """A line of code to show. place: its source file and line number, with the source text; "" if unknown."""

    text: str
    place: str = ""


def render_code_diff(a: CodeFields, b: CodeFields, stream: TextIO) -> str:
    """Draw the lines of machine code that differ between two kernels. Marks: "-" only in a, "+" only in b, "<" and ">"
    moved. Register numbers and branch targets are ignored."""
    alignment = align(a.sass(), b.sass())
    moved = set(alignment.moved_to), set(alignment.moved_to.values())
    return _drawn_diff(alignment.rows, list(_of_code(a)), list(_of_code(b)), moved, stream)


def render_text_diff(a: str, b: str, stream: TextIO, sources: Sequence[Mapping[str, str]] = ({}, {})) -> str:
    """Draw the lines that differ between two texts of one stage, e.g. PTX. Ignore source locations. sources: for each
    side, the texts of source files by path."""
    left, right = _of_text(a, sources[0]), _of_text(b, sources[1])
    rows = align_texts([line.text for line in left], [line.text for line in right])
    return _drawn_diff(rows, left, right, (set(), set()), stream)


def _of_code(code: CodeFields) -> Iterator[_CodeLine]:
    for n, row in enumerate(code.instructions):
        yield _CodeLine(f"{n * 16:04x}  {row.text}", _place(code, row))


def _place(code: CodeFields, row: Row) -> str:
    """Format the source file, line number and source text of an instruction; "" if unknown."""
    if row.source is None:
        return ""
    return _written((code.files[row.source[0]], row.source[1]), code.line(row.source))


def _written(at: Place, text: str | None) -> str:
    """Format a file and line number, followed by the text of that line. text: None if unknown."""
    return f"{file_line(*at)}  {(text or '').strip()}".rstrip()


def _of_text(text: str, sources: Mapping[str, str]) -> list[_CodeLine]:
    """Split the text of a stage into lines. Debug locations (`.loc`, `loc(...)`) are removed from the text and become
    the lines' places."""
    of_line, known = source_places(text), _locations(text)
    lines = []
    for index, line in enumerate(text.rstrip("\0").splitlines(), 1):
        if line.startswith("#loc") or _POSITION.match(line):
            continue
        at = _AT.search(line)
        place = (known(at[1]) if at else None) or of_line(index)
        written = "" if place is None else _written(place, _line_of(sources.get(place[0]), place[1]))
        lines.append(_CodeLine(_WRITTEN.sub("", line).expandtabs(4), written))
    return lines


def _line_of(text: str | None, line: int) -> str | None:
    lines = (text or "").splitlines()
    return lines[line - 1] if 0 < line <= len(lines) else None


def _locations(text: str) -> Callable[[str], Place | None]:
    """Return a function that maps the number of an MLIR location, e.g. 7 of `#loc7`, to a source file and line.

    A named, fused or call-site location is resolved to the places inside it. A place in a library is replaced by the
    line of the kernel that called it.
    """
    places = {match[1]: (match[2], int(match[3])) for match in _LOCATIONS.finditer(text)}
    parts = {match[1]: _INNER.findall(match[2]) for match in _OTHER_LOCATIONS.finditer(text)}

    @functools.cache
    def frames(number: str) -> tuple[Place, ...]:
        if number in places:
            return (places[number],)
        return tuple(frame for part in parts.get(number, ()) for frame in frames(part))

    return lambda number: charged(frames(number)) if frames(number) else None


def _drawn_diff(
    rows: Sequence[Pair],
    a: Sequence[_CodeLine],
    b: Sequence[_CodeLine],
    moved: tuple[set[int], set[int]],
    stream: TextIO,
) -> str:
    marked = list(_marked(rows, a, b, moved))
    near = [n for n, (mark, _) in enumerate(marked) if mark != " "]
    shown = sorted({n for at in near for n in range(at - _CONTEXT, at + _CONTEXT + 1) if 0 <= n < len(marked)})
    parts: list[Text] = []
    before, place = -1, ""
    for n in shown:
        mark, line = marked[n]
        if n != before + 1:
            parts.append(_styled(f"@ {n - before - 1:,} equal lines", "@"))
        if line.place and line.place != place:
            parts.append(_styled(f"@ {line.place}", "@"))
            place = line.place
        parts.append(_styled(f"{mark} {line.text}", mark))
        before = n
    if shown and before + 1 < len(marked):
        parts.append(_styled(f"@ {len(marked) - before - 1:,} equal lines", "@"))
    return drawn(Group(*parts or [_styled("no line differs", "@")]), stream)


def _marked(
    rows: Sequence[Pair], a: Sequence[_CodeLine], b: Sequence[_CodeLine], moved: tuple[set[int], set[int]]
) -> Iterator[tuple[str, _CodeLine]]:
    """Yield each line with its mark. In a run of adjacent changes, the lines of a come before those of b."""
    waiting: list[tuple[str, _CodeLine]] = []
    for row in rows:
        if row.in_place and row.b is not None:
            yield from waiting
            waiting = []
            yield " ", b[row.b]
            continue
        if row.a is not None:
            yield "<" if row.a in moved[0] else "-", a[row.a]
        if row.b is not None:
            waiting.append((">" if row.b in moved[1] else "+", b[row.b]))
    yield from waiting


def _styled(text: str, mark: str) -> Text:
    return Text(visible(text), style=_STYLES.get(mark, ""), no_wrap=True, overflow="ignore")


# --- machine code as text -------------------------------------------------------------------------


_NO_BARRIER = 7
LEGEND = """\
Control field: barriers waited for; read and write barrier
set; yield bit; stall cycles. One | per enclosing loop."""


def render_sass(code: CodeFields, arch: str) -> str:
    """List the machine code of one kernel, with a line break at the end."""
    return "".join(f"{line}\n" for line in _lines(code, arch))


def _lines(code: CodeFields, arch: str) -> Iterator[str]:
    sass = code.sass()
    instructions = sass.instructions
    yield visible(f"{function_name(sass.kernel)}: {arch}, {number(len(instructions))} instructions")
    depths = _depths(sass)
    deepest = max(depths, default=0)
    digits = max(4, len(f"{instructions[-1].offset:x}")) if instructions else 4
    shown = None
    for instruction, depth, row in zip(instructions, depths, code.instructions, strict=True):
        if row.source is not None and row.source != shown:
            text = (code.line(row.source) or "").strip()
            yield visible(f"{'':{digits}}  // {code.files[row.source[0]]}:{row.source[1]}  {text}".rstrip())
            shown = row.source
        loop = f"{'|' * depth:{deepest}} " if deepest else ""
        yield visible(f"{instruction.offset:0{digits}x}  {_control(instruction)}  {loop}{row.text}")


def _depths(sass: Sass) -> list[int]:
    """Return for each instruction the number of loops around it."""
    depths = [0] * len(sass.instructions)
    for loop in sass.loops:
        for index in loop.instructions:
            depths[index] += 1
    return depths


def _control(instruction: Instruction) -> str:
    """Format the control field of an instruction as LEGEND describes it, e.g. "0----- 1- Y 05"."""
    wait = "".join(str(bit) if instruction.wait_mask >> bit & 1 else "-" for bit in range(6))
    read, write = instruction.control >> 8 & 7, instruction.control >> 5 & 7
    barriers = "".join("-" if barrier == _NO_BARRIER else str(barrier) for barrier in (read, write))
    return f"{wait} {barriers} {'Y' if instruction.yield_bit else '-'} {instruction.stall:02}"
