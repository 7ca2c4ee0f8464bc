"""A floor of a launch's time: what its units must at least do, at their rates. Modelled, not measured: a launch takes
longer, as it waits for memory, for other warps, and for its start and its end. What is not counted, as the operands of
TMA, only lowers the floor.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tritonhook.emulate.counters.metrics import Counted

SECTOR = 32  # bytes
ISSUE, SHARED, TAGS, MEMORY = "issue", "shared memory", "L1 tags", "memory"
# Operations of an SM in a cycle. Source: NVIDIA H100 Tensor Core GPU Architecture, peak rates by SMs and clock.
_OF_SM_90 = {
    **dict.fromkeys(("tensor FP16", "tensor BF16"), 4096), "tensor TF32": 2048, "tensor FP64": 256,
    **dict.fromkeys(("tensor FP8", "tensor INT8"), 8192), "FP32": 256, "FP16": 512, "FP64": 128,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Rates:
    """A GPU. memory: GB/s. mhz: its highest clock. issue: instructions of warps; wavefronts, tags: of an SM in a cycle.
    operations: the same, by pipe and type."""

    sms: int
    mhz: int
    memory: int
    issue: int = 4
    wavefronts: int = 1
    tags: int = 1
    operations: Mapping[str, int] = field(default_factory=lambda: _OF_SM_90)


# Sources: the data sheets of the GPUs.
RATES: Mapping[str, Rates] = {
    "H100 SXM": Rates(132, 1980, 3350),
    "H100 PCIe": Rates(114, 1755, 2039),
    "H200": Rates(132, 1980, 4800),
}
USUAL = {90: "H100 SXM"}  # by architecture


def cycles_of(counted: Counted, rates: Rates) -> dict[str, float] | None:
    """Compute the fewest cycles of the busiest SM, by unit. None if the whole launch is not known."""
    if (factor := counted.factor) is None:
        return None
    whole, sms = counted.total, min(rates.sms, counted.of_ctas)
    work = {ISSUE: whole.instructions / rates.issue, SHARED: (whole.wavefronts or 0) / rates.wavefronts}
    work[TAGS] = (whole.tags or 0) / rates.tags
    for pipe, operations in counted.operations.items():
        work[pipe] = operations / rates.operations[pipe]
    found = {unit: factor * amount / sms for unit, amount in work.items() if amount}
    if counted.distinct_sectors:
        found[MEMORY] = counted.distinct_sectors * SECTOR * rates.mhz / (1000 * rates.memory)
    return found
