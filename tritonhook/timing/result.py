"""The result of a timed comparison, with every sample. Values only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from tritonhook._display import Notebook
from tritonhook.timing.statistics import CANDIDATE, REFERENCE, Comparison


@dataclass(frozen=True, slots=True)
class KernelCode:
    """The code of one kernel on one side. code: a digest. registers: per thread. stack: bytes per thread."""

    code: str
    registers: int | None
    stack: int | None


Kernels = Mapping[str, tuple[KernelCode, ...]]  # by the name in the source, one entry for each configuration


@dataclass(frozen=True, slots=True)
class Compiled:
    """What a side's kernels were compiled to. kernels: the names under which they ran. ptxas: versions; empty: not
    known."""

    kernels: tuple[str, ...]
    ptxas: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Compared(Compiled):
    """What a side is. name: what tells it from the others: a kernel's name, a function, a file."""

    name: str


@dataclass(frozen=True, slots=True)
class HowLaunched:
    """How a side was launched. copies: launches in one sample. graph: whether as a CUDA graph. why_eager: why not."""

    copies: int = 1
    graph: bool = False
    why_eager: str | None = None


@dataclass(frozen=True, slots=True)
class Choices:
    """What autotuned kernels were tuned to. mode: one configuration for all sides, or each its own. sides: by side and
    kernel."""

    mode: Literal["fixed", "each"]
    sides: Mapping[str, Mapping[str, str]]


@dataclass(frozen=True, slots=True, repr=False)
class Timed(Notebook):
    """A finished comparison.

    compared: by side, what it is. kernels: by side.
    outputs: how many output tensors were compared. wrong: how a side's outputs differ from the reference's; such a
    comparison is not timed.
    sides: how each was launched. flushes: whether samples begin with an empty L2 cache.
    stopped: "precise", "time", "processes" (there were as many as there may be), "interrupted", "a process failed" (a
    further one; a note says how), or "nothing to time". seconds: from start to end.
    code: by kernel, what differs in the code. tuning: what autotuned kernels were tuned to, by side.
    baselines: by baseline, how its outputs differ from the reference's.
    """

    _shown: ClassVar[tuple[str, ...]] = ("target", "comparison.verdict", "device", "seconds")

    target: str
    comparison: Comparison
    compared: Mapping[str, Compared]
    kernels: Mapping[str, Kernels]
    outputs: int
    wrong: Mapping[str, str]
    notes: tuple[str, ...] = ()
    device: str | None = None
    versions: Mapping[str, str | None] | None = None
    sides: Mapping[str, HowLaunched] | None = None
    flushes: bool | None = None
    stopped: str | None = None
    seconds: float = 0.0
    code: Mapping[str, str] = field(default_factory=dict)
    tuning: Choices | None = None
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
