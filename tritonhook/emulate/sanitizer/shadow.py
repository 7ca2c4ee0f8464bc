"""Check whether registers that a kernel reads before it writes them can affect its results.

Compilers let lanes compute with unwritten registers and drop the results. Each register that depends on an unwritten
one gets a second copy, its *shadow*, computed as if unwritten registers held garbage. An instruction that only computes
registers runs on both copies. At other instructions (a store, a branch, an address, ...), the copies of the registers
that it reads are compared. If they are always equal, garbage does not affect the results. If not, it may, and an
execution with garbage decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from tritonhook.emulate.machine import Code, Group, Step
from tritonhook.emulate.ptx import conversions, floats, integers
from tritonhook.emulate.ptx.site import OPCODES, Reader, known_name
from tritonhook.emulate.words import Array
from tritonhook.ptx.dataflow import flow_of
from tritonhook.ptx.program import Item

if TYPE_CHECKING:
    from tritonhook.emulate.ptx.decode import Decoder

Pair = tuple[Array, Array]  # the values of a register, and of its shadow
_COMPUTE = {one.__name__ for one in (conversions, floats, integers)}
_CARRIES = ("addc", "subc", "madc")
_OF_WARPS = ("shfl.sync", "redux.sync")


def _computes(item: Item, names: Iterable[str]) -> bool:
    """Whether an instruction only computes registers from registers, so that it can run on shadows. names: the
    registers that have a shadow."""
    name = known_name(item.opcode)
    if name in _OF_WARPS:
        return not flow_of(item).reads & {*names} - {item.operands[1]}
    is_plain = name in OPCODES and OPCODES[name].__module__ in _COMPUTE
    return is_plain and not name.startswith(_CARRIES) and ".cc" not in item.opcode


def reached(items: Sequence[Item], unwritten: Iterable[str]) -> frozenset[str]:
    """Find the registers whose values may depend on unwritten ones. Dependencies through memory are not followed."""
    names, count = {*unwritten}, 0
    while names and count != len(names):
        count = len(names)
        for item in items:
            if (flow := flow_of(item)).reads & names and _computes(item, names):
                names |= flow.writes
    return frozenset(names)


class Shadow:
    """Shadows of a launch's registers. differs: whether a register that differs from its shadow may have affected a
    result."""

    def __init__(self, items: Sequence[Item], unwritten: Iterable[str], garbage: int) -> None:
        self.differs, self._names, self._garbage = False, reached(items, unwritten), garbage

    def watched(self, code: Code) -> Code:
        """Return the code of a wave of CTAs in which each step also computes the shadows of its registers, or compares
        registers with their shadows."""
        if not self._names or self.differs:
            return code
        made, decoder = [*code.instructions], code.decoder
        items = [] if decoder is None else decoder.items
        flows = [
            (item, flow.reads & self._names, flow.writes & self._names) for item in items if (flow := flow_of(item))
        ]
        if decoder is None or any(writes and made[pc].ends for pc, (_, _, writes) in enumerate(flows)):
            self.differs = True
            return code
        rows = {name: np.zeros_like(decoder.named(name)) for name in self._names}
        for row in rows.values():
            row.view(np.uint8)[:] = row.dtype == np.bool_ or self._garbage
        for pc, (item, reads, writes) in enumerate(flows):
            step = made[pc].step
            if reads and _computes(item, self._names):
                made[pc] = replace(made[pc], step=self._both(step, decoder.again(item, rows)))
            elif reads or writes:
                read, written = ([(decoder.named(name), rows[name]) for name in names] for names in (reads, writes))
                made[pc] = replace(made[pc], step=self._compared(step, _guard(decoder, item), read, written))
        return replace(code, instructions=made)

    def _both(self, step: Step, other: Step) -> Step:
        def run(g: Group) -> None:
            step(g)
            if not self.differs:
                other(g)

        return run

    def _compared(self, step: Step, guard: Reader, read: Sequence[Pair], written: Sequence[Pair]) -> Step:
        def run(g: Group) -> None:
            if self.differs:
                return step(g)
            lanes = g.active & guard(g)
            for real, other in read:
                where = g.active if real.dtype == np.bool_ else lanes  # a predicate may be the guard itself
                if ((real[g.s] != other[g.s]) & where).any():
                    self.differs = True
            step(g)
            for real, other in written:
                np.copyto(other[g.s], real[g.s], where=lanes)

        return run


def _guard(decoder: Decoder, item: Item) -> Reader:
    if not item.guard:
        return lambda g: True
    row, is_negated = decoder.named(item.guard.lstrip("@!").strip()), item.guard.startswith("@!")
    return lambda g: row[g.s] ^ is_negated
