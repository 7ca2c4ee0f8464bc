"""Copies and reductions of contiguous bytes: cp.async.bulk, UBLKCP, UBLKRED. The emulator completes them at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from tritonhook.emulate.memory import CLUSTER, UNSIGNED
from tritonhook.emulate.words import Array

if TYPE_CHECKING:
    from tritonhook.emulate.machine import Group

PIECE = 16  # bytes: sizes and addresses of bulk copies are multiples of it


def copy(
    g: Group, lane: int, to: tuple[str, Array], source: tuple[str, Array], size: int, barrier: Array | None = None,
    combine: tuple[Callable[..., Array], int] | None = None,
) -> None:  # fmt: skip
    """Execute the copy that one lane begins.

    to, source: state space and addresses. size: bytes. barrier: address of the mbarrier that counts the bytes, in the
    space of `to`. combine: for a reduction, the function of old contents and source, and the bytes of an element."""
    if not size:
        return
    one, memory, barriers = alone(g, lane), g.machine.memory, g.machine.shared_barriers
    (from_, index), (into, place) = (
        memory.locate(one, space, address, size, "c", PIECE) for space, address in (source, to)
    )
    begin, at = int(index[lane]), int(place[lane])
    gate = 0 if barrier is None else int(barriers.places(one, to[0], barrier)[lane])
    if memory.watch is not None:
        thread, pieces = g.s.start + lane, np.arange(0, size, PIECE)
        if into is memory.shared:
            memory.watch.bulk_write(thread, at + pieces, PIECE, gate)
        if from_ is memory.shared:
            memory.watch.flights.read("bulk", [thread], begin + pieces, PIECE)
        if from_ is memory.global_:
            memory.watch.copied_outside(thread, begin + pieces, PIECE, "r")
    target, made = into.data[at : at + size], from_.data[begin : begin + size]
    if combine is not None:
        function, unit = combine
        kind = UNSIGNED[unit]
        made = function(target.view(kind).copy(), made.view(kind)).view(np.uint8)
    if memory.watch is not None and into is memory.global_:
        changes = (target != made).reshape(-1, PIECE).any(1)
        how = "w" if combine is None else "a"
        memory.watch.copied_outside(thread, at + pieces, PIECE, how, changes)
    target[:] = made
    if barrier is not None:
        barriers.complete(gate, size)


def store_elsewhere(g: Group, address: Array, gate: Array, unit: int, values: Sequence[Array]) -> None:
    """Store to shared memory of another CTA of the cluster; an mbarrier there counts the bytes (st.async). address,
    gate: addresses of the values and of the mbarrier in the cluster's shared memory."""
    memory, size = g.machine.memory, unit * len(values)
    store, index = memory.locate(g, CLUSTER, address, size, "c")
    active, gates = g.active, g.machine.shared_barriers.places(g, CLUSTER, gate)
    if memory.watch is not None:
        for lane in np.flatnonzero(active):
            memory.watch.bulk_write(g.s.start + int(lane), index[lane : lane + 1], size, int(gates[lane]))
    store.write(index[active], unit, np.stack([one[active] for one in values]))


def alone(g: Group, lane: int) -> Group:
    """Return the group with only this lane active."""
    only = np.zeros(g.size, bool)
    only[lane] = True
    inner = g.under(only)
    assert inner is not None
    return inner


def clear(g: Group, space: str, address: Callable[[Group], Array], counts: Callable[[Group], Array]) -> None:
    """Write zeros. counts: how many units of 8 bytes each lane clears."""
    number = 0
    while (some := g.under(counts(g) > number)) is not None:
        begin = address(some)
        g.machine.memory.write(
            some, space, begin + begin.dtype.type(8 * number), 8, np.zeros((1, len(begin)), np.uint64)
        )
        number += 1
