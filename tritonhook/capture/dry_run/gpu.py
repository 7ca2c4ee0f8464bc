"""DryRun: the settings of a dry run. Gpu: figures of a GPU, which programs read as if it were there. Emulation:
settings for executing launches on the CPU. Notes: messages that a process of a dry run reports at its end.

It imports little, because every process of a dry run imports it.
"""

from __future__ import annotations

import json
import math
import os
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from tritonhook._util.variables import DRY_RUN, EMULATE
from tritonhook.errors import UsageError

# Configurations of an autotuned kernel to compile: the first that fits the GPU, all, or the one that a policy pins.
# Pins always have priority; PINNED also adds a note for each kernel without a pin.
FIRST, ALL, PINNED = "first", "all", "pinned"
REAL, NONE = "real", "none"  # tensors are in the CPU's memory, or have no memory
PTXAS_SECONDS = 180.0  # default time limit for ptxas, per kernel


@dataclass(frozen=True, slots=True)
class Gpu:
    """Figures of one GPU. multiprocessors: number of multiprocessors. shared_bytes: maximum shared memory of a block.
    memory_bytes: memory of the whole GPU. threads: maximum threads of a multiprocessor. l2_bytes: size of the L2 cache.
    Source: NVIDIA's data sheets, and the table of compute capabilities in the CUDA programming guide."""

    name: str
    multiprocessors: int
    shared_bytes: int
    memory_bytes: int
    threads: int
    l2_bytes: int


GPUS: Mapping[int, Gpu] = {
    75: Gpu("Tesla T4", 40, 64 << 10, 16 << 30, 1024, 4 << 20),
    80: Gpu("NVIDIA A100-SXM4-80GB", 108, 163 << 10, 80 << 30, 2048, 40 << 20),
    86: Gpu("NVIDIA A40", 84, 99 << 10, 48 << 30, 1536, 6 << 20),
    87: Gpu("Orin", 16, 163 << 10, 32 << 30, 1536, 4 << 20),
    89: Gpu("NVIDIA L40S", 142, 99 << 10, 48 << 30, 1536, 96 << 20),
    90: Gpu("NVIDIA H100 80GB HBM3", 132, 227 << 10, 80 << 30, 2048, 50 << 20),
    100: Gpu("NVIDIA B200", 148, 227 << 10, 180 << 30, 2048, 126 << 20),
    103: Gpu("NVIDIA B300", 148, 227 << 10, 270 << 30, 2048, 126 << 20),
    120: Gpu("NVIDIA GeForce RTX 5090", 170, 99 << 10, 32 << 30, 1536, 96 << 20),
    121: Gpu("NVIDIA GB10", 48, 99 << 10, 120 << 30, 1536, 24 << 20),
}


@dataclass(frozen=True, slots=True)
class DryRun:
    """The settings of a dry run. capability: compute capability times 10, e.g. 90. autotune: FIRST, ALL or PINNED.
    memory: REAL, or NONE for tensors without memory. named: the GPU that the user named; None for the default GPU of
    the architecture. ptxas_seconds: time limit for ptxas, per kernel. launch_anyway: if the GPU would refuse a launch,
    add a note and continue."""

    capability: int
    autotune: str = FIRST
    memory: str = REAL
    named: Gpu | None = None
    ptxas_seconds: float = PTXAS_SECONDS
    launch_anyway: bool = False

    @property
    def arch(self) -> str:
        """Target for ptxas, e.g. "sm_90a". As in Triton, targets have the suffix "a" from Hopper on."""
        return f"sm_{self.capability}{'a' if self.capability >= 90 else ''}"

    @property
    def gpu(self) -> Gpu:
        return self.named or GPUS[self.capability]

    @classmethod
    def of(
        cls,
        arch: str | None,
        gpu: str | None = None,
        autotune: str = FIRST,
        memory: str = REAL,
        ptxas_seconds: float = PTXAS_SECONDS,
        launch_anyway: bool = False,
    ) -> DryRun:
        """Read the user's options. arch: e.g. "sm_80", "sm_90" or "sm_90a"; None for the GPU's architecture. gpu: e.g.
        "H100"; None for the default GPU of the architecture. Raises UsageError for an unknown value."""
        named, capability = (None, None) if gpu is None else _named(gpu)
        if arch is None:
            arch = f"sm_{capability}"
        match = re.fullmatch(r"sm_(\d{2,3})a?", arch, re.ASCII)
        dry = cls(int(match[1]), autotune, memory, named, ptxas_seconds, launch_anyway) if match else None
        if dry is None or dry.capability not in GPUS or arch not in (dry.arch, f"sm_{dry.capability}"):
            known = ", ".join(cls(capability).arch for capability in GPUS)
            raise UsageError(f"--arch {arch}: not supported by dry runs; choose from {known}")
        if capability not in (None, dry.capability):
            raise UsageError(f"--gpu {gpu}: its architecture is sm_{capability}, not {arch}; leave --arch out")
        return dry

    def to_environment(self) -> dict[str, str]:
        """Return the environment variables for all processes of the dry run. CUDA_VISIBLE_DEVICES hides all GPUs, so
        that other CUDA code cannot launch kernels either."""
        return {DRY_RUN: json.dumps(asdict(self)), "CUDA_VISIBLE_DEVICES": "", "CUTE_DSL_ARCH": self.arch}

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> DryRun | None:
        """Read the variables that `to_environment` made. None outside of a dry run."""
        if DRY_RUN not in environment:
            return None
        values = json.loads(environment[DRY_RUN])
        return cls(**values | {"named": Gpu(**values["named"]) if values.get("named") else None})


# Kinds of lines in the file EXECUTIONS, which children/bits.py writes. ORDERS, CONFIGS, ROWS, STAGES: an execution of a
# launch, for the comparison of that kind. RESULT: results of a function. REFUSED: why `--rows` was not possible. TUNED:
# an autotuned kernel that was executed in only one configuration.
EXECUTIONS = "executions.jsonl"
ORDERS, CONFIGS, ROWS, STAGES = "orders", "configs", "rows", "stages"
RESULT, REFUSED, TUNED = "result", "refused", "tuned"
NUDGED = "nudged"  # label of a stage executed with inputs that were changed by 2 ulp


@dataclass(frozen=True, slots=True)
class Compared:
    """The executions of a dry run whose output bits are compared. folder: folder in which children/bits.py writes them.
    orders: number of execution orders of each launch. configs: True to execute all configurations of autotuned kernels.
    settings: further values to try for constants and options, by name. rows: arguments whose rows are compared, as
    ARG[:DIM],... of a function or FUNCTION.ARG[:DIM],...; "" for none. stages: True to execute the first launch of each
    kernel also in Triton's interpreter and from its machine code. once: True to try `settings` only in the first launch
    of a kernel."""

    folder: str
    orders: int = 1
    configs: bool = False
    settings: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    rows: str = ""
    stages: bool = False
    once: bool = False


@dataclass(frozen=True, slots=True)
class Emulation:
    """Settings for executing the launches of a dry run on the CPU. sanitize: also look for faults in kernels. limit_s:
    time limit for all launches of the program, or of one test. most_bytes: limit for a launch's buffers; above it, a
    test does not execute the launch. compared: further executions to compare; None for none. suppressions: each
    Suppression as a tuple of its fields. bounds: "storage" or "view", see capture/launches/views.py. findings: file for
    the findings; "" for none."""

    sanitize: bool = False
    limit_s: float = math.inf
    most_bytes: float = math.inf
    compared: Compared | None = None
    suppressions: tuple[tuple[str, ...], ...] = ()
    bounds: str = "storage"
    findings: str = ""

    def to_environment(self) -> dict[str, str]:
        # The CuTe DSL's disk cache is turned off, because it keeps no PTX to execute.
        return {EMULATE: json.dumps(asdict(self)), "CUTE_DSL_DISABLE_FILE_CACHING": "1"}

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Emulation | None:
        """Read the variable that `to_environment` made. None if launches are not executed."""
        if EMULATE not in environment:
            return None
        values = json.loads(environment[EMULATE])
        return cls(**values | {"compared": Compared(**values["compared"]) if values.get("compared") else None})


def _named(name: str) -> tuple[Gpu, int]:
    """Return (GPU, compute capability times 10) by the GPU's name. Raises UsageError for an unknown name."""
    from tritonhook.memory.prediction import GPUS as SPECS
    from tritonhook.memory.prediction import find_gpu

    try:
        spec = find_gpu(name)
    except UsageError:
        raise UsageError(f"--gpu {name}: unknown; choose from {', '.join(spec.name for spec in SPECS)}") from None
    usual = GPUS[spec.arch or 0]
    memory = (spec.memory_gib or 0) << 30 or usual.memory_bytes
    shown = f"NVIDIA {'GeForce ' if spec.name.startswith('RTX') and 'PRO' not in spec.name else ''}{spec.name}"
    return Gpu(shown, spec.sms, usual.shared_bytes, memory, spec.threads_per_sm, usual.l2_bytes), spec.arch or 0


_TOOLS = ("torch", "triton", "cutlass", "tritonhook")


def line_of_program() -> str:
    """Return the line of the program that called torch or launched a kernel, e.g. "train.py:12"."""
    frame: Any = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _TOOLS:
        frame = frame.f_back
    return f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"  # noqa: PTH119


class Notes:
    """Messages for the end of a process, and a count of the program's reads of tensor values, which a dry run does not
    have."""

    def __init__(self) -> None:
        self._texts: dict[str, None] = {}
        self._reads: Counter[str] = Counter()

    def add(self, text: str) -> None:
        """Add a note, unless the same note exists."""
        self._texts[text] = None

    def count(self, what: str) -> None:
        """Count one read of tensor values. what: the function, e.g. "item"."""
        self._reads[what] += 1

    @property
    def reads(self) -> int:
        """Total number of reads of tensor values."""
        return self._reads.total()

    def __iter__(self) -> Iterator[str]:
        yield from tuple(self._texts)
        if self._reads and EMULATE not in os.environ:
            named = ", ".join(f"{what} {times:,}" for what, times in self._reads.most_common())
            times = sum(self._reads.values())
            often = "once" if times == 1 else f"{times:,} times"
            judged = isinstance(getattr(sys, "last_value", None), AssertionError)
            more = "; so the program's failed assertion shows nothing about the kernels" if judged else ""
            yield f"the program read values of tensors {often} ({named}): a kernel's results are 0 in a dry run{more}"


notes = Notes()  # the notes of this process
