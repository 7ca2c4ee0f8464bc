"""Reads of global memory that race, and whose values a kernel does not use: compilers let warps repeat what others
load, and store nothing of it. Another execution gives such reads garbage: if it stores the same, they do not matter."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass

import numpy as np

from tritonhook.emulate.machine import Code, Group, Machine
from tritonhook.emulate.words import Array

Readers = Mapping[int, Set[tuple[int, int]]]  # by instruction: a CTA, and the number of a warp or lane in it


@dataclass(frozen=True, slots=True)
class Garbled:
    """Watches an execution in which these reads give garbage. grain: threads of a reader. garbage: of each byte."""

    readers: Readers
    grain: int
    garbage: int

    def begin(self, machine: Machine, code: Code) -> Code:
        memory, padded = machine.memory, machine.geometry.padded_threads
        read, number = memory.read, np.arange(machine.threads) % padded // self.grain
        where = {
            pc: np.logical_or.reduce(
                [(np.asarray(machine.geometry.ctas)[machine.cta] == cta) & (number == one) for cta, one in readers]
            )
            for pc, readers in self.readers.items()
        }

        def garbled(g: Group, space: str, addresses: Array, unit: int, count: int = 1) -> Array:
            found = read(g, space, addresses, unit, count)
            if (lanes := where.get(machine.pc)) is None:
                return found
            other = np.frombuffer(bytes([self.garbage]) * unit, found.dtype)[0]
            return np.where(lanes[g.s], other, found)

        memory.read = garbled  # type: ignore[method-assign, assignment]
        return code

    def end(self, machine: Machine) -> None:
        """Nothing stays: the machine is not used again."""
