"""The documents of a sweep over names, and of a search for the part of a name that matters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from tritonhook.lab.minimise import Trigger
from tritonhook.lab.name_probe import Cell, NameVerdict, SetupKey
from tritonhook.lab.outcome import Outcome
from tritonhook.report.documents import FORMAT


def probe_document(cells: Sequence[Cell], codes: Mapping[str, Mapping[str, Any]] | None = None) -> dict[str, Any]:
    """All cells with their counts. codes: the code of changed cells by `code_key`, each pair once, for a page."""
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
    """A name for the two codes of a cell: equal pairs have equal names. None if a side was not assembled."""
    if cell.named.image is None or cell.controlled.image is None:
        return None
    a, b = cell.controlled.image.kernel(cell.control), cell.named.image.kernel(cell.name)
    return f"{cell.setup.arch}-{a.code_sha256[:16]}-{b.code_sha256[:16]}"


def cell_document(cell: Cell) -> dict[str, Any]:
    """One kernel under one name beside the control name."""
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


def is_crash(cell: Cell) -> bool:
    """Whether ptxas dies, or runs out of time or memory, under the name and not under the control name."""
    return cell.verdict is NameVerdict.CHANGED and cell.differences[:1] in (("crash",), ("timeout",), ("memory",))


def triggers_document(found: Mapping[SetupKey, Trigger | None], silent: Sequence[Cell], name: str) -> dict[str, Any]:
    """The minimal trigger at each place. silent: cells without an answer, of places that assemble nothing."""
    return {
        "format": FORMAT,
        "kind": "triggers",
        "name": name,
        "triggers": [_trigger(key, t) for key, t in found.items()],
        "without_answer": [cell_document(cell) for cell in silent],
    }


def _trigger(key: SetupKey, trigger: Trigger | None) -> dict[str, Any]:
    document: dict[str, Any] = {"kernel": key.kernel, "ptxas": key.ptxas, "arch": key.arch}
    document["options"] = list(key.options)
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
