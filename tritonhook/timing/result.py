"""The result of a timed comparison, with every sample, and its document: written, read back and checked."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from tritonhook._display import Notebook
from tritonhook.device.conditions import Conditions
from tritonhook.errors import UsageError
from tritonhook.timing.statistics import CANDIDATE, CONTROL, REFERENCE, Block, Comparison

FORMAT = 1


@dataclass(frozen=True, slots=True, repr=False)
class Timed(Notebook):
    """A finished comparison.

    kernels: by side and by the kernel's name in the source: the digest of its code, registers and stack bytes, one
    entry for each configuration.
    outputs: how many output tensors were compared. wrong: how a side's outputs differ from the reference's; such a
    comparison is not timed.
    sides: how each was launched. flushes: whether samples begin with an empty L2 cache.
    stopped: "precise", "time", "processes" (there were as many as there may be), "interrupted", "a process failed" (a
    further one; a note says how), or "nothing to time". seconds: from start to end.
    code: by kernel, what differs in the code. tuning: what autotuned kernels were tuned to, by side.
    baselines: by baseline, how its outputs differ from the reference's.
    compared: by side its `name`, the names under which its `kernels` ran, and the versions of its `ptxas` (empty: not
    known).
    """

    _shown: ClassVar[tuple[str, ...]] = ("target", "comparison.verdict", "device", "seconds")

    target: str
    comparison: Comparison
    compared: Mapping[str, Mapping[str, Any]]
    kernels: Mapping[str, Mapping[str, Sequence[Mapping[str, Any]]]]
    outputs: int
    wrong: Mapping[str, str]
    notes: tuple[str, ...] = ()
    device: str | None = None
    versions: Mapping[str, str | None] | None = None
    sides: Mapping[str, Mapping[str, Any]] | None = None
    flushes: bool | None = None
    stopped: str | None = None
    seconds: float = 0.0
    code: Mapping[str, str] = field(default_factory=dict)
    tuning: Mapping[str, Any] | None = None
    baselines: Mapping[str, str] = field(default_factory=dict)

    @property
    def same_code(self) -> bool:
        """Whether reference and candidate have the same instructions, so that there is nothing to time."""
        return self.kernels[REFERENCE] == self.kernels[CANDIDATE]

    @property
    def changed_kernels(self) -> tuple[str, ...]:
        """The kernels whose code the candidate changes, by name."""
        before, after = self.kernels[REFERENCE], self.kernels[CANDIDATE]
        return tuple(name for name in before if before[name] != after.get(name))


def block_of(document: Mapping[str, Any]) -> Block:
    """The block that `asdict` made this document of. Raises KeyError, TypeError or ValueError if it is none."""
    given = document["conditions"]
    conditions = {name: given[name] for name in Conditions.__dataclass_fields__}  # others do not change the verdict
    clocks = {side: mhz for side, mhz in document["clock_mhz"].items() if mhz is None or mhz > 0}
    times = {side: tuple(values) for side, values in document["times_us"].items()}
    measured = Conditions(**conditions | {"slowed": tuple(conditions["slowed"])})
    return Block(document["process"], times, measured, clocks, tuple(document.get("order", ())))


def to_document(timed: Timed) -> dict[str, Any]:
    """The document of a comparison, with all raw samples; `from_document` makes the same value of it."""
    fields = asdict(timed)
    comparison = fields.pop("comparison")
    return {"format": FORMAT, "kind": "ab", **fields, **comparison}


def from_document(document: Mapping[str, Any]) -> Timed:
    """Read what `to_document` made. Raises UsageError if it is something else."""
    from tritonhook._util.schema import as_schema
    from tritonhook.timing.schema import TimedComparison

    if isinstance(document, Mapping) and document.get("kind", "ab") != "ab":
        raise UsageError(
            f"not a timed comparison, but a result of kind {document['kind']!r}; `tritonhook report` makes a page of it"
        )
    try:
        as_schema(document, TimedComparison)
        fields = {f.name: document[f.name] for f in dataclasses.fields(Timed) if f.name != "comparison"}
        fields["notes"] = tuple(fields["notes"])
        blocks = tuple(block_of(block) for block in document["blocks"])
        timed = Timed(comparison=Comparison(blocks, document["band"], document["control_of"]), **fields)
        _check(timed)
        return timed
    except ValueError as error:
        raise UsageError(f"not a timed comparison that `tritonhook ab --json` saved ({error})") from None


def _check(timed: Timed) -> None:
    """Raises ValueError where a side is missing."""
    if not {REFERENCE, CANDIDATE} <= set(timed.kernels):
        raise ValueError("the kernels of a side are missing")
    if not {REFERENCE, CANDIDATE, CONTROL} <= set(timed.compared):
        raise ValueError("what a side is is missing")
    if len({frozenset(block.times_us) for block in timed.comparison.blocks}) > 1:
        raise ValueError("its blocks have different sides")
    if timed.comparison.blocks and not {REFERENCE, CANDIDATE} <= set(timed.comparison.sides):
        raise ValueError("its blocks lack the reference or the candidate")


def load(path: Path) -> Timed:
    """Read a comparison that `tritonhook ab --save` wrote. Raises UsageError."""
    from tritonhook._util.schema import read_json

    try:
        data = path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None
    try:
        return from_document(read_json(data, dict[str, Any]))
    except ValueError as error:
        raise UsageError(f"{path}: {error}; give what `tritonhook ab --save` wrote") from None
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from None
