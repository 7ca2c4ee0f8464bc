"""GPUs by name: streaming multiprocessors and resident threads, which decide how large the local-memory pool is.

A table with sources. For a GPU of this machine, device/cuda_driver.py reads both.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from tritonhook.errors import UsageError

DEFAULT_STACK = 1024  # bytes per thread of a fresh context: cuCtxGetLimit(CU_LIMIT_STACK_SIZE)
# CUDA C++ Programming Guide, "Technical Specifications per Compute Capability": most resident threads per SM.
_THREADS = {80: 2048, 86: 1536, 89: 1536, 90: 2048, 100: 2048, 120: 1536, 121: 1536}
_CORES = "NVIDIA's product page: CUDA cores / 128 per SM"
_WHITEPAPER = "NVIDIA, RTX Blackwell GPU Architecture whitepaper"
_PUBLISHED = "given with the published measurement (docs/explanation/gpu-memory.md)"
_H100 = "NVIDIA, H100 Tensor Core GPU Architecture whitepaper"


@dataclass(frozen=True, slots=True)
class GpuSpecs:
    """What the local-memory pool depends on.

    sms: streaming multiprocessors in use. threads_per_sm: most resident threads of one.
    arch: compute capability as a number, e.g. 120; None if not known.
    source: where the numbers are from. memory_gib: NVIDIA's product pages; None if not known.
    """

    name: str
    sms: int
    threads_per_sm: int
    arch: int | None
    source: str
    memory_gib: int | None = None

    def __post_init__(self) -> None:
        for what, value in (("SMs", self.sms), ("threads per SM", self.threads_per_sm)):
            if value <= 0:
                raise UsageError(f"{self.name}: {value} {what}; give a number above 0")
        if self.threads_per_sm % 32:
            raise UsageError(
                f"{self.name}: {self.threads_per_sm} threads per SM is not a multiple of 32, the threads of a warp"
            )

    @property
    def resident_threads(self) -> int:
        return self.sms * self.threads_per_sm


def _row(name: str, sms: int, arch: int, source: str, memory_gib: int) -> GpuSpecs:
    source = f"{source}; threads per SM: CUDA C++ Programming Guide, {arch / 10:.1f}"
    return GpuSpecs(name, sms, _THREADS[arch], arch, source, memory_gib)


GPUS = (
    _row("RTX 5090", 170, 120, _WHITEPAPER, 32),
    _row("RTX 5090 Laptop", 82, 120, _PUBLISHED, 24),
    _row("RTX 5080", 84, 120, _WHITEPAPER, 16),
    _row("RTX 5080 Laptop", 60, 120, _CORES, 16),
    _row("RTX 5070 Ti", 70, 120, _PUBLISHED, 16),
    _row("RTX 5070", 48, 120, _WHITEPAPER, 12),
    _row("RTX 5070 Laptop", 36, 120, _CORES, 8),
    _row("RTX 5060 Ti", 36, 120, _CORES, 16),
    _row("RTX 5060", 30, 120, _CORES, 8),
    _row("RTX 5050", 20, 120, _CORES, 8),
    _row("RTX PRO 6000 Blackwell", 188, 120, _PUBLISHED, 96),
    _row("GB10", 48, 121, _PUBLISHED, 120),
    _row("H100 SXM", 132, 90, _H100, 80),
    _row("H100 PCIe", 114, 90, _H100, 80),
    _row("H200", 132, 90, "NVIDIA's H200 data sheet: the H100 SXM's GPU", 141),
    _row("B200", 148, 100, "as cudaGetDeviceProperties reports it (public logs)", 180),
    _row("A100", 108, 80, "NVIDIA, A100 Tensor Core GPU Architecture whitepaper", 80),
    _row("RTX 4090", 128, 89, "NVIDIA, Ada GPU Architecture whitepaper", 24),
    _row("RTX 3090", 82, 86, "NVIDIA, Ampere GA102 GPU Architecture whitepaper", 24),
)
_ALIASES = {
    "dgx spark": "GB10",
    "rtx pro 6000": "RTX PRO 6000 Blackwell",
    "h100": "H100 SXM",
    "h100 80gb hbm3": "H100 SXM",
}
_NOISE = re.compile(
    r"\b(nvidia|geforce|gpu|workstation|server|max-q|edition|blackwell (?=workstation|server|max-q))\b", re.ASCII
)


def find_gpu(name: str) -> GpuSpecs:
    """Find a GPU by its name, as people or the driver write it: "RTX 5090", "NVIDIA GeForce RTX 5090 Laptop GPU".

    Raises UsageError with the names in the table, and never guesses: a wrong SM count would give a wrong answer.
    """
    wanted = _plain(name)
    wanted = _plain(_ALIASES.get(wanted, wanted))
    for gpu in GPUS:
        if _plain(gpu.name) == wanted:
            return gpu
    raise UsageError(
        f"--gpu {name!r}: not in the table; give --sms and --threads-per-sm instead. It has: "
        + ", ".join(gpu.name for gpu in GPUS)
    )


def make_gpu(sms: int, threads_per_sm: int | None) -> GpuSpecs:
    """A GPU that is not in the table. Raises UsageError without threads_per_sm."""
    if threads_per_sm is None:
        raise UsageError("--sms: give --threads-per-sm too: it follows from the architecture, which is not known")
    return GpuSpecs(f"{sms} SMs", sms, threads_per_sm, None, "given on the command line")


def _plain(name: str) -> str:
    return " ".join(_NOISE.sub(" ", name.lower()).split())
