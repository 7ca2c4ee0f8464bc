"""Execute one launch in several orders of its CTAs, warps and atomics. Find buffers whose bits depend on the order, and
the instructions that stored them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from tritonhook.emulate.machine import WARP, Code, Group, Machine
from tritonhook.emulate.memory import Store
from tritonhook.emulate.ptx.kernel import Kernel
from tritonhook.emulate.run import Run, execute, load_ptx, run_ptx
from tritonhook.emulate.sanitizer.findings import Place, source_lines
from tritonhook.emulate.words import Array
from tritonhook.ptx.module import Ptx

_MOST_PLACES = 3  # at most so many instructions are named per buffer


@dataclass(frozen=True, slots=True)
class Ordered:
    """A launch in another order than program order. seed: chooses the order. contents: bytes of each buffer after the
    launch. differing: numbers of the buffers that differ from those of program order, each with the instructions that
    stored the first byte that differs."""

    seed: int
    contents: tuple[bytes, ...]
    differing: dict[int, tuple[Place, ...]] = field(default_factory=dict)


def in_orders(
    ptx: Ptx, kernel: Kernel, run: Run, contents: Sequence[bytes], stored: Sequence[bytes], orders: int,
    storing: Callable[[Run], Sequence[bytes]] | None = None,
) -> Iterator[Ordered]:  # fmt: skip
    """Execute a launch in `orders` - 1 other orders, with seeds from 1 on, and yield the results.

    contents: bytes of each buffer before the launch. stored: bytes of each buffer after the launch in program order.
    orders: number of orders, program order included. storing: executes the launch and returns the contents; None:
    run_ptx. Raises the errors of run_ptx."""
    known: dict[int, tuple[Place, ...]] = {}
    for seed in range(1, orders):
        ordered = replace(run, seed=seed)
        after = tuple(storing(ordered) if storing else run_ptx(kernel, ordered, contents).contents)
        differing = [number for number, (a, b) in enumerate(zip(stored, after, strict=True)) if a != b]
        for number in differing:
            if number not in known:
                known[number] = writers(ptx, kernel, run, contents, number, _first(stored[number], after[number]))
        yield Ordered(seed, after, {number: known[number] for number in differing})


def writers(ptx: Ptx, kernel: Kernel, run: Run, contents: Sequence[bytes], buffer: int, byte: int) -> tuple[Place, ...]:
    """Find the instructions that write a byte of a buffer, at most three. If only one plain store of one thread writes
    it, the stored value may depend on the order of earlier atomics: these are listed after the store."""
    loaded = load_ptx(kernel, run, contents)
    watcher = _Writers(loaded.placed.buffers[buffer].begin + byte, ptx)
    execute(loaded, run, watcher)
    of_byte = list(watcher.of_byte.values())
    if any(place.what.startswith("atomic") for place in of_byte) or watcher.threads > 1:
        return tuple(of_byte[:_MOST_PLACES])
    return tuple([*of_byte, *watcher.atomics.values()][:_MOST_PLACES])


class _Writers:
    """Collects the instructions that write one byte of global memory, at index `at`. threads: number of writes to it;
    each thread counts. atomics: all other atomics of the launch."""

    def __init__(self, at: int, ptx: Ptx) -> None:
        self.at, self.source, self.lines = at, source_lines(ptx), ptx.text.splitlines()
        self.of_byte: dict[int, Place] = {}
        self.atomics: dict[int, Place] = {}
        self.threads = 0

    def begin(self, machine: Machine, code: Code) -> Code:
        def seen(group: Group, store: Store, index: Array, size: int, how: str) -> None:
            if how not in ("w", "a", "c"):
                return
            pc = machine.pc
            hit = group.active & (index <= self.at) & (self.at < index + size)
            if store is machine.memory.global_ and hit.any():
                threads = np.flatnonzero(hit) + group.s.start
                self.threads += len(threads)
                self.of_byte.setdefault(pc, self._place(machine, pc, how, int(threads[0])))
            elif how == "a":
                self.atomics.setdefault(pc, self._place(machine, pc, how, int(group.numbers[0])))

        machine.memory.observe = seen
        return code

    def end(self, machine: Machine) -> None:
        pass

    def _place(self, machine: Machine, pc: int, how: str, thread: int) -> Place:
        one = machine.code.instructions[pc]
        cta, inside = divmod(thread, machine.geometry.padded_threads)
        what = "atomic access" if how == "a" else "write"
        who = f"{what} by warp {inside // WARP} of CTA {machine.geometry.ctas[cta]}"
        text = self.lines[one.line - 1].strip() if one.line else ""
        return Place(who, one.line, text if text.count(";") == 1 else one.text, self.source(one.line))


def _first(a: bytes, b: bytes) -> int:
    """Return the index of the first byte that differs."""
    return int(np.flatnonzero(np.frombuffer(a, np.uint8) != np.frombuffer(b, np.uint8))[0])
