"""Result of `mem predict`: memory for the stacks of kernels."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from msgspec import UNSET, UnsetType

from tritonhook._util.schema import Count, Fields, like
from tritonhook.memory.prediction import Bracket, GpuSpecs, Prediction, StackNeed
from tritonhook.report.result import UNKNOWN, Result, Summary, Table, Tone, number, size, size_range


class DriverBuffer(Fields):
    """A buffer of the driver. default_bytes: its size under default limits."""

    name: str
    default_bytes: Count


class KernelStack(Fields):
    """What one kernel needs. frame_bytes: stack of its deepest chain of calls, without the driver's functions; null:
    not known. stack_bytes: range of this stack with the driver's functions included; null: not known. syscalls: driver
    functions that it calls. buffers: what else the driver reserves for it. why_unknown: why the stack is not known."""

    kernel: str
    frame_bytes: Count | None
    stack_bytes: Bracket | None
    syscalls: tuple[str, ...]
    buffers: tuple[DriverBuffer, ...]
    why_unknown: str | None

    @classmethod
    def of(cls, need: StackNeed) -> KernelStack:
        buffers = tuple(DriverBuffer(*buffer) for buffer in need.buffers)
        return cls(need.kernel, need.frame, need.stack, need.syscalls, buffers, need.why_unknown)

    @property
    def row(self) -> tuple[str, ...]:
        stack, calls = self.stack_bytes, ", ".join(self.syscalls) or "none"
        text = UNKNOWN if stack is None else " to ".join(dict.fromkeys((number(stack.low), number(stack.high))))
        return self.kernel, number(self.frame_bytes), text, calls, self.why_unknown or ""


class MemoryPrediction(Result, tag="memory prediction"):
    """The memory that the driver will reserve for stacks.

    growth_bytes: the least and the most that it will reserve; null: not known. deepest: the kernel with the deepest
    stack. basis: how it was computed. fail_over_bytes: the limit of `--fail-over`. failed: whether the growth is above
    that limit, or is not known.
    """

    verbs: ClassVar = "mem predict"

    gpu: GpuSpecs
    growth_bytes: Bracket | None
    deepest: str | None
    cause: str
    remedy: str | None
    basis: str
    kernels: tuple[KernelStack, ...]
    fail_over_bytes: Count | UnsetType | None = UNSET
    failed: bool | UnsetType | None = UNSET

    @classmethod
    def of(cls, made: Prediction, fail_over: int | None, failed: bool) -> MemoryPrediction:
        """Build from a prediction. fail_over: the limit in bytes, if any."""
        return like(
            made,
            cls,
            growth_bytes=made.growth,
            deepest=None if made.deepest is None else made.deepest.kernel,
            kernels=tuple(map(KernelStack.of, made.needs)),
            fail_over_bytes=fail_over,
            failed=failed,
        )

    def summary(self) -> Summary:
        """Summarise how much local memory the driver will reserve on a GPU, with cause and remedy."""
        verdict, tone = self._verdict()
        ordered = sorted(self.kernels, key=lambda k: -1 if k.stack_bytes is None else -k.stack_bytes.high)
        columns = ("kernel", "own frame, bytes", "stack per thread, bytes", "driver calls", "")
        table = Table("Kernels", columns, tuple(kernel.row for kernel in ordered), words=(3, 4))
        notes = (
            "a prediction: nothing was run",
            f"basis: {self.basis}",
            f"{self.gpu.sms} SMs x {self.gpu.threads_per_sm:,} threads: {self.gpu.source}",
        )
        return Summary("Memory prediction", self.gpu.name, verdict, tone, tuple(self._facts()), (table,), notes)

    def _verdict(self) -> tuple[str, Tone]:
        growth, failed = self.growth_bytes, self.failed is True
        if growth is None:
            text, tone = "not known how much local memory the driver will reserve", Tone.UNSURE
        elif growth.high == 0:
            text, tone = "no local memory beyond what every context has", Tone.GOOD
        else:
            text, tone = f"the driver will reserve {size_range(growth.low, growth.high)} of local memory", Tone.CHANGED
        return text, Tone.BAD if failed else tone

    def _facts(self) -> Iterator[str]:
        yield f"cause: {self.cause}"
        if self.remedy:
            yield f"remedy: {self.remedy}"
        for name, taken in {b.name: b.default_bytes for kernel in self.kernels for b in kernel.buffers}.items():
            yield f"also a {name}, at load and first launch; it took {size(taken)} on an H100 with default limits"
        if self.failed is True:
            limit = size(self.fail_over_bytes or None)
            unknown = f"not known whether the growth is above the limit of {limit}; this counts as failed"
            yield unknown if self.growth_bytes is None else f"the growth is above the limit of {limit}"
