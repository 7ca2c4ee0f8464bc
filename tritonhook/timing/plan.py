"""Values of a timed comparison: the plan, which goes from the command line to each timing process; the requests to
these processes and their answers; and the result with every sample."""

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
    """The code of one kernel on one side. code: sha256 of the machine code. registers: per thread. stack: bytes per
    thread."""

    code: str
    registers: int | None
    stack: int | None


Kernels = Mapping[str, tuple[KernelCode, ...]]  # name in the source -> one entry for each configuration


@dataclass(frozen=True, slots=True)
class Compiled:
    """The compiled kernels of a side. kernels: their names at the launch. ptxas: versions of ptxas; empty if not
    known."""

    kernels: tuple[str, ...]
    ptxas: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Compared(Compiled):
    """A side of a comparison. name: its name in reports, unique among the sides: a kernel, a function or a file."""

    name: str


@dataclass(frozen=True, slots=True)
class HowLaunched:
    """How a side is launched. copies: launches in one sample. graph: True if they are a CUDA graph. why_eager: the
    reason if they are not."""

    copies: int = 1
    graph: bool = False
    why_eager: str | None = None


@dataclass(frozen=True, slots=True)
class Choices:
    """Configurations of autotuned kernels. mode: "fixed" if all sides use the reference's configuration, "each" if each
    side is tuned. sides: configuration by side and kernel."""

    mode: Literal["fixed", "each"]
    sides: Mapping[str, Mapping[str, str]]


class Timed(Notebook, Fields):
    """A finished comparison.

    target: the timed function or file. compared: description of each side. kernels: by side and kernel, one entry for
    each configuration. outputs: number of compared outputs. wrong: by side, how its outputs differ from the
    reference's; if any differ, nothing is timed. notes: remarks. device: the GPU. versions: of torch, triton, others.
    sides: how each side was launched. flushes: whether the L2 cache was emptied before each sample. stopped: why it
    ended: "precise", "time", "processes" (their maximum number is reached), "interrupted", "a process failed", or
    "nothing to time". seconds: duration. blocks: the samples. band: largest relative difference that counts as no
    effect. control_of: the side that has the same code as the control. code: by kernel, how its code differs, as text.
    tuning: configurations of autotuned kernels. baselines: by baseline, how its outputs differ.
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
        """Return a copy with these fields replaced."""
        return structs.replace(self, **given)

    @property
    def same_code(self) -> bool:
        """Whether reference and candidate have the same instructions, so that there is nothing to time."""
        return self.kernels[REFERENCE] == self.kernels[CANDIDATE]

    @property
    def changed_kernels(self) -> tuple[str, ...]:
        """Names of the kernels whose code differs in the candidate."""
        before, after = self.kernels[REFERENCE], self.kernels[CANDIDATE]
        return tuple(name for name in before if before[name] != after.get(name))


BASELINE_RTOL = 0.02  # fraction of the largest value; two algorithms for attention in bf16 differ by about half of it


@dataclass(frozen=True, slots=True)
class SideImage:
    """A side that is a cubin.

    path: the file. entry: name of the kernel in it. kernel: the kernel's name in reports. ptxas: version of the ptxas
    that made it, if known.
    """

    side: str
    path: str
    entry: str
    kernel: str
    ptxas: str | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """The settings of one comparison.

    target: the reference, as MODULE:FUNCTION.
    out: folder for each side's captures.
    rename: the candidate is the same launch with its kernels renamed.
    candidate: the candidate is another MODULE:FUNCTION.
    baselines: further functions that are timed.
    ptxas: path of the ptxas for all kernels that Triton compiles. candidate_ptxas: path of another one for the
    candidate.
    rtol: allowed difference of outputs, as a fraction of the largest value; None: bits must be equal. check: whether
    outputs are compared.
    path: entries for sys.path, to find the targets.
    even_same: time the sides even if they have the same code, e.g. for a calibration.
    candidate_options: further options for the candidate's ptxas. rewrites: names of rewrites for the candidate.
    tune_each: tune autotuned kernels on each side; if False, all sides use the reference's configuration.
    names: names of reference and candidate in the report; None: they are made from the other fields.
    images: a cubin for each side, instead of a target that launches. launch: file of the recorded launch of these
    cubins.
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
        """The rename that makes the control: to a name without effect on ptxas."""
        return Rename(prefix="control_") if self.rename is None else Control(self.rename)


# --- requests and answers of the processes that time ----------------------------------------------


class Prepare(Message):
    """Request: prepare a comparison. The answer is Prepared."""

    plan: Plan


class Prepared(Message):
    """Answer: the process is ready to time. Most fields are those of Timed. compiled: compiled kernels of each side.
    tuning: configuration by side and kernel."""

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
    """Request: take blocks of samples. The answer is Taken. blocks: number of blocks. process: number of this process,
    recorded in the blocks. sides: time only these sides; empty: all sides."""

    blocks: int
    process: int
    sides: tuple[str, ...] = ()


class Taken(Message):
    """Answer to Take."""

    blocks: tuple[SampleBlock, ...]


class Measure(Message):
    """Request: measure the rough time of a recorded launch. The answer is Measured. record: name of the capture.
    launch: file of the launch."""

    captures: Path
    record: str
    launch: Path


class Measured(Message):
    """Answer to Measure. us: microseconds; None if the launch cannot be repeated. why: the reason for None."""

    us: float | None = None
    why: str | None = None
