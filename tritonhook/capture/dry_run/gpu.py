"""DryRun: what a dry run compiles for; Gpu: what programs are told of the GPU that is not there.

And what a process of a dry run has to say at its end. Values only, and few imports: every process of a dry run reads
them.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass

from tritonhook._util.variables import DRY_RUN, EMULATE
from tritonhook.errors import UsageError

# Configurations of an autotuned kernel: the first that the GPU has room for, all of them, or what a policy pins. Pins
# are taken in any case; with PINNED a note names each kernel that has none.
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
    """capability: such as 90, as Triton writes it. autotune: FIRST, ALL or PINNED. memory: REAL, or NONE for tensors
    without memory. named: the GPU that the user named; None for the usual one of the architecture. ptxas_seconds:
    the most that ptxas may take for one kernel. launch_anyway: note what the GPU would refuse to launch, and go on."""

    capability: int
    autotune: str = FIRST
    memory: str = REAL
    named: Gpu | None = None
    ptxas_seconds: float = PTXAS_SECONDS
    launch_anyway: bool = False

    @property
    def arch(self) -> str:
        """The target of ptxas, as Triton names it: with the "a" from Hopper on."""
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
        """Read what users write. arch: sm_80, sm_90 or sm_90a; None for that of the GPU. gpu: such as "H100"; None for
        the usual one. Raises UsageError for what is not known."""
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
        """The variable that every process of the dry run asks for. What is not Triton's cannot launch either."""
        return {DRY_RUN: json.dumps(asdict(self)), "CUDA_VISIBLE_DEVICES": "", "CUTE_DSL_ARCH": self.arch}

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> DryRun | None:
        """What `to_environment` made; None outside of a dry run."""
        if DRY_RUN not in environment:
            return None
        values = json.loads(environment[DRY_RUN])
        return cls(**values | {"named": Gpu(**values["named"]) if values.get("named") else None})


def _named(name: str) -> tuple[Gpu, int]:
    """A GPU by its name, and its architecture. Raises UsageError for one that is not known."""
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


class Notes:
    """Remarks, and how often the program asked for values that a dry run does not have."""

    def __init__(self) -> None:
        self._texts: dict[str, None] = {}
        self._reads: Counter[str] = Counter()

    def add(self, text: str) -> None:
        """Keep a remark, once."""
        self._texts[text] = None

    def count(self, what: str) -> None:
        """Count one reading of values, such as "item"."""
        self._reads[what] += 1

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
