"""Model a lower bound of a launch's time: the work of each hardware unit, divided by the unit's peak rate.

A real launch takes longer: it waits for memory and for other warps, and it needs time to start and to end. Work that is
not counted, such as operands of TMA, only lowers the bound.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tritonhook.emulate.counters.metrics import Counted

SECTOR = 32  # bytes
ISSUE, SHARED, TAGS, MEMORY = "issue", "shared memory", "L1 tags", "memory"
_IN_A_CYCLE = {ISSUE: 4, SHARED: 1, TAGS: 1}  # per SM and cycle: warp instructions, wavefronts, lines
# Operations per SM and cycle: peak rates divided by SMs and clock. Sources: NVIDIA's whitepapers on the A100, GA102,
# AD102, H100 and RTX Blackwell GPU architectures. If a type's rate depends on the accumulator, this is the higher rate.
_GEFORCE = {
    "tensor FP16": 1024, **dict.fromkeys(("tensor FP8", "tensor INT8"), 2048), "tensor BF16": 512, "tensor TF32": 256,
    **dict.fromkeys(("FP32", "FP16"), 256), "FP64": 4,
}  # fmt: skip
OPERATIONS: Mapping[int, Mapping[str, int]] = {
    80: {
        **dict.fromkeys(("tensor FP16", "tensor BF16"), 2048), "tensor TF32": 1024, "tensor FP64": 128,
        "tensor INT8": 4096, "FP32": 128, "FP16": 512, "FP64": 64,
    },
    86: _GEFORCE,
    89: _GEFORCE,
    90: {
        **dict.fromkeys(("tensor FP16", "tensor BF16"), 4096), "tensor TF32": 2048, "tensor FP64": 256,
        **dict.fromkeys(("tensor FP8", "tensor INT8"), 8192), "FP32": 256, "FP16": 512, "FP64": 128,
    },
    120: _GEFORCE,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Rates:
    """Peak rates of a GPU. mhz: highest clock. memory: GB/s. operations: per SM and cycle, by pipe and type."""

    gpu: str
    sms: int
    mhz: int
    memory: int
    operations: Mapping[str, int]


# By the GPU's name in memory/prediction.py: highest clock in MHz, memory bandwidth in GB/s. Sources: data sheets.
CLOCKS = {
    "A100": (1410, 2039), "RTX 3090": (1695, 936), "RTX 4090": (2520, 1008), "RTX 5090": (2407, 1792),
    "H100 SXM": (1980, 3350), "H100 PCIe": (1755, 2039), "H200": (1980, 4800),
}  # fmt: skip
USUAL = {80: "A100", 86: "RTX 3090", 89: "RTX 4090", 90: "H100 SXM", 120: "RTX 5090"}  # default GPU, by architecture


def cycles_of(counted: Counted, rates: Rates) -> dict[str, float] | None:
    """Compute for each unit the fewest cycles that it needs on the busiest SM, at the highest clock. Return None if
    counters of the whole launch are unknown."""
    if (factor := counted.factor) is None:
        return None
    whole, sms = counted.total, min(rates.sms, counted.of_ctas)
    work = {ISSUE: whole.instructions, SHARED: whole.wavefronts or 0, TAGS: whole.tags or 0, **counted.operations}
    in_a_cycle = _IN_A_CYCLE | dict(rates.operations)
    found = {
        unit: factor * amount / in_a_cycle[unit] / sms for unit, amount in work.items() if unit in in_a_cycle and amount
    }
    if counted.distinct_sectors:
        found[MEMORY] = counted.distinct_sectors * SECTOR * rates.mhz / (1000 * rates.memory)
    return found
