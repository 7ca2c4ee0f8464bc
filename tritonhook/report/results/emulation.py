"""Result of `emulate`: kernels executed on the CPU from their PTX, and the faults that the sanitizer found."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from tritonhook._util.schema import Count, Fields, like
from tritonhook.report.result import Result, Summary, Table, Tone, count

if TYPE_CHECKING:
    from tritonhook.emulate.sanitizer.run import Sanitized


class FaultyAccess(Fields):
    """One access to memory. what: e.g. "read by warp 2 of CTA 0". line, instruction: in the PTX. source: file and line,
    from .loc; "" if unknown."""

    what: str
    line: Count
    instruction: str
    source: str


class KernelFault(Fields):
    """A fault of a kernel. places: the accesses, in the order in which they were executed."""

    kind: str
    text: str
    places: tuple[FaultyAccess, ...]


class EmulatedKernel(Fields):
    """One kernel. reason: why it did not finish; "" if it did. steps: how many instructions were executed, each by a
    group of threads. stored: the hash of what each buffer held at the end. unwatched: which faults were not looked for,
    and why; "" if all were."""

    kernel: str
    launch: str
    reason: str
    steps: Count
    stored: tuple[str, ...]
    faults: tuple[KernelFault, ...]
    unwatched: str = ""

    @classmethod
    def of(cls, kernel: str, launch: str, done: Sanitized | None, stored: Sequence[str], reason: str) -> EmulatedKernel:
        """Build from one launch. done: None if the emulator cannot execute the kernel."""
        if done is None:
            return cls(kernel, launch, reason, 0, tuple(stored), ())
        faults = tuple(like(finding, KernelFault) for finding in done.findings)
        steps = 0 if done.ran is None else done.ran.steps
        return cls(kernel, launch, reason, steps, tuple(stored), faults, done.unwatched)

    @property
    def row(self) -> tuple[str, ...]:
        why = self.reason or "; ".join(fault.text for fault in self.faults if not fault.places)
        return self.kernel, "not finished" if self.reason else "finished", str(len(self.faults) or ""), why


class Emulation(Result, tag="emulation"):
    """Kernels executed on the CPU. input: what the buffers held. ctas: how many CTAs of each launch were executed;
    null: all."""

    verbs: ClassVar = "emulate"

    target: str
    input: str
    ctas: Count | None
    kernels: tuple[EmulatedKernel, ...]

    def summary(self) -> Summary:
        faults = sum(len(kernel.faults) for kernel in self.kernels)
        tones = tuple(Tone.BAD if k.faults else Tone.UNSURE if k.reason else Tone.GOOD for k in self.kernels)
        finished = sum(not kernel.reason for kernel in self.kernels)
        found = f"{count(faults, 'fault') if faults else 'no fault'} found"
        if not faults and finished < len(self.kernels):
            found += " in these"
        verdict = f"{finished:,} of {count(len(self.kernels), 'kernel')} finished"
        if finished or faults:
            verdict += f": {found}"
        if unwatched := tuple(f"{kernel.kernel}: {kernel.unwatched}" for kernel in self.kernels if kernel.unwatched):
            verdict += f"; {len(unwatched):,} not watched for races in global memory"
        rows = tuple(kernel.row for kernel in self.kernels)
        details = tuple(
            Table(
                f"{fault.kind} in {kernel.kernel}: {fault.text}",
                ("access", "line", "source", "instruction"),
                tuple((place.what, str(place.line), place.source, place.instruction) for place in fault.places),
                0,
            )
            for kernel in self.kernels
            for fault in kernel.faults
            if fault.places
        )
        return Summary(
            "Emulation",
            self.target,
            verdict,
            max(tones, key=(Tone.GOOD, Tone.UNSURE, Tone.BAD).index, default=Tone.UNSURE),
            (),
            (Table("Kernels", ("kernel", "result", "faults", "why"), rows, 1, tones, (3,)), *details),
            (f"buffers hold {self.input}; run on CPU (emulated), from the PTX", *unwatched),
        )
