"""Execute the PTX of a launch, and check it for faults."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from tritonhook.capture.launches.record import DTYPE_BYTES
from tritonhook.emulate.errors import Fault, Hang, Late, Unfinished
from tritonhook.emulate.machine import Code, Group, Machine, Step
from tritonhook.emulate.ptx.kernel import SIZES, Kernel, read_kernel
from tritonhook.emulate.run import Ran, Run, execute, load_ptx
from tritonhook.emulate.sanitizer import findings
from tritonhook.emulate.sanitizer.accesses import Access, Conflict
from tritonhook.emulate.sanitizer.findings import Finding, Place, source_lines
from tritonhook.emulate.sanitizer.idle import Garbled
from tritonhook.emulate.sanitizer.order import MOST, Order, watched_bytes
from tritonhook.emulate.sanitizer.shadow import Shadow
from tritonhook.emulate.sanitizer.unset import OTHERS, Unset, differ
from tritonhook.emulate.sanitizer.world import Accessed, World
from tritonhook.emulate.waves import Loaded, Watcher
from tritonhook.emulate.words import Array
from tritonhook.errors import listed
from tritonhook.ptx.dataflow import flow_of, may_end, read_unwritten
from tritonhook.ptx.module import Ptx
from tritonhook.ptx.program import Item

GARBAGE = 0x7F  # value of each unwritten byte; as a float, it is a huge number or a NaN
_LONGEST = 120  # characters of an instruction that are shown
_MOST_TRIED = 16  # limit of executions that look for races that do not matter
# Most steps of a run with garbage: _TIMES_AS_LONG * those of the first run + _LEAST_STEPS.
_TIMES_AS_LONG, _LEAST_STEPS = 8, 200_000
_MOST_UNIT = 16  # bytes: the smallest access of wgmma, ldmatrix and bulk copies
# Opcodes that access 4 bytes, by space.
_SMALL = {"shared": ("tcgen05.alloc",), "global": ("cp.async.bulk.tensor", "cp.reduce.async.bulk.tensor")}
_NAMED = {  # by the name of a set in Order: kind and text of the finding, and what its instruction is called
    "unfenced": (findings.FENCE, "no wgmma.fence orders registers of the accumulator before a product", "product"),
    "parted": (findings.BARRIER, "lanes of a warp have ended before a barrier that needs whole warps", "barrier"),
    "strangers": (
        findings.SHUFFLE,
        "the mask of an instruction lacks lanes that execute it, so its result is undefined",
        "access",
    ),
}
_ELSEWHERE = {"local", "const", "param", "param::entry"}


@dataclass(frozen=True, slots=True)
class Sanitized:
    """Result of `sanitize`. ran: None if the kernel did not run to its end; `error` is the reason. findings: at most
    some dozens. unwatched: names a check that was not made, and why; "" if all were. accesses: computes the accessed
    bytes of each buffer."""

    ran: Ran | None
    findings: tuple[Finding, ...]
    error: Fault | Hang | Unfinished | None = None
    unwatched: str = ""
    accesses: Callable[[], list[Accessed]] = list


def sanitize(
    ptx: Ptx,
    run: Run,
    contents: Sequence[bytes],
    entry: str | None = None,
    kernel: Kernel | None = None,
    is_poisoned: bool = False,
    room: tuple[int, str] | None = None,
    is_triton: bool = False,
) -> Sanitized:
    """Execute a launch, and check it for faults.

    contents: bytes of each buffer before the launch. kernel: the parsed PTX, if there is one. is_poisoned: unwritten
    bytes of buffers hold POISON. room: the number of CTAs that the GPU holds at once, and the same in words. is_triton:
    Triton's compiler, not the source, placed the accesses of shared memory. Raises NotUnderstood, UsageError.
    """
    kernel = kernel or read_kernel(ptx, entry)
    loaded, unset = load_ptx(kernel, run, contents), None
    if is_poisoned:
        begins = [one.begin for one in loaded.placed.buffers]
        unset = Unset(dict(zip(begins, contents, strict=True)), loaded.memory.size)
        unset = None if unset.is_empty else unset
    reporter = _Reporter(ptx, kernel, World(loaded.memory, _unit(kernel, "global"), unset, run.launch.pdl), is_triton)
    of_watching = watched_bytes(loaded.memory.shared_bytes, run.launch, reporter.unit)
    loaded = replace(loaded, cta_bytes=loaded.cta_bytes + of_watching)
    done = replace(
        _sanitized(reporter, loaded, run, contents),
        unwatched=reporter.world.unwatched,
        accesses=lambda: [reporter.world.accessed(one) for one in loaded.placed.buffers],
    )
    if room is not None and len(run.ctas) > room[0]:
        return _with_room(reporter, done, run, contents, *room)
    return done


def _with_room(
    reporter: _Reporter, done: Sanitized, run: Run, contents: Sequence[bytes], most: int, room: str
) -> Sanitized:
    """Add a finding if CTAs wait for others that cannot start because the GPU has no room for them."""
    kernel, ctas = reporter.kernel, f"{len(run.ctas):,} CTAs: {room}"
    if run.launch.cooperative:
        line = kernel.line(kernel.function.items[0].position)
        at = Place(f"launch of {kernel.entry}", line, reporter.lines[line - 1].strip(), reporter.source(line))
        return replace(
            done, findings=(Finding(findings.ROOM, f"a cooperative launch of {ctas}", (at,)), *done.findings)
        )
    if done.ran is None or not done.ran.polled:
        return done
    limited = replace(run, room=most)
    try:
        execute(load_ptx(kernel, limited, contents), limited)
    except (Late, Unfinished, Fault):
        return done
    except Hang as hang:
        text = f"CTAs wait for others that cannot begin, in a launch of {ctas}"
        found = Finding(findings.ROOM, text, tuple(reporter.place("threads", pc) for pc in hang.pcs[:4]))
        return replace(done, ran=None, findings=(found, *done.findings), error=hang)
    return done


def _sanitized(reporter: _Reporter, loaded: Loaded, run: Run, contents: Sequence[bytes]) -> Sanitized:
    kernel, unset = reporter.kernel, reporter.world.unset
    try:
        ran = execute(loaded, run, reporter)
    except Fault as fault:
        return Sanitized(None, (*reporter.conflicts(), *reporter.fault(fault), *reporter.unset(run, loaded)), fault)
    except Late as late:  # a slow kernel is not faulty
        conflicts = tuple(reporter.conflicts())
        if reporter.may_end(late.pcs[0]):
            return Sanitized(None, conflicts, Unfinished(str(late)))
        return Sanitized(None, (*conflicts, *reporter.hang(late, True)), late)
    except Hang as hang:
        is_whole = len(run.ctas) == math.prod(run.launch.grid)
        found = (*reporter.conflicts(), *reporter.hang(hang, is_whole or hang.is_certain))
        if is_whole or hang.is_certain:
            return Sanitized(None, found, hang)
        only = f"{hang}; only {len(run.ctas):,} of {math.prod(run.launch.grid):,} CTAs were executed"
        return Sanitized(None, found, Unfinished(only))
    except Unfinished as unfinished:
        return Sanitized(None, tuple(reporter.conflicts()), unfinished)
    try:
        reporter.drop_idle(kernel, run, contents, ran)
        open_values = tuple(reporter.unwritten(kernel, run, contents, ran))
        if unset is not None and unset.reads:
            others = (unset.otherwise(contents, one) for one in OTHERS)
            if any(_changes(kernel, run, other, ran, contents) for other in others):
                open_values += tuple(reporter.unset(run, loaded))
    except (Late, Unfinished) as error:
        why = Unfinished(f"finished, but it is not known whether unwritten values affect the results: {error}")
        return Sanitized(None, tuple(reporter.conflicts()), why)
    return Sanitized(ran, (*reporter.conflicts(), *open_values))


def _unit(kernel: Kernel, space: str = "shared") -> int:
    """Return the bytes of the smallest access that may touch a space ("shared" or "global"), at most _MOST_UNIT."""
    sizes, others = [_MOST_UNIT], {*_ELSEWHERE, "global" if space == "shared" else "shared"}
    for item in kernel.function.items:
        first, *parts = item.opcode.split(".")
        if first in ("ld", "ldu", "st", "atom", "red") and not {part.split("::")[0] for part in parts} & others:
            vector = next((int(part[1:]) for part in parts if part in ("v2", "v4", "v8")), 1)
            sizes.append(SIZES.get(parts[-1], 4) * (vector if first not in ("atom", "red") else 1))
        elif item.opcode.startswith(("cp.async.ca", "cp.async.cg")):
            sizes.append(int(item.operands[2], 0))
        elif first in ("call", "tensormap") or item.opcode.startswith(_SMALL[space]):
            sizes.append(4)
    return min(sizes)


def _checked(order: Order, products: Array, step: Step, g: Group) -> None:
    order.flights.check_accumulators(g, products)
    step(g)


def _uses_of_accumulators(kernel: Kernel, code: Code) -> dict[int, frozenset[int]]:
    """Map each instruction to the products whose accumulators it uses. Copies of registers do not count, because ptxas
    makes them wait."""
    if "wgmma" not in kernel.text:
        return {}
    items = dict[int, list[Item]]()
    for item in kernel.function.items:
        items.setdefault(kernel.line(item.position), []).append(item)
    products, uses = dict[str, set[int]](), dict[int, frozenset[str]]()
    for pc, one in enumerate(code.instructions):
        for item in items.get(one.line, ()):
            if not item.opcode or item.opcode not in one.text:
                continue
            flow = flow_of(item)
            if item.opcode.startswith("wgmma.mma_async"):
                for name in flow.writes:
                    products.setdefault(name, set()).add(pc)
            elif not item.opcode.startswith("wgmma") and (not item.opcode.startswith("mov") or not flow.reads):
                uses[pc] = flow.reads | flow.writes
    found = {pc: frozenset().union(*(products.get(name, ()) for name in names)) for pc, names in uses.items()}
    return {pc: used for pc, used in found.items() if used}


def _unheeded_waits(kernel: Kernel, code: Code) -> frozenset[int]:
    """Return the waits for mbarriers whose result no instruction reads, so that no thread really waits."""
    items = [item for item in kernel.function.items if item.opcode.startswith(("mbarrier.try_w", "mbarrier.test_w"))]
    if not items:
        return frozenset()
    read = frozenset().union(*(flow_of(item).reads for item in kernel.function.items))
    lines = {kernel.line(item.position) for item in items if not flow_of(item).writes & read}
    return frozenset(pc for pc, one in enumerate(code.instructions) if one.line in lines and "_wait" in one.text)


class _Reporter:
    """Collects the findings in all waves of a launch, and describes them. code: line and text of each instruction."""

    def __init__(self, ptx: Ptx, kernel: Kernel, world: World, is_triton: bool) -> None:
        self.kernel, self.world, self.hint = kernel, world, findings.HINT if is_triton else ""
        self.unit, self.source, self.lines = _unit(kernel), source_lines(ptx), ptx.text.splitlines()
        self.orders: list[Order] = []  # the checks of waves that have not ended
        self.found: dict[tuple[str, int, int], Finding] = {}
        # By name of a set of Order: its instructions in all waves.
        self.at: dict[str, set[int]] = {name: set() for name in ("unwritten", "lost", *_NAMED)}
        self.code: list[tuple[int, str]] = []
        self.undefined = {name for name, _ in read_unwritten(kernel.function)}
        self.shadow = Shadow(kernel.function.items, self.undefined, GARBAGE)

    def begin(self, machine: Machine, code: Code) -> Code:
        machine.memory.watch = order = Order(machine, machine.memory, self.unit, self.world)
        self.orders.append(order)
        order.unheeded = _unheeded_waits(self.kernel, code)
        code = self.shadow.watched(code)
        products = _uses_of_accumulators(self.kernel, code)
        if not products:
            return code
        steps = [
            replace(one, step=partial(_checked, order, np.array([*products[pc]]), one.step)) if pc in products else one
            for pc, one in enumerate(code.instructions)
        ]
        return replace(code, instructions=steps)

    def end(self, machine: Machine) -> None:
        order = next(one for one in self.orders if one.machine is machine)
        self.orders.remove(order)
        order.elsewhere.end()
        self._take(order)
        vars(order).clear()  # breaks reference cycles, so that its memory is freed now

    def _take(self, order: Order) -> None:
        self.code = self.code or [(one.line, one.text) for one in order.machine.code.instructions]
        for name, found in self.at.items():
            found |= getattr(order, name)
        for key, one in order.conflicts.items():
            if len(self.found) < MOST:
                self.found.setdefault(key, self._conflict(order, one))

    def place(self, what: str, pc: int) -> Place:
        line, own = self.code[pc]
        text = self.lines[line - 1].strip() if line else ""
        text = " ".join((text if text.count(";") == 1 else own).split())
        return Place(what, line, text if len(text) <= _LONGEST else f"{text[:_LONGEST]} ...", self.source(line))

    def may_end(self, pc: int) -> bool:
        """Whether threads at an instruction can reach the end of the entry; True if unknown."""
        items = self.kernel.function.items
        numbers = (n for n, item in enumerate(items) if self.kernel.line(item.position) == self.code[pc][0])
        return (start := next(numbers, None)) is None or may_end(items, start)

    def _access(self, order: Order, one: Access) -> Place:
        if one.actor < 0:
            who = ""
        elif one.actor < order.warps:
            who = f" by {order.wave.who(order.wave.first + one.actor)}"
        else:
            who = f" to CTA {order.wave.ctas[order.clocks.owners[one.actor - order.warps]]}"
        return self.place(one.what + who, one.pc)

    def conflicts(self) -> Iterator[Finding]:
        """Yield races and missing fences."""
        for order in self.orders:
            self._take(order)
        yield from self.found.values()
        for name, (kind, text, what) in _NAMED.items():
            for pc in sorted(self.at[name]):
                yield Finding(kind, text, (self.place(what, pc),))

    def _conflict(self, order: Order, one: Conflict) -> Finding:
        if one.kind in ("begin", "end"):
            text = f"nothing orders an access to the shared memory of CTA {one.at} after the start of that CTA"
            if one.kind == "end":
                text = f"nothing orders an access to the shared memory of CTA {one.at} before the end of that CTA"
            return Finding(findings.RACE, text, (self._access(order, one.first),))
        if one.kind in ("global", "lanes", "constant", "fence"):
            first, second = (
                self.place(f"{a.what} by {self.world.who(a.actor)}", a.pc) for a in (one.first, one.second)
            )
            where, text = self.world.where(one.at), "nothing orders the two accesses of"
            if one.kind == "constant":
                text = "ld.global.nc, which may return values from before the kernel, reads what the kernel wrote:"
            if one.kind == "fence":
                text = f"no fence.proxy.async lies between the two accesses of {where}"
                return Finding(findings.PROXY, text, (first, second))
            return Finding(findings.RACE, f"{text} {where}", (first, second))
        both = self._access(order, one.first), self._access(order, one.second)
        kind, text = {
            "proxy": (
                findings.PROXY,
                f"no fence.proxy.async lies between the two accesses of the shared address {one.at:#x}",
            ),
            "phase": (
                findings.RACE,
                f"nothing orders the second arrival at barrier {one.at} after the arrivals of the phase before: "
                "in another execution, it may count for that phase",
            ),
            "gate": (findings.RACE, f"a write overwrites the mbarrier at {one.at:#x}, which is still in use"),
            "accumulator": (findings.RACE, "no wgmma.wait_group lies between a product and the use of its accumulator"),
            "tensor": (findings.RACE, f"nothing orders the two accesses of column {one.at} of tensor memory"),
        }.get(one.kind, (findings.RACE, f"nothing orders the two accesses of the shared address {one.at:#x}"))
        return Finding(kind, text + self.hint, both)

    def drop_idle(self, kernel: Kernel, run: Run, contents: Sequence[bytes], ran: Ran) -> None:
        """Drop races in global memory that do not matter: garbage in place of the values that were read changes no
        result (see idle.py). Raises Late, Unfinished."""
        readers, grain = self.world.readers, self.world.wave_of(0).grain
        each = [{pc: found} for pc, found in readers.items()]
        for some in [readers, *each][:_MOST_TRIED] if len(each) > 1 else each:
            races = [key for key in self.found if key[0] in ("global", "lanes", "constant")]
            if not races:
                return
            if _changes(kernel, run, contents, ran, watcher=Garbled(some, grain, GARBAGE)):
                continue
            for key in races:
                if {*key[1:]} & {*some} and any("read" in one.what for one in self.found[key].places):
                    del self.found[key]

    def fault(self, fault: Fault) -> Iterator[Finding]:
        if fault.pc is None:
            return
        text, places = fault.text, [self.place(fault.who, fault.pc)]
        if fault.origin.pc is not None:
            text = f"{text}; {fault.origin.wrapped}"
            places.insert(0, self.place("wrapped", fault.origin.pc))
        yield Finding(fault.kind, text, tuple(places))

    def hang(self, hang: Hang, is_fault: bool) -> Iterator[Finding]:
        """Yield a finding for each barrier at which lanes of a warp wait for lanes that are elsewhere. If there is none
        and the hang is a fault, yield where all threads wait."""
        is_parted = False
        for order in self.orders:
            for pc, lanes, others in order.machine.parted():
                if self.code[pc][1].lstrip("@!%p0123456789 ").startswith("bar"):
                    is_parted, text = True, "lanes of one warp wait for others that do not come here"
                    places = self.place(lanes, pc), *(self.place(*other) for other in others)
                    yield Finding(findings.BARRIER, text, places)
        if is_fault and not is_parted:
            unmet = (text for order in self.orders for text in order.machine.barriers.unmet())
            text = next(unmet, "") if hang.is_certain else ""
            yield Finding(findings.HANG, text or str(hang), tuple(self.place("threads", pc) for pc in hang.pcs[:4]))

    def unset(self, run: Run, loaded: Loaded) -> Iterator[Finding]:
        """Yield a finding if the kernel has read unwritten bytes of buffers."""
        unset = self.world.unset
        if unset is None or not unset.reads:
            return
        read = []
        for buffer, one in zip(run.launch.buffers, loaded.placed.buffers, strict=True):
            if size := unset.read_bytes(one.begin):
                number = max(1, size // DTYPE_BYTES.get(buffer.dtype, 1))
                read.append(f"{number:,} element{'s' * (number > 1)} of {one.name}")
        text = f"the kernel uses {listed(read)}, which nothing has written since torch.empty"
        yield Finding(findings.UNWRITTEN, text, tuple(self.place("read", pc) for pc in sorted(unset.reads)[:4]))

    def unwritten(self, kernel: Kernel, run: Run, contents: Sequence[bytes], ran: Ran) -> Iterator[Finding]:
        """Yield a finding for each kind of unwritten value that affects the results: the kernel is executed again with
        garbage in place of it, and stores something else."""
        if self.at["unwritten"] and _changes(kernel, replace(run, shared=GARBAGE), contents, ran):
            places = tuple(self.place("read", pc) for pc in sorted(self.at["unwritten"]))
            yield Finding(
                findings.UNWRITTEN, "shared memory that nothing has written changes what the kernel stores", places
            )
        if self.at["lost"] and _changes(kernel, replace(run, absent=GARBAGE), contents, ran):
            text = "values read from lanes that are absent or outside of the mask change what the kernel stores"
            yield Finding(findings.SHUFFLE, text, tuple(self.place("shuffle", pc) for pc in sorted(self.at["lost"])))
        loads = [pc for pc, (_, text) in enumerate(self.code) if re.search(r"\bld(\.\w+)*\.local\b", text)]
        if loads and _changes(kernel, replace(run, local=GARBAGE), contents, ran):
            text = "local memory that nothing has written changes what the kernel stores"
            yield Finding(findings.UNWRITTEN, text, tuple(self.place("read", pc) for pc in loads[:4]))
        if self.shadow.differs and _changes(kernel, replace(run, registers=GARBAGE), contents, ran):
            items = (item for item in kernel.function.items if flow_of(item).reads & self.undefined)
            lines = {kernel.line(item.position) for item in items}
            places = tuple(self.place("read", pc) for pc, (line, _) in enumerate(self.code) if line in lines)[:4]
            text = "registers that nothing has written change what the kernel stores"  # `places` show their names
            yield Finding(findings.UNWRITTEN, text, places)


def _changes(
    kernel: Kernel,
    run: Run,
    contents: Sequence[bytes],
    ran: Ran,
    before: Sequence[bytes] | None = None,
    watcher: Watcher | None = None,
) -> bool:
    """Whether another run stores something else than `ran`. before: contents of the buffers before `ran`, if they
    differ from `contents`. Raises Late, Unfinished."""
    run = replace(run, most_steps=min(run.most_steps, _TIMES_AS_LONG * ran.steps + _LEAST_STEPS))
    try:
        after = execute(load_ptx(kernel, run, contents), run, watcher).contents
        return after != ran.contents if before is None else differ((before, contents), (ran.contents, after))
    except Late:
        raise
    except (Fault, Hang):
        return True
