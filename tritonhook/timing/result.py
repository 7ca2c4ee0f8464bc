"""The result of a timed comparison, with every sample. Values only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta, structs

from tritonhook._display import Notebook
from tritonhook._util.schema import Count, Fields, Number
from tritonhook.timing.statistics import CANDIDATE, REFERENCE, Comparison, SampleBlock


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


class Timed(Notebook, Fields):
    """A finished comparison.

    target: what was timed. compared: by side, what it is. kernels: by side and kernel, one entry for each
    configuration. outputs: how many outputs were compared. wrong: how a side's outputs differ from the reference's;
    then nothing is timed. notes: remarks. device: the GPU. versions: of torch, triton and others. sides: how each was
    launched. flushes: whether the L2 cache was emptied before each sample. stopped: why it ended: "precise", "time",
    "processes" (as many as there may be), "interrupted", "a process failed", or "nothing to time". seconds: how long it
    took. blocks: the samples. band: what counts as no effect. control_of: the side whose code the control has. code: by
    kernel, what differs, as text. tuning: of autotuned kernels. baselines: by baseline, how its outputs differ.
    """

    _shown: ClassVar[tuple[str, ...]] = ("target", "comparison.verdict", "device", "seconds")

    target: str
    compared: dict[str, Compared]
    kernels: dict[str, Kernels]
    outputs: Count
    wrong: dict[str, str]
    notes: tuple[str, ...]
    device: str | None
    versions: dict[str, str | None] | None
    sides: dict[str, HowLaunched] | None
    flushes: bool | None
    stopped: str | None
    seconds: Number
    blocks: tuple[SampleBlock, ...]
    band: Annotated[float, Meta(gt=0, lt=1)]
    control_of: Literal["reference", "candidate"] | None
    code: dict[str, str]
    tuning: Choices | None
    baselines: dict[str, str]

    @property
    def comparison(self) -> Comparison:
        return Comparison(self.blocks, self.band, self.control_of)

    def but(self, **given: Any) -> Timed:
        """The same with other values of these fields."""
        return structs.replace(self, **given)

    @property
    def same_code(self) -> bool:
        """Whether reference and candidate have the same instructions, so that there is nothing to time."""
        return self.kernels[REFERENCE] == self.kernels[CANDIDATE]

    @property
    def changed_kernels(self) -> tuple[str, ...]:
        """The kernels whose code the candidate changes, by name."""
        before, after = self.kernels[REFERENCE], self.kernels[CANDIDATE]
        return tuple(name for name in before if before[name] != after.get(name))
