"""DryRun: what a dry run compiles for; Gpu: what programs are told of the GPU that is not there.

Values only, and few imports: every process of a dry run reads them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

from tritonhook._util.variables import DRY_RUN
from tritonhook.errors import UsageError

FIRST, ALL = "first", "all"  # configurations of an autotuned kernel: the first that fits, or all of them


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
    """capability: such as 90, as Triton writes it. autotune: FIRST or ALL."""

    capability: int
    autotune: str = FIRST

    @property
    def arch(self) -> str:
        """The target of ptxas, as Triton names it: with the "a" from Hopper on."""
        return f"sm_{self.capability}{'a' if self.capability >= 90 else ''}"

    @property
    def gpu(self) -> Gpu:
        return GPUS[self.capability]

    @classmethod
    def of(cls, arch: str, autotune: str = FIRST) -> DryRun:
        """Read what users write: sm_80, sm_90 or sm_90a. Raises UsageError for an architecture that is not known."""
        found = re.fullmatch(r"sm_(\d{2,3})a?", arch, re.ASCII)
        dry = cls(int(found[1]), autotune) if found else None
        if dry is None or dry.capability not in GPUS or arch not in (dry.arch, f"sm_{dry.capability}"):
            known = ", ".join(cls(capability).arch for capability in GPUS)
            raise UsageError(f"--arch {arch}: not known to dry runs; known: {known}")
        return dry

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> DryRun | None:
        """What `tritonhook run --arch` wrote; None outside of one."""
        return cls(**json.loads(environment[DRY_RUN])) if DRY_RUN in environment else None
