"""Memory for the stacks of kernels: `mem predict`, `mem fix`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

from msgspec import UNSET, UnsetType

from tritonhook._util.schema import Count, Fields, like
from tritonhook.cubin.image import Cubin
from tritonhook.memory.prediction import Bracket, GpuSpecs, Prediction, StackNeed
from tritonhook.ptx.cta_loads import TmaLoad
from tritonhook.report.result import UNKNOWN, Result, Summary, Table, Tone, count, number, sentence, size, size_range


class DriverBuffer(Fields):
    """A buffer of the driver. default_bytes: what it took with default limits."""

    name: str
    default_bytes: Count


class KernelStack(Fields):
    """What one kernel needs. frame_bytes: its own frame. stack_bytes: with all it calls; null: not known. syscalls:
    driver calls. why_unknown: why the stack is not known."""

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
    """What the driver will reserve for stacks.

    growth_bytes: null: not known. deepest: the kernel that decides. basis: how it was computed. fail_over_bytes,
    failed: of `--fail-over`.
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
        """fail_over: the limit in bytes, if there is one."""
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
        """How much local memory the driver will reserve on a GPU, with cause and remedy."""
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
            unknown = f"not known whether it is above the limit of {limit}, which counts as failed"
            yield unknown if self.growth_bytes is None else f"above the limit of {limit}"


# --- TMA loads -----------------------------------------------------------------------------------


class Load(Fields):
    """A TMA load. refusal: why it stays; null if it was rewritten."""

    function: str
    line: Count
    opcode: str
    refusal: str | None


class FixedSide(Fields):
    """A kernel before or after. code_bytes: of its instructions."""

    syscalls: tuple[str, ...]
    registers: Count | None
    stack_bytes: Count | None
    code_bytes: Count

    @classmethod
    def of(cls, cubin: Cubin, kernel: str) -> FixedSide:
        resources = cubin.resources[kernel]
        return cls(resources.syscalls, resources.registers, resources.stack, len(cubin.text(kernel)))

    @property
    def column(self) -> tuple[str, ...]:
        return ", ".join(self.syscalls) or "none", *map(number, (self.registers, self.stack_bytes, self.code_bytes))


class FixedKernel(Fields):
    """A kernel before and after a rewrite, assembled by the same ptxas."""

    kernel: str
    before: FixedSide
    after: FixedSide

    @classmethod
    def of(cls, kernel: str, before: Cubin, after: Cubin) -> FixedKernel:
        return cls(kernel, FixedSide.of(before, kernel), FixedSide.of(after, kernel))

    def table(self, ptxas: str | None) -> Table:
        labels = ("driver calls", "registers", "stack, bytes per thread", "code, bytes")
        rows = tuple(zip(labels, self.before.column, self.after.column, strict=True))
        return Table(f"{self.kernel}, ptxas {number(ptxas)}", ("", "before", "after"), rows)


class MemoryFix(Result, tag="memory fix"):
    """TMA loads that became `.shared::cta`. why_no_effect: why `kernels` is empty. output: the file that was
    written."""

    verbs: ClassVar = "mem fix"

    loads: tuple[Load, ...]
    rewritten: Count
    ptxas: str | None
    kernels: tuple[FixedKernel, ...]
    why_no_effect: str | None
    output: str | None

    @classmethod
    def of(
        cls,
        sites: Sequence[TmaLoad],
        kernels: Sequence[FixedKernel],
        ptxas: str | None,
        why: str | None,
        out: str | None,
    ) -> MemoryFix:
        """why: the effect is not known. out: the file that was written."""
        rewritten = sum(site.refusal is None for site in sites)
        return cls(tuple(like(site, Load) for site in sites), rewritten, ptxas, tuple(kernels), why, out)

    def summary(self) -> Summary:
        """Which TMA loads became `.shared::cta`, which stay, and what that did to each kernel."""
        stay = [load for load in self.loads if load.refusal is not None]
        verdict = f"{len(self.loads) - len(stay)} of {count(len(self.loads), 'TMA load')} changed to .shared::cta"
        if not self.loads:
            verdict = "no TMA load to .shared::cluster: nothing to change"
        facts = [
            f"in {load.function}, line {load.line}: {load.opcode.partition('.mbarrier')[0]} stays: {load.refusal}"
            for load in stay
        ]
        if self.why_no_effect:
            facts.append(f"the effect is not known: {sentence(self.why_no_effect)}")
        tables = [kernel.table(self.ptxas) for kernel in self.kernels] if len(stay) < len(self.loads) else []
        tone = Tone.UNSURE if stay or self.why_no_effect else Tone.GOOD
        return Summary("TMA fix", "", verdict, tone, tuple(facts), tuple(tables))
