"""Count events while a machine executes machine code. This does not change the execution.

Lanes of a warp that diverged at a branch belong to different *convergence classes* until BSYNC or WARPSYNC joins them,
even if they execute the same instruction at the same time. An instruction counts once for each class of a warp. An
instruction that waits counts once, when its threads arrive.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from tritonhook.emulate.code import Instruction
from tritonhook.emulate.counters import banks
from tritonhook.emulate.machine import WARP, Code, Step
from tritonhook.emulate.words import Array

if TYPE_CHECKING:
    from tritonhook.cubin.sass import Instruction as SassInstruction
    from tritonhook.emulate.machine import Group, Machine
    from tritonhook.emulate.memory import Store

_JOINING = ("BSYNC", "WARPSYNC")
_ZEROS = -1  # in place of a line number: this lane's LDGSTS writes zeros
_FLAG = re.compile(r",\s*(!?U?P\w+)$")  # the predicate operand of LDGSTS, which writes zeros where it is false
_CLASS = 40  # the key of a class in a warp: warp << _CLASS | class
_GENERIC = ("LD", "ST", "ATOM", "RED")
_VECTOR = {"F32x2": 2, "F32x4": 4}  # elements of an atomic access
_BYTES = (1, 2, 4, 8, 16)  # possible sizes of one lane's access


@dataclass(slots=True)
class Tally:
    """Counts of one instruction; metrics.Counters describes most of them. warps: executions by warps. on: executions by
    threads that no predicate turns off. odd: accesses without a known rule. mixed: warps whose LDGSTS.BYPASS both
    copies and writes zeros, for which no rule is known. parts: elements of the current vector access that were seen so
    far."""

    warps: int = 0
    threads: int = 0
    on: int = 0
    divergent: int = 0
    global_requests: int = 0
    tags: int = 0
    sectors: int = 0
    sectors_ideal: int = 0
    turns: int = 0
    global_bytes: int = 0
    shared_requests: int = 0
    wavefronts: int = 0
    wavefronts_ideal: int = 0
    local_bytes: int = 0
    local_sectors: int = 0
    odd: int = 0
    mixed: int = 0
    parts: int = 0


class Counter:
    """Counts for all machines of a launch. opcodes: the opcodes of the kernel's instructions, split at dots. flags: the
    last operand of each instruction if it is a predicate, else ""."""

    def __init__(self, instructions: Sequence[SassInstruction]) -> None:
        self.opcodes = [one.opcode.split(".") for one in instructions]
        self.flags = [match[1] if (match := _FLAG.search(one.operands)) else "" for one in instructions]
        self.tallies = [Tally() for _ in instructions]
        self.touched = np.zeros(0, bool)  # by sector of global memory: whether it was accessed

    def begin(self, machine: Machine, code: Code) -> Code:
        return _Counting(self, machine).watched(code)

    def end(self, machine: Machine) -> None:
        """Do nothing: the counts are sums over all machines."""


class _Counting:
    """Counts the events of one machine. classes: the convergence class of each thread. is_parted: whether any warp has
    several classes. waiting: by instruction, a mask of the threads that were counted there and still wait."""

    def __init__(self, counter: Counter, machine: Machine) -> None:
        self.counter, self.machine, self.memory = counter, machine, machine.memory
        self.classes, self.fresh, self.is_parted = np.zeros(machine.threads, np.int64), 1, False
        self.waiting: dict[int, Array] = {}
        self.off: Array | None = None  # lanes that the guard of a LDGSTS.BYPASS turns off
        self.pc, self.lines = 0, np.full(machine.threads, _ZEROS)  # the line from which each thread's LDGSTS copies
        machine.memory.observe = self.access

    def watched(self, code: Code) -> Code:
        """Return the code with steps that also count."""
        steps = enumerate(code.instructions)
        watched = [Instruction(self._step(pc, one), one.text, one.line, one.ends, one.guard) for pc, one in steps]
        return replace(code, instructions=watched)

    def _step(self, pc: int, one: Instruction) -> Step:
        inner, guard, ends, tally = one.step, one.guard, one.ends, self.counter.tallies[pc]
        opcode, waiting = self.counter.opcodes[pc], self.waiting
        joins, is_packed = opcode[0] in _JOINING, _is_packed(opcode)

        def step(g: Group) -> None:
            self.pc = pc
            if is_packed:
                self.off = None if guard is None else g.active & ~guard(g)
            if g.mask is None and not self.is_parted and not joins and pc not in waiting:
                threads = g.s.stop - g.s.start
                tally.warps += threads // WARP
                tally.threads += threads
                tally.on += threads if guard is None else int(np.count_nonzero(guard(g)))
            else:
                self._enter(tally, pc, g, guard(g) if guard is not None else None, joins)
            begin, active = g.s, g.active if joins or pc in waiting else None
            numbers = g.numbers if ends else None
            try:
                inner(g)
            except Exception:  # the threads wait, and will run this step again
                waiting.setdefault(pc, np.zeros(self.machine.threads, bool))[g.s] |= g.active
                raise
            if active is not None:
                self._leave(pc, begin, active, joins)
            if numbers is not None and self.machine.is_divided:
                self._moved(tally, numbers)

        return step

    # --- warps -------------------------------------------------------------------------------

    def _enter(self, tally: Tally, pc: int, g: Group, where: Array | None, joins: bool) -> None:
        active = g.active
        if joins or pc in self.waiting:
            counted = self.waiting.setdefault(pc, np.zeros(self.machine.threads, bool))[g.s]
            active = active & ~counted
            counted |= active
        if self.is_parted:  # each class of a warp counts
            lanes = np.nonzero(active)[0]
            tally.warps += len(np.unique(lanes // WARP << _CLASS | self.classes[g.s][lanes]))
        else:
            tally.warps += int(active.reshape(-1, WARP).any(1).sum())
        threads = int(np.count_nonzero(active))
        tally.threads += threads
        tally.on += threads if where is None else int(np.count_nonzero(where & active))

    def _classes(self, s: slice, active: Array) -> list[Array]:
        """Split the active lanes into masks; each mask has at most one convergence class of each warp."""
        if not self.is_parted:
            return [active]
        classes, left, found = self.classes[s].reshape(-1, WARP), active.reshape(-1, WARP).copy(), []
        while left.any():
            first = classes[np.arange(len(left)), left.argmax(1)]
            mine = left & (classes == first[:, None])
            found.append(mine.reshape(-1))
            left &= ~mine
        return found

    def _leave(self, pc: int, s: slice, active: Array, joins: bool) -> None:
        """Record that threads have executed an instruction that may wait. joins: it also joins classes."""
        if pc in self.waiting:
            self.waiting[pc][s] &= ~active
        if joins and self.is_parted:
            self.classes[s][active] = self.fresh
            self.fresh += 1
            rows, live = self.classes.reshape(-1, WARP), self.machine.live.reshape(-1, WARP)
            most = np.where(live, rows, -1).max(1)
            self.is_parted = bool(((rows != most[:, None]) & live).any())

    def _moved(self, tally: Tally, numbers: Array) -> None:
        """Split each class whose lanes are now at different instructions."""
        places = self.machine.places()[numbers]
        numbers, places = numbers[places >= 0], places[places >= 0]
        if not len(numbers) or (places == places[0]).all():
            return
        together = numbers // WARP << _CLASS | self.classes[numbers]
        order = np.lexsort((places, together))
        same = together[order][1:] == together[order][:-1]
        parts = same & (places[order][1:] != places[order][:-1])
        if parts.any():
            tally.divergent += len(np.unique(together[order][1:][parts]))
            own = np.concatenate([[0], np.cumsum(parts | ~same)])
            self.classes[numbers[order]] = self.fresh + own
            self.fresh += int(own[-1]) + 1
            self.is_parted = True

    # --- memory ------------------------------------------------------------------------------

    def access(self, g: Group, store: Store, index: Array, size: int, how: str) -> None:
        """Count an access to memory. index: byte indices for the threads of the group's slice. how: see
        Memory.locate."""
        tally, opcode = self.counter.tallies[self.pc], self.counter.opcodes[self.pc]
        if store is self.memory.local:
            tally.local_bytes += int(np.count_nonzero(g.active)) * size
            tally.odd += opcode[0] in ("LD", "ST")  # no rule is known for generic accesses of the stack
            lanes = (index % self.memory.local_bytes).reshape(-1, WARP), g.active.reshape(-1, WARP)
            tally.local_sectors += int(banks.local_sectors(*lanes, size).sum())
            return
        packed = _is_packed(opcode)
        if how == "b" or size not in _BYTES:
            tally.odd += 1
            return
        part = _VECTOR.get(opcode[3] if opcode[0] == "REDG" and len(opcode) > 3 else "", 1)
        if part > 1:  # the emulator executes a vector access element by element; count it once
            size, tally.parts = size * part, (tally.parts + 1) % part
            if tally.parts != 1:
                return
        allowed = on = g.active
        # Lanes that the guard turns off count, too, except for tags.
        if packed and (off := self.off) is not None and off.any():
            tally.odd += self.counter.flags[self.pc] != ""
            allowed = allowed | off
        if opcode[0] == "LDGSTS" and store is self.memory.global_:
            self.lines[g.s][allowed] = index[allowed] // banks.LINE
        if store is self.memory.shared and opcode[0] in _GENERIC:  # ncu does not count another CTA's shared memory
            begin = self.machine.cta[g.s] * self.memory.shared_bytes
            allowed = allowed & (index >= begin) & (index < begin + self.memory.shared_bytes)
        for one in self._classes(g.s, allowed):
            active = one.reshape(-1, WARP)
            keep = active.any(1)
            if not keep.any():
                continue
            active, addresses = active[keep], index.reshape(-1, WARP)[keep]
            if store is self.memory.global_:
                own = active if on is allowed else active & on.reshape(-1, WARP)[keep]
                _count_global(tally, addresses, active, own, size, how, opcode)
                self._touch(addresses[own] // banks.SECTOR)
            elif store is self.memory.shared:
                if opcode[0] == "LDGSTS":
                    lines = self.lines[g.s].reshape(-1, WARP)[keep]
                    cost, ideal, odd = _copied(addresses, active, size, lines, packed, self.counter.flags[self.pc])
                    tally.mixed += odd
                    self.lines[g.s][one] = _ZEROS
                else:
                    cost, ideal = _shared(addresses, active, size, how, opcode)
                tally.shared_requests += len(cost)
                tally.wavefronts += int(cost.sum())
                tally.wavefronts_ideal += int(ideal.sum())

    def _touch(self, sectors: Array) -> None:
        counter = self.counter
        if len(sectors) and (needed := int(sectors.max()) + 1) > len(counter.touched):
            counter.touched = np.concatenate([counter.touched, np.zeros(needed, bool)])
        counter.touched[sectors] = True


def _is_packed(opcode: Sequence[str]) -> bool:
    """Whether an instruction is a copy to shared memory that bypasses the L1 cache."""
    return opcode[0] == "LDGSTS" and "BYPASS" in opcode


def _shared(addresses: Array, active: Array, size: int, how: str, opcode: Sequence[str]) -> tuple[Array, Array]:
    """Count the wavefronts of each warp, with bank conflicts and without."""
    if how == "a" and "POPC" not in opcode:  # POPC adds the number of lanes in one turn
        cost, ideal = banks.wavefronts_in_turns(addresses, active, size)
        return (2 * cost, 2 * ideal) if "CAS" in opcode else (cost, ideal)  # CAS sends the old and the new value
    return banks.wavefronts(addresses, active, size, how == "r" and opcode[0] == "LDS")


def _copied(
    addresses: Array, active: Array, size: int, lines: Array, packed: bool, flag: str
) -> tuple[Array, Array, int]:
    """Count the wavefronts of each warp of a LDGSTS, with bank conflicts and without, and the warps without a known
    rule.

    lines: the line of global memory that each lane copies from. Each line is written separately, and so are zeros. For
    BYPASS, this holds only with a predicate operand other than P0 (measured: 128 instructions). With P0 or without a
    predicate, BYPASS writes all lines together (measured with P0: 20 instructions).
    """
    order = np.argsort(lines, axis=1)
    sorted_lines = np.take_along_axis(lines, order, 1)
    ranks = np.zeros(lines.shape, np.int64)  # rank of each lane's line among the lines of its warp
    np.put_along_axis(ranks, order[:, 1:], np.cumsum(sorted_lines[:, 1:] != sorted_lines[:, :-1], axis=1), 1)
    of_one = banks.wavefronts_packed if packed else banks.wavefronts_in_turns
    cost, ideal = of_one(addresses, active, size)
    is_both = (active & (lines == _ZEROS)).any(1) & (active & (lines != _ZEROS)).any(1) if packed else np.zeros(0)
    if not packed or flag not in ("", "P0"):
        lanes = active & (ranks == np.arange(int(ranks.max()) + 1)[:, None, None])  # by line, warp and lane
        rows = lanes.any(2)
        parts = np.zeros(rows.shape, np.int64)
        parts[rows] = of_one(np.broadcast_to(addresses, lanes.shape)[rows], lanes[rows], size)[0]
        cost = parts.sum(0)
    return cost, ideal, int(np.count_nonzero(is_both))


def _count_global(
    tally: Tally, addresses: Array, active: Array, on: Array, size: int, how: str, opcode: Sequence[str]
) -> None:
    """Count an access of global memory. on: the active lanes that the guard does not turn off."""
    tags, sectors = banks.tags_and_sectors(addresses, active)
    if on is not active:
        tags = banks.tags_and_sectors(addresses, on)[0]
    tally.global_requests += len(addresses)
    tally.tags += int(tags.sum())
    tally.sectors += int(sectors.sum())
    tally.turns += int((banks.sectors_in_turns(addresses, active) if how == "a" else sectors).sum())
    if _is_packed(opcode):
        ideal = banks.sectors_ideal_packed(addresses, active, size)
    else:
        ideal = banks.sectors_ideal(active, size)
    tally.sectors_ideal += int(np.minimum(ideal, sectors).sum())  # at most the sectors that are requested
    tally.global_bytes += int(np.count_nonzero(on)) * size
