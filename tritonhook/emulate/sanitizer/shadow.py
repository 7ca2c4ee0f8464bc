"""Registers that a kernel reads before it has written them: does what is in them reach anything?

Compilers let lanes compute with such registers and drop the result. Beside each register that one of them can reach
lies a second row, where they held garbage at first, and what computes with them does so in both. Where a store, a
branch, an address, or whatever else is more than its result reads such a register, both rows are compared. If they are
always equal, an execution with garbage is the same; if not, only that execution knows.
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

Pair = tuple[Array, Array]  # the rows of a register
_COMPUTE = {one.__name__ for one in (conversions, floats, integers)}
_CARRIES = ("addc", "subc", "madc")
_OF_WARPS = ("shfl.sync", "redux.sync")


def _computes(item: Item, names: Iterable[str]) -> bool:
    """Whether an instruction does nothing but compute registers from others, some of which are these names."""
    name = known_name(item.opcode)
    if name in _OF_WARPS:
        return not flow_of(item).reads & {*names} - {item.operands[1]}
    is_plain = name in OPCODES and OPCODES[name].__module__ in _COMPUTE
    return is_plain and not name.startswith(_CARRIES) and ".cc" not in item.opcode


def reached(items: Sequence[Item], unwritten: Iterable[str]) -> frozenset[str]:
    """Find the registers whose values may come from some that nothing has written, but for those that come through
    memory."""
    names, count = {*unwritten}, 0
    while names and count != len(names):
        count = len(names)
        for item in items:
            if (flow := flow_of(item)).reads & names and _computes(item, names):
                names |= flow.writes
    return frozenset(names)


class Shadow:
    """The second rows of a launch. differs: whether a difference has reached something, or may have."""

    def __init__(self, items: Sequence[Item], unwritten: Iterable[str], garbage: int) -> None:
        self.differs, self._names, self._garbage = False, reached(items, unwritten), garbage

    def watched(self, code: Code) -> Code:
        """Return a wave's code with steps that compute both rows, and compare them."""
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
                where = g.active if real.dtype == np.bool_ else lanes  # it may be the guard
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
