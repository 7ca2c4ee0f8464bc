"""Plan of one timed comparison: a value that goes from the command line to each timing process, the requests to these
and their answers; and its result with every sample."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta, structs

from tritonhook._display import Notebook
from tritonhook._util.schema import Count, Fields, Number
from tritonhook.device.child import Message
from tritonhook.errors import UsageError
from tritonhook.rename import Control, Rename
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
    """Result of compiling a side's kernels. kernels: the names under which they ran. ptxas: versions; empty:
    unknown."""

    kernels: tuple[str, ...]
    ptxas: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Compared(Compiled):
    """A side. name: a kernel's name, a function or a file; unique among the sides."""

    name: str


@dataclass(frozen=True, slots=True)
class HowLaunched:
    """Launch of a side. copies: launches in one sample. graph: whether as a CUDA graph. why_eager: reason if not."""

    copies: int = 1
    graph: bool = False
    why_eager: str | None = None


@dataclass(frozen=True, slots=True)
class Choices:
    """Configurations of autotuned kernels. mode: one configuration for all sides, or each its own. sides: by side and
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
        """Copy with other values of these fields."""
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


BASELINE_RTOL = 0.02  # share of the largest value: two ways to compute attention in bf16 differ by about half


@dataclass(frozen=True, slots=True)
class SideImage:
    """A side that is a cubin.

    path: the file. entry: the kernel in it. kernel: its name in the report. ptxas: the version that made it, if known.
    """

    side: str
    path: str
    entry: str
    kernel: str
    ptxas: str | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """The parts of one comparison.

    target: MODULE:FUNCTION, the reference. The candidate is the same launch with its kernels renamed (`rename`), or
    another MODULE:FUNCTION (`candidate`). baselines: timed beside them.
    ptxas: the ptxas for all kernels that Triton compiles; candidate_ptxas: another one for the candidate. Paths.
    out: the folder for each side's captures.
    rtol: how far outputs may differ, as a share of the largest value; None asks for equal bits. check: compare them.
    path: entries for sys.path, where the targets are found.
    even_same: time the sides even if they have the same code, as a calibration does.
    candidate_options: further options for the candidate's ptxas. rewrites: rewrites, by name, for the candidate.
    tune_each: tune autotuned kernels on each side; else all sides take the reference's configuration.
    names: of reference and candidate in the report; None: they follow from the fields above.
    images: instead of a target that launches, a cubin for each side, launched as recorded in the file `launch`.
    """

    target: str
    out: Path
    rename: Rename | None = None
    candidate: str | None = None
    baselines: tuple[str, ...] = ()
    ptxas: str | None = None
    candidate_ptxas: str | None = None
    rtol: float | None = None
    check: bool = True
    seed: int = 0
    path: tuple[str, ...] = ()
    even_same: bool = False
    candidate_options: str | None = None
    rewrites: tuple[str, ...] = ()
    tune_each: bool = False
    names: tuple[str, str] | None = None
    images: tuple[SideImage, ...] = ()
    launch: Path | None = None

    def __post_init__(self) -> None:
        differs = (self.rename, self.candidate, self.candidate_ptxas, self.candidate_options)
        if all(item is None for item in differs) and not self.rewrites and not self.images:
            raise UsageError("nothing to compare with: give a rename, a candidate, a rewrite or another ptxas")

    @property
    def control(self) -> Rename | Control:
        """The rename of the control: a name that changes nothing in ptxas."""
        return Rename(prefix="control_") if self.rename is None else Control(self.rename)


# --- requests and answers of the processes that time ----------------------------------------------


class Prepare(Message):
    """Asks a process of a timed comparison to make everything ready. The answer is Prepared."""

    plan: Plan


class Prepared(Message):
    """Answer of a process that is ready to time; the fields are those of result.Timed. compiled: by side. tuning: by
    side and kernel, the configuration."""

    kernels: dict[str, Kernels]
    compiled: dict[str, Compiled]
    outputs: int
    wrong: dict[str, str] = {}
    notes: tuple[str, ...] = ()
    device: str | None = None
    versions: dict[str, str | None] | None = None
    sides: dict[str, HowLaunched] | None = None
    flushes: bool | None = None
    tuning: dict[str, dict[str, str]] = {}
    baselines: dict[str, str] = {}


class Take(Message):
    """Asks for blocks. The answer is Taken. process: their number. sides: those that are left; none: all."""

    blocks: int
    process: int
    sides: tuple[str, ...] = ()


class Taken(Message):
    blocks: tuple[SampleBlock, ...]


class Measure(Message):
    """Asks for the rough time of a recorded launch. The answer is Measured. launch: its file."""

    captures: Path
    record: str
    launch: Path


class Measured(Message):
    """In microseconds; None where it cannot be launched again, with the reason."""

    us: float | None = None
    why: str | None = None
