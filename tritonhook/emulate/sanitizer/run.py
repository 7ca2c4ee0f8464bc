"""Execute the PTX of a launch, and look for faults on the way."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from tritonhook.emulate.errors import Fault, Hang
from tritonhook.emulate.machine import Machine
from tritonhook.emulate.ptx.kernel import SIZES, Kernel, read_kernel
from tritonhook.emulate.run import Ran, Ready, Run, ready_ptx
from tritonhook.emulate.sanitizer import findings
from tritonhook.emulate.sanitizer.findings import Finding, Place, source_lines
from tritonhook.emulate.sanitizer.order import Access, Conflict, Order
from tritonhook.ptx.dataflow import flow_of, read_unwritten
from tritonhook.ptx.module import Ptx

GARBAGE = 0x7F  # of each byte that nothing has written: a huge number, or a NaN
_ELSEWHERE = {"global", "local", "const", "param", "param::entry"}


@dataclass(frozen=True, slots=True)
class Sanitized:
    """ran: None if the kernel did not come to its end; error says why. findings: at most some dozens."""

    ran: Ran | None
    findings: tuple[Finding, ...]
    error: Fault | Hang | None = None


def sanitize(ptx: Ptx, run: Run, contents: Sequence[bytes], entry: str | None = None) -> Sanitized:
    """Execute a launch, and look for faults. contents: of its buffers before it. Raises NotUnderstood."""
    kernel = read_kernel(ptx, entry)
    ready = ready_ptx(kernel, run, contents)
    machine = ready.machine
    machine.memory.watch = order = Order(machine, machine.memory, _unit(kernel))
    told = _Telling(ptx, machine, order)
    try:
        machine.run(ready.code)
    except Fault as fault:
        return Sanitized(None, (*told.conflicts(), *told.fault(fault)), fault)
    except Hang as hang:
        return Sanitized(None, (*told.conflicts(), *told.divergence()), hang)
    ran = run.result(machine, ready.placed, ready.unknown)
    open_values = (*told.unwritten(kernel, run, contents, ran, order), *told.early(kernel, run, contents, ran))
    return Sanitized(ran, (*told.conflicts(), *open_values))


def _unit(kernel: Kernel) -> int:
    """Bytes of the smallest access that may be of shared memory."""
    sizes = [4]
    for item in kernel.function.items:
        first, *parts = item.opcode.split(".")
        if first in ("ld", "st", "atom", "red") and not _ELSEWHERE.intersection(parts):
            sizes.append(SIZES.get(parts[-1], 4))
    return min(sizes)


class _Telling:
    """Findings of one machine, in words."""

    def __init__(self, ptx: Ptx, machine: Machine, order: Order) -> None:
        self.machine, self.order, self.source, self.lines = machine, order, source_lines(ptx), ptx.text.splitlines()

    def place(self, what: str, pc: int) -> Place:
        one = self.machine.code.instructions[pc]
        text = self.lines[one.line - 1].strip() if one.line else ""
        return Place(what, one.line, text if text.count(";") == 1 else one.text, self.source(one.line))

    def _access(self, one: Access) -> Place:
        padded, grain, ctas = self.machine.geometry.padded_threads, self.order.grain, self.machine.geometry.ctas
        if one.actor < 0:
            who = ""
        elif one.actor < self.order.warps:
            cta, number = divmod(one.actor, padded // grain)
            who = f" by {'lane' if grain == 1 else 'warp'} {number} of CTA {ctas[cta]}"
        else:
            who = f" to CTA {ctas[self.order.owners[one.actor - self.order.warps]]}"
        return self.place(one.what + who, one.pc)

    def conflicts(self) -> Iterator[Finding]:
        """Races, and fences that are missing."""
        for one in self.order.conflicts.values():
            yield self._conflict(one)

    def _conflict(self, one: Conflict) -> Finding:
        both = self._access(one.first), self._access(one.second)
        if one.kind == "proxy":
            text = f"no fence.proxy.async lies between the two accesses of the shared address {one.at:#x}"
            return Finding(findings.PROXY, text, both)
        if one.kind == "tensor":
            return Finding(findings.RACE, f"nothing orders the two accesses of column {one.at} of tensor memory", both)
        return Finding(findings.RACE, f"nothing orders the two accesses of the shared address {one.at:#x}", both)

    def fault(self, fault: Fault) -> Iterator[Finding]:
        kind = findings.MISALIGNED if fault.text.startswith("misaligned") else findings.OUTSIDE
        if fault.pc is not None and (kind == findings.MISALIGNED or "outside" in fault.text):
            padded = self.machine.geometry.padded_threads
            who = f"thread {fault.thread % padded} of CTA {self.machine.geometry.ctas[fault.thread // padded]}"
            yield Finding(kind, fault.text, (self.place(who, fault.pc),))

    def divergence(self) -> Iterator[Finding]:
        """Barriers that some lanes of a warp wait at for others, which are elsewhere."""
        for pc, lanes, others in self.machine.parted():
            if self.machine.code.instructions[pc].text.lstrip("@!%p0123456789 ").startswith("bar"):
                text = "lanes of one warp wait for others that do not come here"
                yield Finding(
                    findings.BARRIER, text, (self.place(lanes, pc), *(self.place(*other) for other in others))
                )

    def early(self, kernel: Kernel, run: Run, contents: Sequence[bytes], ran: Ran) -> Iterator[Finding]:
        """What tcgen05.ld loads, read before tcgen05.wait::ld: what is there then is left open."""
        code = enumerate(self.machine.code.instructions)
        loads = [pc for pc, one in code if "tcgen05.ld." in one.text]
        if loads and _changes(kernel, replace(run, late=True), contents, ran):
            text = (
                "what is loaded from tensor memory is read before tcgen05.wait::ld, and changes what the kernel stores"
            )
            yield Finding(findings.UNWRITTEN, text, tuple(self.place("load", pc) for pc in loads[:4]))

    def unwritten(
        self, kernel: Kernel, run: Run, contents: Sequence[bytes], ran: Ran, order: Order
    ) -> Iterator[Finding]:
        """What nothing has written, and what the kernel stores depends on: other garbage there changes the result."""
        if order.unwritten and _changes(kernel, replace(run, shared=GARBAGE), contents, ran):
            places = tuple(self.place("read", pc) for pc in sorted(order.unwritten))
            yield Finding(
                findings.UNWRITTEN, "shared memory that nothing has written changes what the kernel stores", places
            )
        names = {name for name, _ in read_unwritten(kernel.function)}
        if names and _changes(kernel, replace(run, registers=GARBAGE), contents, ran):
            lines = {kernel.line(item.position) for item in kernel.function.items if flow_of(item).reads & names}
            code = self.machine.code.instructions
            places = tuple(self.place("read", pc) for pc, one in enumerate(code) if one.line in lines)[:4]
            text = "registers that nothing has written change what the kernel stores"  # the places have their names
            yield Finding(findings.UNWRITTEN, text, places)


def _changes(kernel: Kernel, run: Run, contents: Sequence[bytes], ran: Ran) -> bool:
    ready: Ready = ready_ptx(kernel, run, contents)
    try:
        ready.machine.run(ready.code)
    except (Fault, Hang):
        return True
    return run.result(ready.machine, ready.placed).contents != ran.contents
