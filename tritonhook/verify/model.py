"""Values of a verification: builds of one kernel, what each stored, how that differs, and the verdict. Pure."""

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
    """Verdict on the builds of one kernel; the worst of all inputs comes first in this list."""

    CRASH = "CRASH"  # a build ended with an error of the GPU, or wrote outside of the buffers
    HANG = "HANG"
    DIFFERENT = "DIFFERENT"
    NONDETERMINISTIC = "NONDETERMINISTIC"  # two runs of one build differ
    ROUNDING = "ROUNDING"  # floating-point numbers differ as far as PTX allows the kernel's instructions
    NOT_UNDERSTOOD = "NOT UNDERSTOOD"  # without a GPU: an instruction that the emulator does not know
    SAME = "SAME"
    SKIPPED = "SKIPPED"  # nothing could be compared; a reason goes with it


@dataclass(frozen=True, slots=True)
class Build:
    """One cubin of the kernel. label: as people read it ("13.5.37 -O3"), unique among the builds. path: its file.

    ptxas: the version that made it, or None. as_used: as in a Recipe.
    """

    label: str
    path: Path
    entry: str
    ptxas: str | None = None
    options: tuple[str, ...] = ()
    as_used: bool = False


@dataclass(frozen=True, slots=True)
class Order:
    """An order for one child process: each build on each input, `runs` times, all compared with the first build.

    folder: where the files of the recorded contents are; None: there are none. keep: buffers that no input changes,
    because their contents steer addresses or branches. save: a folder for the contents after each build's first run
    (`INPUT-BUILDNUMBER-BUFFER.bin`); None: not kept.
    """

    launch: Launch
    builds: tuple[Build, ...]
    inputs: tuple[str, ...] = INPUTS
    runs: int = 3
    folder: Path | None = None
    keep: tuple[int, ...] = ()
    save: Path | None = None


TRIAL_LIMIT_S = 2.0  # per launch while a kernel is minimised: many trials never end


class Runner(AbstractContextManager["Runner"]):
    """Carries out orders: on a GPU (executor.py), or on the CPU (cpu.py). device: None before the first run.
    limit_s: of one launch."""

    device: str | None
    limit_s: float

    @abstractmethod
    def run(self, order: Order, stop: Callable[[Ran], bool] = lambda ran: False) -> tuple[Ran, ...]:
        """Carry out an order: one Ran for each input and build, in that order. stop: ends the order after this Ran; the
        rest does not run."""

    @abstractmethod
    def trials(self) -> Runner:
        """Make another runner of this kind, with a shorter limit, to minimise a kernel."""

    def run_until_lost(self, order: Order) -> tuple[Ran, ...]:
        """Run as `run` does, but stop after the first build that fails, and could be started."""
        return self.run(order, lambda ran: ran.failure is not None and ran.failure.kind is not FailureKind.REFUSED)

    def close(self) -> None:
        """End what it holds."""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


@dataclass(frozen=True, slots=True)
class Element:
    """One element that differs. bits: hexadecimal, first the reference's. values: the same, as people read it."""

    index: int
    bits: tuple[str, str]
    values: tuple[str, str]


@dataclass(frozen=True, slots=True)
class Difference:
    """Difference between the contents of one buffer and the reference's.

    elements: of the buffer. differing: how many of them differ. digest: of the contents: equal for equal contents.
    first: the first elements that differ. only_nans: both sides have a NaN wherever they differ, with other payloads.
    ulps: the largest distance in units in the last place; None if a number meets a NaN or an infinity. share: the
    largest distance as a share of the buffer's largest finite magnitude. ulps and share are None unless the buffer is
    floating-point. measured: number of differing elements behind ulps and share. at: the instructions that
    stored the first element, if orders were compared.
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
    """A write outside of a buffer. offset: of the first byte that changed, from the buffer's begin; negative before it.
    size: of the buffer, in bytes."""

    buffer: int
    offset: int
    size: int


class FailureKind(str, Enum):
    CRASH = "crash"
    HANG = "hang"
    REFUSED = "refused"  # the driver did not load or start it
    NOT_UNDERSTOOD = "not understood"  # the emulator does not support all of it


@dataclass(frozen=True, slots=True)
class Failure:
    """A run that did not come to its end. text: the driver's error, or the time limit."""

    kind: FailureKind
    text: str


@dataclass(frozen=True, slots=True)
class Ran:
    """One build on one input. us: the first run's time in microseconds. stored: how many buffers the first run changed;
    None if it did not end.

    differences: of the first run from the reference's first run. unsteady: of the other runs from the first one, the
    largest one of each buffer. by_nans: buffers whose differences lie where PTX leaves open which NaN there is.
    """

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
        """Whether it stored what the reference stored, in every run."""
        return not (self.differences or self.unsteady or self.outside or self.failure)


def verify_captures(folder: Path | str, *options: str) -> tuple[bool, str]:
    """Verify each kernel in a process of its own, on one input: whether one is wrong, and the summary as text.

    Raises UsageError if one could not be verified, and none is wrong."""
    return _judged("verify", "--cpu", str(folder), "--inputs", NORMAL, *options)


def sanitize_captures(folder: Path | str) -> tuple[bool, str]:
    """Look for faults in two CTAs of each kernel, on one input: whether there is one, and the summary as text.

    Raises UsageError if a kernel did not finish, and none has a fault."""
    return _judged("emulate", str(folder), "--input", NORMAL, "--ctas", "2")


def _judged(*words: str) -> tuple[bool, str]:
    done = subprocess.run((sys.executable, "-m", "tritonhook", *words), capture_output=True, text=True)
    if done.returncode not in (0, 1):
        raise UsageError(f"{(done.stdout or done.stderr).strip() or f'code {done.returncode}'}")
    return done.returncode == 1, done.stdout
