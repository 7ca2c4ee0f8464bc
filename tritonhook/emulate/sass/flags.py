"""Predicates as the bits of a register, and back."""

from __future__ import annotations

import numpy as np

from tritonhook.emulate.machine import Group, Step
from tritonhook.emulate.sass.site import Array, Reader, Site, opcode


def _row_of_flags(site: Site) -> tuple[list[Array], int]:
    return [site.decoder.flag(site.base.startswith("U"), number) for number in range(7)], site.number()


@opcode("P2R", "UP2R")
def flags_to_register(site: Site) -> Step:
    """Predicates as bits, where the mask has one; the other bits are the second operand's."""
    how = site.known("B1", "B2", "B3")
    at = np.uint32(8 * int(next(iter(how), "B0")[1]))
    put = site.target()
    if site.next_is("U?PR"):
        site.text()
    other = site.integer()
    rows, mask = _row_of_flags(site)
    site.done()

    def step(g: Group) -> None:
        bits = other(g) & ~np.uint32((mask & 0xFF) << int(at))
        for number, row in enumerate(rows):
            if mask >> number & 1:
                bits = bits | row[g.s].astype(np.uint32) << (at + np.uint32(number))
        put(g, bits)

    return step


@opcode("R2P", "UR2P")
def register_to_flags(site: Site) -> Step:
    how = site.known("B1", "B2", "B3")
    at = 8 * int(next(iter(how), "B0")[1])
    if site.next_is("U?PR"):
        site.text()
    read: Reader = site.integer()
    rows, mask = _row_of_flags(site)
    site.done()

    def step(g: Group) -> None:
        word = read(g)
        for number, row in enumerate(rows):
            if mask >> number & 1:
                g.put(row, word >> np.uint32(at + number) & np.uint32(1) != 0)

    return step
