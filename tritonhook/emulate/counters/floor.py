"""A floor of a launch's time: what its units must at least do, at their rates. Modelled, not measured: a launch takes
longer, as it waits for memory, for other warps, and for its start and its end. What is not counted, as the operands of
TMA, only lowers the floor.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tritonhook.emulate.counters.metrics import Counted

SECTOR = 32  # bytes
ISSUE, SHARED, TAGS, MEMORY = "issue", "shared memory", "L1 tags", "memory"
_IN_A_CYCLE = {ISSUE: 4, SHARED: 1, TAGS: 1}  # of an SM: instructions of warps, wavefronts, lines
# Operations of an SM in a cycle. Sources: NVIDIA's whitepapers, A100, GA102, AD102, H100 and RTX Blackwell GPU
# architecture: peak rates by SMs and clock. A type with two rates, by what it adds up in, has the higher.
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
    """A GPU. mhz: its highest clock. memory: GB/s. operations: of an SM in a cycle, by pipe and type."""

    gpu: str
    sms: int
    mhz: int
    memory: int
    operations: Mapping[str, int]


# By the name of memory/prediction.py, the highest clock in MHz and the memory's GB/s. Sources: the data sheets.
CLOCKS = {
    "A100": (1410, 2039), "RTX 3090": (1695, 936), "RTX 4090": (2520, 1008), "RTX 5090": (2407, 1792),
    "H100 SXM": (1980, 3350), "H100 PCIe": (1755, 2039), "H200": (1980, 4800),
}  # fmt: skip
USUAL = {80: "A100", 86: "RTX 3090", 89: "RTX 4090", 90: "H100 SXM", 120: "RTX 5090"}  # by architecture


def cycles_of(counted: Counted, rates: Rates) -> dict[str, float] | None:
    """Compute the fewest cycles of the busiest SM at the highest clock, by unit. None if the whole launch is not
    known."""
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
