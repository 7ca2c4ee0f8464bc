"""The answers of a probe, as text and as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from tritonhook._util.versions import version_key
from tritonhook.lab.minimise import Trigger
from tritonhook.lab.name_probe import Cell, NameVerdict, SetupKey
from tritonhook.lab.outcome import Outcome
from tritonhook.report.terminal import PlainTable

FORMAT = 1
SIGNS = {
    "crash": "X",
    NameVerdict.CHANGED: "D",
    NameVerdict.UNSTEADY: "~",
    NameVerdict.SAME: ".",
    NameVerdict.NO_ANSWER: "-",
}
LEGEND = "D the name changes it, X ptxas crashes under the name only, ~ ptxas is unsteady, . same, - does not assemble"


def headline(cells: Sequence[Cell]) -> str:
    found = Counter(cell.verdict for cell in cells)
    crashes = sum(is_crash(cell) for cell in cells)
    compared = len(cells) - found[NameVerdict.NO_ANSWER]
    return (
        f"{len(cells):,} cells, {compared:,} compared: the name changes {found[NameVerdict.CHANGED]:,} "
        f"({crashes:,} crashes), {found[NameVerdict.UNSTEADY]:,} unsteady"
    )


def is_crash(cell: Cell) -> bool:
    return cell.verdict is NameVerdict.CHANGED and cell.differences[:1] in (("crash",), ("timeout",), ("memory",))


def sign(cells: Iterable[Cell]) -> str:
    """One letter for several cells: the gravest."""
    found = {("crash" if is_crash(cell) else cell.verdict) for cell in cells}
    return next((letter for what, letter in SIGNS.items() if what in found), " ")


def render_probe(cells: Sequence[Cell]) -> RenderableType:
    """What was found, by name, and by kernel, target and ptxas."""
    parts: list[RenderableType] = [Text(headline(cells), style="bold"), _by_name(cells)]
    if any(cell.verdict is not NameVerdict.NO_ANSWER for cell in cells):
        parts += [_matrix(cells), Text(LEGEND, style="dim")]
    if changed := [cell for cell in cells if cell.verdict is NameVerdict.CHANGED]:
        parts += [_what(changed), _scheduler(changed)]
    parts += [Text(line, style="dim") for line in _failures(cells)]
    return Group(*parts)


def _table(title: str, *columns: str, left: int = 1) -> PlainTable:
    table = PlainTable(title=title, padding=(0, 2, 0, 0))
    for index, column in enumerate(columns):
        table.add_column(Text(column), justify="right" if index >= left else "left", overflow="fold")
    return table


def _by_name(cells: Sequence[Cell]) -> RenderableType:
    table = _table("Names (* is the kernel's own)", "name", "changed", "unsteady", "same")
    templates = dict.fromkeys(cell.template for cell in cells)
    counts = Counter((cell.template, cell.verdict) for cell in cells)
    quiet = []
    for template in templates:
        row = [counts[template, v] for v in (NameVerdict.CHANGED, NameVerdict.UNSTEADY, NameVerdict.SAME)]
        if row[0] or row[1]:
            table.add_row(template, *(f"{value:,}" for value in row))
        elif row[2]:
            quiet.append(template)
    without = Text(f"without any effect: {', '.join(quiet)}") if quiet else Text("")
    return Group(table, without) if table.row_count else without


def _matrix(cells: Sequence[Cell]) -> RenderableType:
    """Kernels by ptxas version, under the names that change anything; the gravest sign of those."""
    telling = {cell.template for cell in cells if cell.verdict is NameVerdict.CHANGED}
    chosen = [cell for cell in cells if cell.template in telling] or list(cells)
    versions = sorted({cell.setup.ptxas for cell in cells}, key=version_key)
    rows: dict[tuple[str, str, str], dict[str, list[Cell]]] = {}
    for cell in chosen:
        place = cell.setup
        key = (place.kernel, place.arch, _level(place))
        rows.setdefault(key, {}).setdefault(place.ptxas, []).append(cell)
    table = _table("Kernels by ptxas", "kernel", "target", "options", *versions, left=3)
    for key, by_version in sorted(rows.items()):
        table.add_row(*key, *(sign(by_version.get(version, ())) for version in versions))
    return table


def _level(place: SetupKey) -> str:
    return " ".join(option for option in place.options if option not in ("-v", "-lineinfo"))


def _what(changed: Sequence[Cell]) -> RenderableType:
    table = _table("What changes", "", "cells")
    for what, number in Counter(name for cell in changed for name in cell.differences).most_common():
        table.add_row(what, f"{number:,}")
    return table


def _scheduler(changed: Sequence[Cell]) -> RenderableType:
    taken = Counter(cell.other_scheduler[0] for cell in changed if not is_crash(cell))
    counts = f"taken in {taken[True]:,}, not taken in {taken[False]:,}, cannot tell in {taken[None]:,}"
    return Text(f"ptxas's other scheduler: {counts}")


def _failures(cells: Sequence[Cell]) -> list[str]:
    """Why places have no answer, the most frequent reasons first."""
    reasons = Counter(
        (cell.controlled.kind.value, cell.controlled.message or cell.controlled.signal or "")
        for cell in cells
        if cell.verdict is NameVerdict.NO_ANSWER
    )
    lines = [f"no answer in {number:,} cells: {kind}: {why}" for (kind, why), number in reasons.most_common(5)]
    return [*lines, f"and {len(reasons) - 5} other reasons"] if len(reasons) > 5 else lines


# --- JSON ----------------------------------------------------------------------------------------


def probe_document(cells: Sequence[Cell], codes: Mapping[str, Mapping[str, Any]] | None = None) -> dict[str, Any]:
    """codes: by code_key, the code of changed cells, each kept once."""
    found = Counter(cell.verdict for cell in cells)
    documents = [cell_document(cell) for cell in cells]
    if codes is not None:
        for cell, document in zip(cells, documents, strict=True):
            document["code"] = key if (key := code_key(cell)) in codes else None
    document = {
        "format": FORMAT,
        "kind": "probe",
        "summary": {
            "cells": len(cells),
            "cells_changed": found[NameVerdict.CHANGED],
            "cells_unsteady": found[NameVerdict.UNSTEADY],
            "cells_without_answer": found[NameVerdict.NO_ANSWER],
            "crashes": sum(map(is_crash, cells)),
        },
        "cells": documents,
    }
    return document if codes is None else document | {"codes": dict(codes)}


def code_key(cell: Cell) -> str | None:
    """Names the pair of codes of a cell; None where a side has none."""
    if cell.named.image is None or cell.controlled.image is None:
        return None
    a, b = cell.controlled.image.kernel(cell.control), cell.named.image.kernel(cell.name)
    return f"{cell.setup.arch}-{a.code_sha256[:16]}-{b.code_sha256[:16]}"


def cell_document(cell: Cell) -> dict[str, Any]:
    return {
        "kernel": cell.setup.kernel,
        "ptxas": cell.setup.ptxas,
        "arch": cell.setup.arch,
        "options": list(cell.setup.options),
        "template": cell.template,
        "name": cell.name,
        "control": cell.control,
        "verdict": cell.verdict.value,
        "differences": list(cell.differences),
        "draws": cell.draws,
        "other_scheduler": {"name": cell.other_scheduler[0], "control": cell.other_scheduler[1]},
        "with_name": _outcome(cell.named, cell.name),
        "with_control": _outcome(cell.controlled, cell.control),
        "sections_changed": {role: list(sizes) for role, sizes in cell.section_changes.items()},
    }


def _outcome(outcome: Outcome, name: str) -> dict[str, Any]:
    document: dict[str, Any] = {"kind": outcome.kind.value, "message": outcome.message, "signal": outcome.signal}
    if outcome.image is None:
        return document
    k = outcome.image.kernel(name)
    return document | {
        "code_sha256": k.code_sha256,
        "code_bytes": k.code_bytes,
        "registers": k.registers,
        "stack": k.stack,
        "spill_stores": k.spill_stores,
        "spill_loads": k.spill_loads,
        "shared": k.shared,
        "capmerc_records": k.scheduler_records,
        "file_bytes": outcome.image.file_bytes,
    }


# --- minimal triggers ----------------------------------------------------------------------------


def render_triggers(found: Mapping[SetupKey, Trigger | None], silent: Sequence[Cell], name: str) -> RenderableType:
    """silent: cells without an answer, of places where nothing could be asked."""
    lines: list[RenderableType] = []
    for place, trigger in found.items():
        where = f"{place.kernel}, {place.arch}, ptxas {place.ptxas}{_level(place) and ' ' + _level(place)}"
        if trigger is None:
            lines.append(Text(f"{where}: {name} changes nothing"))
            continue
        lines.append(Text(f"{where}: {trigger.sentence}  ({trigger.tried} names tried)", style="bold"))
        if trigger.position != "anywhere in the name":
            tried = ", ".join(f"{place}: {'yes' if works else 'no'}" for place, works in trigger.places.items())
            lines.append(Text(f"  {tried}"))
    lines += [Text(line, style="dim") for line in _failures(silent)]
    return Group(*lines)


def triggers_document(found: Mapping[SetupKey, Trigger | None], silent: Sequence[Cell], name: str) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "kind": "triggers",
        "name": name,
        "triggers": [_trigger(place, t) for place, t in found.items()],
        "without_answer": [cell_document(cell) for cell in silent],
    }


def _trigger(place: SetupKey, trigger: Trigger | None) -> dict[str, Any]:
    document: dict[str, Any] = {"kernel": place.kernel, "ptxas": place.ptxas, "arch": place.arch}
    document["options"] = list(place.options)
    if trigger is None:
        return document | {"trigger": None}
    return document | {
        "trigger": trigger.word,
        "sentence": trigger.sentence,
        "start": trigger.start,
        "needed": list(trigger.needed),
        "case_matters": list(trigger.cased),
        "places": dict(trigger.places),
        "names_tried": trigger.tried,
    }
