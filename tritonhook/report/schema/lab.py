"""Sweeps: `probe`, `probe --minimise`, `caps`, and benchmarks/results/name_trigger.json."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta

from tritonhook._util.schema import Count, Fields, Version, Whole
from tritonhook.report.schema.code import Code, LoopPair


class Outcome(Fields):
    """What ptxas made. kind: `assembled`, or how it failed. message, signal: of a failure. The others: of a cubin."""

    kind: str
    message: str
    signal: str | None
    code_sha256: str | None = None
    code_bytes: Count | None = None
    registers: Count | None = None
    stack: Count | None = None
    spill_stores: Count | None = None
    spill_loads: Count | None = None
    shared: Count | None = None
    capmerc_records: Count | None = None
    file_bytes: Count | None = None


class BothNames(Fields):
    """A property under the name and under the control; null: cannot be told."""

    name: bool | None
    control: bool | None


class Cell(Fields):
    """One kernel under one name, for one ptxas, target and set of options.

    template: the name as asked for, or `.pragma`. control: the control name. differences: `code`, `registers`, `stack`,
    `spills`, `shared`, `externs`, `program`, `sections`; or `crash`, `timeout`, `memory`, `rejected`. draws: runs of
    each name that confirmed it; 0: none were needed. sections_changed: bytes under the control and under the name.
    code: a key of `codes`.
    """

    kernel: str
    ptxas: Version
    arch: str
    options: list[str]
    template: str
    name: str
    control: str
    verdict: Literal["same", "changed", "unsteady", "no answer"]
    differences: list[str]
    draws: Count
    other_scheduler: BothNames
    with_name: Outcome
    with_control: Outcome
    sections_changed: dict[str, list[Count | None]]
    code: str | None = None


class SweepCounts(Fields):
    """How many cells."""

    cells: Count
    cells_changed: Count
    cells_unsteady: Count
    cells_without_answer: Count
    crashes: Count


class CellCode(Fields):
    """Both codes of a cell: a: under the control. b: under the name."""

    a: Code
    b: Code
    loops: list[LoopPair]


class Probe(Fields):
    """Which names change which kernels. notes: what was not asked. codes: by a cell's `code`."""

    format: Literal[1]
    kind: Literal["probe"]
    summary: SweepCounts
    cells: list[Cell]
    notes: list[str] = []
    codes: dict[str, CellCode] = {}


class MinimalTrigger(Fields):
    """The part of a name that matters. trigger: null: the name changes nothing; then the fields below are missing.

    start: where it begins. needed, case_matters: for each letter. places: where else in a name it works.
    names_tried: how many.
    """

    kernel: str
    ptxas: Version
    arch: str
    options: list[str]
    trigger: str | None
    sentence: str = ""
    start: Whole = 0
    needed: list[bool] = []
    case_matters: list[bool | None] = []
    places: dict[str, bool | None] = {}
    names_tried: Count = 0


class Triggers(Fields):
    """The minimal trigger at each place. name: as asked for. without_answer: cells that assemble nothing."""

    format: Literal[1]
    kind: Literal["triggers"]
    name: str
    triggers: list[MinimalTrigger]
    without_answer: list[Cell]


class NameTriggerCounts(Fields):
    """How many cells, of those that the benchmark asked."""

    cells: Count
    cells_compared: Count
    cells_changed: Count
    crashes: Count
    cells_unsteady: Count | None = None


class NameTrigger(Fields):
    """A benchmark's result. by_name: changed and compared. samples: by kernel and target, then by ptxas."""

    format: Literal[1]
    kind: Literal["name trigger"]
    summary: NameTriggerCounts
    names: Annotated[list[str], Meta(min_length=1)]
    by_name: dict[str, tuple[Count, Count]]
    triggers: dict[str, list[Any]]
    samples: dict[str, dict[Version, list[Any]]]
