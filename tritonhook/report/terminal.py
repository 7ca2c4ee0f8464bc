"""Reports for people at a terminal, made with rich."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tritonhook.capture.model import Capture, Stage
from tritonhook.capture.store import CaptureFolder
from tritonhook.compare.diff import WORSE_WHEN_GROWING, CodeVerdict, CubinDiff, LoopDelta, ResourceDelta
from tritonhook.compare.names import NameComparison
from tritonhook.cubin.image import Cubin
from tritonhook.errors import CaptureError, TritonHookError
from tritonhook.lab.published_table import Row
from tritonhook.report.tuning import configuration, has_variants, ranks_of, tuning_words

_VERDICT_STYLE = {
    CodeVerdict.SAME_CODE: "bold green",
    CodeVerdict.SCHEDULING: "bold yellow",
    CodeVerdict.DIFFERENT_CODE: "bold magenta",
}
_MAX_LOOPS = 12
_TAKEN = {True: "taken", False: "not taken", None: "cannot tell"}


def number(value: Any) -> str:
    """A value for people: thousands separated, None as "not known"."""
    if value is None:
        return "not known"
    if isinstance(value, (tuple, list)):
        return ", ".join(value) or "none"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def ratio(a: int | None, b: int | None) -> str:
    return f"{b / a:.3f}x" if a and b is not None else "-"


def render_diff(diff: CubinDiff, notes: Iterable[str] = ()) -> RenderableType:
    """Verdict first, then what changed: resources, sections, opcodes, loops."""
    parts: list[RenderableType] = [Text(diff.summary, style=_VERDICT_STYLE[diff.verdict])]
    parts += [Text(note, style="dim") for note in notes]
    parts += [_sides(diff), _resources(diff), _sections(diff)]
    if not diff.identical_code:
        parts += [_code(diff), _opcodes(diff), _loops(diff.sass.loops)]
    return Group(*parts)


class PlainTable(Table):
    """A table that shows each word as it is: a "[" in a kernel's name or a path starts no markup, and what is too
    wide for a terminal goes on in the next line."""

    def __init__(self, *columns: str, title: str = "", **options: Any) -> None:
        super().__init__(
            *columns, title=Text(title, style="bold"), title_justify="left", box=None, pad_edge=False, **options
        )
        for column in self.columns:
            column.overflow = "fold"

    def add_row(self, *cells: RenderableType | None, **options: Any) -> None:
        super().add_row(*(Text(cell) if isinstance(cell, str) else cell for cell in cells), **options)


def _table(title: str, *columns: str) -> Table:
    table = PlainTable(title=title, padding=(0, 2, 0, 0))
    for index, column in enumerate(columns):
        table.add_column(column, justify="left" if index == 0 else "right", overflow="fold")
    return table


def _sides(diff: CubinDiff) -> Table:
    table = _table("", "", "a", "b")
    table.add_row("kernel", diff.a_kernel, diff.b_kernel)
    table.add_row("target", f"sm_{diff.a.arch}", f"sm_{diff.b.arch}")
    table.add_row("ptxas, by the image", number(diff.a.ptxas_version), number(diff.b.ptxas_version))
    return table


def _resources(diff: CubinDiff) -> Table:
    table = _table("Resources", "", "a", "b", "")
    for delta in diff.resources:
        if delta.field in ("externs", "syscalls") and not delta.changed:
            continue
        table.add_row(delta.field.replace("_", " "), number(delta.a), number(delta.b), _judgement(delta))
    return table


def _judgement(delta: ResourceDelta) -> Text:
    if not delta.changed:
        return Text("")
    if delta.field in WORSE_WHEN_GROWING and isinstance(delta.a, int) and isinstance(delta.b, int):
        change = delta.b - delta.a
        return Text(f"{change:+,} {'worse' if change > 0 else 'better'}", style="red" if change > 0 else "green")
    return Text("changed", style="yellow")


def _sections(diff: CubinDiff) -> Table:
    table = _table(
        "Sections that changed (bytes; sections can overlap, the file's size is the last line)", "", "a", "b", "b/a"
    )
    for delta in diff.sections:
        if delta.changed:
            table.add_row(delta.role, _bytes(delta.a_bytes), _bytes(delta.b_bytes), ratio(delta.a_bytes, delta.b_bytes))
    a, b = len(diff.a.data), len(diff.b.data)
    table.add_row("file", number(a), number(b), ratio(a, b))
    return table


def _bytes(value: int | None) -> str:
    return "absent" if value is None else number(value)


def _code(diff: CubinDiff) -> Table:
    s = diff.sass
    table = _table("Code (registers and branch targets erased)", "", "a", "b")
    table.add_row("instructions", number(s.a_instructions), number(s.b_instructions))
    table.add_row("in the same order", number(s.in_place), number(s.in_place))
    table.add_row("of these equal to the letter", number(s.identical), number(s.identical))
    table.add_row("moved", number(s.moved), number(s.moved))
    table.add_row("only on this side", number(s.removed), number(s.added))
    table.add_row("yield bit set", number(s.a_yield_bits), number(s.b_yield_bits))
    table.add_row("sum of stall cycles (static)", number(s.a_stall_cycles), number(s.b_stall_cycles))
    records = diff.scheduler_records
    if records != (None, None):
        table.add_row("31 02 records in .nv.capmerc", number(records[0]), number(records[1]))
    table.add_row("ptxas's other scheduler", *(_TAKEN[side] for side in diff.other_scheduler))
    return table


def _opcodes(diff: CubinDiff) -> Table:
    table = _table("Opcodes whose count changed", "", "a", "b", "")
    for name, (a, b) in sorted(diff.sass.changed_opcodes.items(), key=lambda item: -abs(item[1][1] - item[1][0])):
        table.add_row(name, number(a), number(b), f"{b - a:+,}")
    if not diff.sass.changed_opcodes:
        table.add_row("none", "", "", "")
    return table


def _loops(loops: Sequence[LoopDelta]) -> RenderableType:
    table = _table(
        "Innermost loops (8 instructions or more)",
        "offset",
        "instr. a",
        "instr. b",
        "yield a",
        "yield b",
        "stall a",
        "stall b",
        "other scheduler",
    )
    changed = [pair for pair in loops if _loop_changed(pair)]
    shown = sorted(changed, key=lambda pair: -max(side.instructions for side in (pair.a, pair.b) if side))[:_MAX_LOOPS]
    for pair in shown:
        a, b = pair.a, pair.b
        table.add_row(
            f"{a.offset:#x}" if a else f"{b.offset:#x} (b)" if b else "",
            *(
                number(getattr(side, name)) if side else "absent"
                for name in ("instructions", "yield_bits", "stall_cycles")
                for side in (a, b)
            ),
            "/".join("taken" if side and side.rescheduled else "no" for side in (a, b)),
        )
    rest = (
        f"{len(loops) - len(shown)} more loops, {len(changed) - len(shown)} of them changed"
        if len(loops) > len(shown)
        else ""
    )
    return Group(table, Text(rest, style="dim")) if rest else table


def _loop_changed(pair: LoopDelta) -> bool:
    a, b = pair.a, pair.b
    if a is None or b is None:
        return True
    return (a.instructions, a.yield_bits, a.stall_cycles, a.opcodes) != (
        b.instructions,
        b.yield_bits,
        b.stall_cycles,
        b.opcodes,
    )


def render_comparison(comparison: NameComparison) -> RenderableType:
    """What the name does, in a sentence, then the diff of the pair of equal name length."""
    original, renamed, control = comparison.original, comparison.renamed, comparison.control
    parts: list[RenderableType] = [Text(comparison_headline(comparison), style="bold")]
    for kernel, crash in comparison.crashes:
        parts.append(Text(f"{kernel}: {crash.summary}\n  repeat with: {crash.command}", style="red"))
    parts.append(_control(comparison))
    if max(comparison.codes) > 1:
        parts.append(Text(_draws(comparison), style="yellow"))
    table = _table("Assembled", "name", "file bytes")
    for build in (original, control, renamed):
        table.add_row(build.kernel, _size(build.cubin))
    parts.append(table)
    if comparison.diff is not None:
        parts.append(render_diff(comparison.diff))
    return Group(*parts)


def _draws(comparison: NameComparison) -> str:
    counts = ", ".join(
        f"{count} for {build.kernel}"
        for count, build in zip(
            comparison.codes, (comparison.original, comparison.renamed, comparison.control), strict=True
        )
    )
    common = comparison.diff is not None and comparison.diff.identical_code
    found = "one of them common to all" if common else "none of them common to all; the nearest are compared"
    return f"ptxas is not deterministic on this kernel: {comparison.runs} runs gave codes: {counts}; {found}"


def _control(comparison: NameComparison) -> Text:
    control, plain = comparison.control.kernel, comparison.plain.kernel
    if comparison.control_is_neutral is None:
        return Text(f"control {control}: not assembled, nothing to hold the name against", style="red")
    if comparison.control_is_neutral:
        return Text(f"control {control}: the code of {plain}, byte for byte", style="dim")
    floor = f" ({comparison.control_diff.summary})" if comparison.control_diff else ""
    return Text(f"control {control}: ptxas gives this ordinary name other code than {plain} too{floor}", style="yellow")


def _size(cubin: Cubin | None) -> str:
    return "ptxas made none" if cubin is None else number(len(cubin.data))


def comparison_headline(comparison: NameComparison) -> str:
    """One line: does the name change the code?"""
    old, new = comparison.original.kernel, comparison.renamed.kernel
    if comparison.diff is None:
        return f"{old} -> {new}: ptxas makes no cubin under one of the names"
    if comparison.diff.identical_code:
        return f"{old} -> {new}: the name changes nothing in the code"
    return f"{old} -> {new}: the name changes the code"


def render_table(rows: Sequence[Row], ptxas: str) -> RenderableType:
    """The published table beside this machine's."""
    targets = ", ".join(dict.fromkeys(row.comparison.original.ptx.target for row in rows))
    table = _table(
        f"Name effect, ptxas {ptxas}, {targets} (with cutlass / without)",
        "condition",
        "published size",
        "size",
        "equal length",
        "published capmerc",
        "capmerc",
        "bytes",
        "code",
    )
    for row in rows:
        published = row.published or (None, None)
        a, b = row.capmerc_bytes
        table.add_row(
            row.title,
            _times(published[0]),
            _times(row.size_ratio),
            _times(row.fair_size_ratio),
            _times(published[1]),
            _times(row.capmerc_ratio),
            "-" if b is None else f"{number(a)} -> {number(b)}",
            _code_word(row),
        )
    notes = [Text(f"{row.title}: {row.note}", style="dim") for row in rows if row.note]
    failures = [Text(f"{row.title}: {row.failure}", style="red") for row in rows if row.failure]
    return Group(table, *failures, *notes)


def _times(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _code_word(row: Row) -> Text:
    if row.failure:
        return Text("ptxas crash", style="red")
    if row.code_changed is None:
        return Text("not known")
    return Text("changed", style="magenta") if row.code_changed else Text("same", style="green")


def render_captures(folder: CaptureFolder, records: Sequence[str] | None = None) -> RenderableType:
    """A line per kernel, with who met it and how."""
    chosen = folder.records if records is None else records
    found = [folder.try_capture(record) for record in chosen]
    extra = _extra_columns(folder, [c for c in found if isinstance(c, Capture)])
    table = _table(
        f"Captures in {folder.path}",
        "kernel",
        "front end",
        "arch",
        "ptxas",
        "regs",
        "stages",
        "compiled",
        "from cache",
        "renamed from",
        *extra,
    )
    damaged: list[str] = []
    for record, capture in zip(chosen, found, strict=True):
        if isinstance(capture, CaptureError):
            damaged.append(str(capture))
            continue
        try:
            registers = _registers(capture)
        except TritonHookError as error:
            registers = number(None)
            damaged.append(f"{record}: {error}")
        seen = folder.seen(record)
        table.add_row(
            capture.kernel,
            capture.front_end,
            capture.arch,
            number(capture.assembler.version),
            registers,
            "binary only" if capture.binary_only else " ".join(stage.value for stage in capture.artifacts),
            number(sum(not s.cache_hit for s in seen)),
            number(sum(s.cache_hit for s in seen)),
            capture.rewritten_from or "",
            *(cell(record, capture) for cell in extra.values()),
        )
    parts: list[RenderableType] = [table]
    parts += [Text(sentence, style="red") for sentence in damaged]
    parts += [Text(f"{c.parent.name}: ptxas failed; see {c}", style="red") for c in folder.crashes]
    if folder.torn:
        lines = "1 index line" if folder.torn == 1 else f"{folder.torn} index lines"
        parts.append(Text(f"{lines} cannot be read: cut short by a process that died, or damaged", style="yellow"))
    return Group(*parts)


def _extra_columns(folder: CaptureFolder, captures: Sequence[Capture]) -> dict[str, Callable[[str, Capture], str]]:
    """Columns that only some folders need: several configurations of a kernel, autotuning, several ranks."""
    columns: dict[str, Callable[[str, Capture], str]] = {}
    if has_variants(captures):
        columns["configuration"] = lambda record, capture: configuration(capture)
    if folder.tunings:
        columns["autotuned"] = lambda record, capture: tuning_words(folder, record)
    if len(folder.ranks) > 1:
        columns["ranks"] = lambda record, capture: ranks_of(folder, record)
    return columns


def _registers(capture: Capture) -> str:
    if Stage.CUBIN not in capture.artifacts:
        return "-"
    cubin = Cubin.from_bytes(capture.cubin, capture.kernel)
    return number(cubin.resources[capture.kernel].registers) if capture.kernel in cubin.resources else "-"


_SOURCE = ("function", "function_at", "kernel_at")  # in the metadata of some front ends


def render_capture(capture: Capture, folder: str, warnings: Sequence[str] = ()) -> RenderableType:
    """One capture in full: how it was made, where its files are, and what is wrong with it."""
    table = _table(capture.kernel, "", "")
    a = capture.assembler
    rows: list[tuple[str, Any]] = [
        ("front end", capture.front_end),
        ("arch", capture.arch),
        ("hash", capture.hash),
        *((name.replace("_", " "), capture.metadata[name]) for name in _SOURCE if name in capture.metadata),
        ("renamed from", capture.rewritten_from or "-"),
        ("ptxas", f"{a.version or 'not known'}  {a.path or ''}"),
        ("arguments", " ".join(a.arguments) if a.arguments is not None else None),
        *((name.replace("_", " "), "-" if value is None else value) for name, value in capture.options.items()),
        ("stages", " ".join(stage.value for stage in capture.artifacts)),
        ("note", capture.note or "-"),
        *(("warning", sentence) for sentence in warnings),
        ("files", folder),
    ]
    for name, value in rows:
        table.add_row(name, number(value))
    return table
