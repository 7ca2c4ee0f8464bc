"""What one timed comparison consists of: a value that goes from the command line to each timing process."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tritonhook.errors import UsageError
from tritonhook.rename import Control, Rename

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
