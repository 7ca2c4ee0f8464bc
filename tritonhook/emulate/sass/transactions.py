"""Asynchronous copies and mbarriers: LDGSTS, LDGDEPBAR, SYNCS."""

from __future__ import annotations

import numpy as np

from tritonhook.emulate import memory as spaces
from tritonhook.emulate.machine import Group, Step
from tritonhook.emulate.sass.memory import _NO_MATTER
from tritonhook.emulate.sass.site import Site, opcode


@opcode("LDGSTS")
def copy(site: Site) -> Step:
    """Global to shared memory; zeros where the predicate is false."""
    site.known("BYPASS", "64", "128", *_NO_MATTER)
    size = next((int(one) // 8 for one in site.modifiers if one in ("64", "128")), 4)
    to, source = site.address(32), site.address(64)
    flag = site.predicate() if site.given else None
    site.done()
    memory, copies = site.machine.memory, site.machine.copies

    def step(g: Group) -> None:
        values = np.zeros((size // 4, g.size), np.uint32)
        reads = g if flag is None else g.under(flag(g))
        if reads is not None:
            found = memory.read(reads, spaces.GLOBAL, source(g), 4, size // 4)
            values = found if reads.mask is None else np.where(reads.mask, found, values)
        store, index = memory.locate(g, spaces.SHARED, to(g), size, "w")
        copies.start(g, store, index, 4, values)

    return step


@opcode("LDGDEPBAR")
def commit(site: Site) -> Step:
    site.known()
    copies = site.machine.copies
    return lambda g: copies.commit(g)


@opcode("DEPBAR")
def wait(site: Site) -> Step:
    """Wait until at most so many groups of copies are on their way."""
    if site.known("LE") != {"LE"} or site.text() != "SB0":
        raise site.refuse()
    pending, copies = site.number(), site.machine.copies
    site.done()
    return lambda g: copies.wait(g, pending)
