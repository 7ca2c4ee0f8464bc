"""Values of a verification: builds of one kernel, requests (Order) to run them, what each build stored, differences,
verdicts."""

from __future__ import annotations

import subprocess
import sys
from abc import abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from types import TracebackType

from tritonhook.capture.launches.contents import INPUTS, NORMAL
from tritonhook.capture.launches.record import Launch
from tritonhook.errors import UsageError


class Verdict(str, Enum):
    """Verdict on the builds of one kernel. The worst comes first; a kernel gets the worst verdict of all its inputs."""

    CRASH = "CRASH"  # a build ended with a GPU error, or wrote outside of its buffers
    HANG = "HANG"
    DIFFERENT = "DIFFERENT"
    NONDETERMINISTIC = "NONDETERMINISTIC"  # two runs of one build differ
    ROUNDING = "ROUNDING"  # floating-point numbers differ as far as PTX allows the kernel's instructions
    NOT_UNDERSTOOD = "NOT UNDERSTOOD"  # on the CPU: the emulator does not support an instruction
    SAME = "SAME"
    SKIPPED = "SKIPPED"  # nothing could be compared; a note has the reason


@dataclass(frozen=True, slots=True)
class Build:
    """One build of a kernel: a cubin, or its PTX for the emulator. label: e.g. "13.5.37 -O3", unique among the builds.
    path: its file. entry: the kernel's name in it.

    ptxas: the version that made it; None if unknown. as_used: as in Recipe.
    """

    label: str
    path: Path
    entry: str
    ptxas: str | None = None
    options: tuple[str, ...] = ()
    as_used: bool = False


@dataclass(frozen=True, slots=True)
class Order:
    """A request to run each build on each input, `runs` times, and to compare its results with those of the first
    build.

    folder: folder with the files of recorded contents; None if there are none. keep: numbers of the buffers that hold
    their recorded contents in every input, because these decide addresses or branches. save: folder to which the
    contents after each build's first run are written, as `INPUT-BUILDNUMBER-BUFFER.bin`; None: not written.
    """

    launch: Launch
    builds: tuple[Build, ...]
    inputs: tuple[str, ...] = INPUTS
    runs: int = 3
    folder: Path | None = None
    keep: tuple[int, ...] = ()
    save: Path | None = None


TRIAL_LIMIT_S = 2.0  # time limit of a launch while a kernel is minimised, because many trials never end


class Runner(AbstractContextManager["Runner"]):
    """Runs the builds of an Order: on a GPU (executor.py), or on the CPU (cpu.py). device: name of the GPU or CPU; None
    before the first run. limit_s: time limit of a launch, in seconds."""

    device: str | None
    limit_s: float

    @abstractmethod
    def run(self, order: Order, stop: Callable[[Ran], bool] = lambda ran: False) -> tuple[Ran, ...]:
        """Run the builds on the inputs of an Order. Returns a Ran for each build on the first input, then on the second
        input, etc. stop: called with each Ran; if it returns True, the run ends."""

    @abstractmethod
    def trials(self) -> Runner:
        """Make a runner of the same kind with a shorter time limit, to minimise a kernel."""

    def run_until_lost(self, order: Order) -> tuple[Ran, ...]:
        """Run the builds of an Order as `run` does, but stop after the first build that crashes, hangs or is not
        understood."""
        return self.run(order, lambda ran: ran.failure is not None and ran.failure.kind is not FailureKind.REFUSED)

    def close(self) -> None:
        """End the processes that this runner has started."""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


@dataclass(frozen=True, slots=True)
class Element:
    """One element that differs, as (reference, other). bits: both bit patterns, in hexadecimal. values: both
    values, as decimal numbers."""

    index: int
    bits: tuple[str, str]
    values: tuple[str, str]


@dataclass(frozen=True, slots=True)
class Difference:
    """Difference between the contents of one buffer and the reference contents.

    elements: number of elements in the buffer. differing: number of elements that differ. digest: hash of the contents.
    first: the first elements that differ. only_nans: every differing element is NaN in both, with different payloads.
    ulps: the largest distance, in units in the last place. share: the largest distance, divided by the buffer's largest
    finite magnitude. ulps and share are None if the buffer is not floating-point, or a differing element is NaN or
    infinite on one side only. measured: number of differing elements from which ulps and share were computed. at: only
    if execution orders were compared: the instructions that stored the first differing element.
    """

    buffer: int
    dtype: str
    elements: int
    differing: int
    digest: str
    first: tuple[Element, ...]
    only_nans: bool = False
    ulps: int | None = None
    share: float | None = None
    measured: int = 0
    at: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Outside:
    """A write outside of a buffer. offset: bytes from the start of the buffer to the first changed byte; negative if
    the byte is before the buffer. size: bytes of the buffer."""

    buffer: int
    offset: int
    size: int


class FailureKind(str, Enum):
    CRASH = "crash"
    HANG = "hang"
    REFUSED = "refused"  # the driver did not load or launch the build
    NOT_UNDERSTOOD = "not understood"  # the emulator does not support all instructions


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a run did not finish. text: the error, or the time limit."""

    kind: FailureKind
    text: str


@dataclass(frozen=True, slots=True)
class Ran:
    """Result of one build on one input. us: microseconds of the first run. stored: number of buffers that the first run
    changed; None if it did not finish.

    differences: differences between the first run of this build and that of the reference. unsteady: for each buffer
    that differs between the runs of this build, the largest difference from its first run. outside: writes outside of
    buffers. by_nans: numbers of the buffers that differ only because PTX does not define the bits of a NaN."""

    input: str
    build: str
    differences: tuple[Difference, ...] = ()
    unsteady: tuple[Difference, ...] = ()
    outside: tuple[Outside, ...] = ()
    failure: Failure | None = None
    us: float | None = None
    stored: int | None = None
    by_nans: frozenset[int] = frozenset()

    @property
    def is_clean(self) -> bool:
        """Whether the build stored the same as the reference in every run."""
        return not (self.differences or self.unsteady or self.outside or self.failure)


def verify_captures(folder: Path | str, *options: str) -> tuple[bool, str]:
    """Run `tritonhook verify --cpu` on a capture folder, with one input. Returns whether a kernel is wrong, and the
    summary as text.

    Raises UsageError if no kernel is wrong, but one could not be verified."""
    return _judged("verify", "--cpu", str(folder), "--inputs", NORMAL, *options)


def sanitize_captures(folder: Path | str) -> tuple[bool, str]:
    """Run `tritonhook emulate` on a capture folder: two CTAs of each kernel, with one input. Returns whether a kernel
    has a fault, and the summary as text.

    Raises UsageError if no kernel has a fault, but one did not finish."""
    return _judged("emulate", str(folder), "--input", NORMAL, "--ctas", "2")


def _judged(*words: str) -> tuple[bool, str]:
    done = subprocess.run((sys.executable, "-m", "tritonhook", *words), capture_output=True, text=True)
    if done.returncode not in (0, 1):
        raise UsageError(
            f"{(done.stdout or done.stderr).strip() or f'`tritonhook {words[0]}` ended with status {done.returncode}'}"
        )
    return done.returncode == 1, done.stdout
