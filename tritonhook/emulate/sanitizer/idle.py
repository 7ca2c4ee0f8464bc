"""Find racing reads of global memory that do not affect what the kernel stores.

Compilers may let several warps load the same values, although only one of them stores results. To find such loads, the
kernel is executed again with garbage in place of the racing values. If it stores the same, these races do not matter.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass

import numpy as np

from tritonhook.emulate.machine import Code, Group, Machine
from tritonhook.emulate.words import Array

Readers = Mapping[int, Set[tuple[int, int]]]  # by instruction: pairs of a CTA, and a warp's or lane's number in it


@dataclass(frozen=True, slots=True)
class Garbled:
    """Replaces the values of some reads by garbage during an execution. grain: threads per reader, 1 or 32. garbage:
    value of each byte."""

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
        """Do nothing. The replaced `read` need not be restored: the machine is not used again."""
