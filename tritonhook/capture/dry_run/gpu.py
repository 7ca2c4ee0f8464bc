"""DryRun: the target of a dry run. Gpu: the figures that programs read instead of a real GPU's. Emulation: how launches
are executed. Notes: what a process of a dry run reports at its end.

Values only, and few imports: every process of a dry run loads this module.
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

# Configurations of an autotuned kernel: the first that fits the GPU, all of them, or the policy's pin. Pins are always
# used; with PINNED a note names each kernel without a pin.
FIRST, ALL, PINNED = "first", "all", "pinned"
REAL, NONE = "real", "none"  # tensors in the CPU's memory, or without any
PTXAS_SECONDS = 180.0


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU of an architecture. multiprocessors: how many. shared_bytes: the most shared memory of a block.
    memory_bytes: of the whole GPU. threads: the most of a multiprocessor. l2_bytes: of the L2 cache. Source: NVIDIA's
    data sheets, and the CUDA programming guide's table of compute capabilities."""

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
    """The settings of a dry run. capability: such as 90, as Triton writes it. autotune: FIRST, ALL or PINNED.
    memory: REAL, or NONE for tensors without memory. named: the GPU that the user named; None for the usual one of
    the architecture. ptxas_seconds: limit for ptxas, per kernel. launch_anyway: note what the GPU would refuse to
    launch, and continue."""

    capability: int
    autotune: str = FIRST
    memory: str = REAL
    named: Gpu | None = None
    ptxas_seconds: float = PTXAS_SECONDS
    launch_anyway: bool = False

    @property
    def arch(self) -> str:
        """Target of ptxas in Triton's form: with the "a" from Hopper on."""
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
        """Read the user's options. arch: sm_80, sm_90 or sm_90a; None for the GPU's own. gpu: such as "H100"; None
        for the architecture's usual one. Raises UsageError for an unknown value."""
        named, capability = (None, None) if gpu is None else _named(gpu)
        if arch is None:
            arch = f"sm_{capability}"
        match = re.fullmatch(r"sm_(\d{2,3})a?", arch, re.ASCII)
        dry = cls(int(match[1]), autotune, memory, named, ptxas_seconds, launch_anyway) if match else None
        if dry is None or dry.capability not in GPUS or arch not in (dry.arch, f"sm_{dry.capability}"):
            known = ", ".join(cls(capability).arch for capability in GPUS)
            raise UsageError(f"--arch {arch}: not known to dry runs; known: {known}")
        if capability not in (None, dry.capability):
            raise UsageError(f"--gpu {gpu}: its architecture is sm_{capability}, not {arch}; leave --arch out")
        return dry

    def to_environment(self) -> dict[str, str]:
        """Return the variables for all processes of the dry run. With no GPU visible, CUDA code other than Triton's
        cannot launch either."""
        return {DRY_RUN: json.dumps(asdict(self)), "CUDA_VISIBLE_DEVICES": "", "CUTE_DSL_ARCH": self.arch}

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> DryRun | None:
        """Read the variables that `to_environment` made. None outside of a dry run."""
        if DRY_RUN not in environment:
            return None
        values = json.loads(environment[DRY_RUN])
        return cls(**values | {"named": Gpu(**values["named"]) if values.get("named") else None})


# What a line of the file EXECUTIONS, which children/bits.py writes, belongs to: a question, the result of a function,
# what was refused, or an autotuned kernel that is executed in one configuration.
EXECUTIONS = "executions.jsonl"
ORDERS, CONFIGS, ROWS, RESULT, REFUSED, STAGES, TUNED = (
    "orders",
    "configs",
    "rows",
    "result",
    "refused",
    "stages",
    "tuned",
)
NUDGED = "nudged"  # the label of a stage from inputs that are 2 ulp away


@dataclass(frozen=True, slots=True)
class Compared:
    """Executions of a dry run whose stored bits are compared. folder: where children/bits.py writes them. orders: of
    each launch. configs: whether all configurations of autotuned kernels are. settings: values of constants and options
    that each kernel gets too, by name. rows: ARG[:DIM],... of a function, or FUNCTION.ARG[:DIM],...; "": none. stages:
    whether the first launch of each kernel is executed in each of them. once: only the first launch of a kernel gets
    `settings`."""

    folder: str
    orders: int = 1
    configs: bool = False
    settings: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    rows: str = ""
    stages: bool = False
    once: bool = False


@dataclass(frozen=True, slots=True)
class Emulation:
    """How a dry run executes its launches on the CPU. sanitize: look for faults of the kernels too. limit_s: of all
    launches of the program, or of one test. most_bytes: of the buffers of a launch; above, a test runs dry. compared:
    what else is executed, and kept; None: nothing. suppressions: the fields of each. bounds: see
    capture/launches/views.py. findings: file of the findings; "" for none."""

    sanitize: bool = False
    limit_s: float = math.inf
    most_bytes: float = math.inf
    compared: Compared | None = None
    suppressions: tuple[tuple[str, ...], ...] = ()
    bounds: str = "storage"
    findings: str = ""

    def to_environment(self) -> dict[str, str]:
        # The CuTe DSL's cache on disk has no PTX.
        return {EMULATE: json.dumps(asdict(self)), "CUTE_DSL_DISABLE_FILE_CACHING": "1"}

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Emulation | None:
        """Read the variable that `to_environment` made. None where launches are not executed."""
        if EMULATE not in environment:
            return None
        values = json.loads(environment[EMULATE])
        return cls(**values | {"compared": Compared(**values["compared"]) if values.get("compared") else None})


def _named(name: str) -> tuple[Gpu, int]:
    """Find a GPU and its architecture by name. Raises UsageError for an unknown name."""
    from tritonhook.memory.prediction import GPUS as SPECS
    from tritonhook.memory.prediction import find_gpu

    try:
        spec = find_gpu(name)
    except UsageError:
        raise UsageError(f"--gpu {name}: not known; known: {', '.join(spec.name for spec in SPECS)}") from None
    usual = GPUS[spec.arch or 0]
    memory = (spec.memory_gib or 0) << 30 or usual.memory_bytes
    shown = f"NVIDIA {'GeForce ' if spec.name.startswith('RTX') and 'PRO' not in spec.name else ''}{spec.name}"
    return Gpu(shown, spec.sms, usual.shared_bytes, memory, spec.threads_per_sm, usual.l2_bytes), spec.arch or 0


_TOOLS = ("torch", "triton", "cutlass", "tritonhook")


def line_of_program() -> str:
    """Name the line that called torch, or launched a kernel, such as "train.py:12"."""
    frame: Any = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _TOOLS:
        frame = frame.f_back
    return f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"  # noqa: PTH119


class Notes:
    """Notes, and the number of times that the program asked for values that a dry run does not have."""

    def __init__(self) -> None:
        self._texts: dict[str, None] = {}
        self._reads: Counter[str] = Counter()

    def add(self, text: str) -> None:
        """Keep a note; repeated notes are kept once."""
        self._texts[text] = None

    def count(self, what: str) -> None:
        """Count one read of tensor values, such as "item"."""
        self._reads[what] += 1

    @property
    def reads(self) -> int:
        """Number of reads of tensor values until now."""
        return self._reads.total()

    def __iter__(self) -> Iterator[str]:
        yield from tuple(self._texts)
        if self._reads and EMULATE not in os.environ:
            named = ", ".join(f"{what} {times:,}" for what, times in self._reads.most_common())
            times = sum(self._reads.values())
            often = "once" if times == 1 else f"{times:,} times"
            judged = isinstance(getattr(sys, "last_value", None), AssertionError)
            more = "; so its failed assertion says nothing about the kernels" if judged else ""
            yield f"the program read values of tensors {often} ({named}): what a kernel would store is 0{more}"


notes = Notes()  # of this process
