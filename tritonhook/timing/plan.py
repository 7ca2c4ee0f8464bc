"""What one timed comparison consists of: a value that goes from the command line to each timing process; and
what these are asked and answer."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tritonhook.device.child import Message
from tritonhook.errors import UsageError
from tritonhook.rename import Control, Rename
from tritonhook.timing.result import Compiled, HowLaunched, Kernels
from tritonhook.timing.statistics import SampleBlock

BASELINE_RTOL = 0.02  # of the largest value: two ways to compute attention in bf16 differ by about half of it


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
    """What one comparison consists of.

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
    """What a process made ready; the fields are those of result.Timed. compiled: by side. tuning: by side and kernel,
    the configuration."""

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
