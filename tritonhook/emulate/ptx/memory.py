"""Steps of loads, stores and cp.async."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

from tritonhook.emulate.machine import Group, Step
from tritonhook.emulate.memory import CLUSTER, GENERIC, GLOBAL, LOCAL, SHARED, UNSIGNED
from tritonhook.emulate.ptx.kernel import SIZES
from tritonhook.emulate.ptx.site import KINDS, Array, Site, opcode

SPACES = {
    "global": GLOBAL,
    "shared": SHARED,
    "shared::cta": SHARED,
    "shared::cluster": CLUSTER,
    "local": LOCAL,
    "param": GLOBAL,  # the machine keeps parameters in global memory, because TMA descriptors need an address there
    "param::entry": GLOBAL,
    "param::func": GLOBAL,
    "const": GLOBAL,
}
ORDER_OF_ATOMICS = ("relaxed", "acquire", "release", "acq_rel", "cta", "cluster", "gpu", "sys")
ORDER = ("weak", "volatile", "mmio", *ORDER_OF_ATOMICS)
CACHE = ("ca", "cg", "cs", "cv", "lu", "nc", "wb", "wt", "unified")
_POLLS = {"acquire", "volatile", "relaxed", "mmio", "cv"}
VECTORS = {"v2": 2, "v4": 4, "v8": 8}


def take_space(site: Site) -> str:
    """Remove the state space from a site's modifiers, and return it; GENERIC if there is none."""
    found = [one for one in site.modifiers if one in SPACES]
    site.modifiers = tuple(one for one in site.modifiers if one not in SPACES)
    if len(found) > 1:
        raise site.refuse()
    if found and found[0].startswith("param"):  # arguments of a call are kept in local memory
        names = re.findall(r"\[\s*([^\]\s+]+)\s*(?:\+[^\]]*)?\]", " ".join(site.operands))
        if any(site.decoder.slot(site.decoder.function.name, name) is not None for name in names):
            return LOCAL
    return SPACES[found[0]] if found else GENERIC


def drop_hints(site: Site) -> None:
    """Remove cache hints from a site's modifiers, and the operand of L2::cache_hint, which is the last one."""
    hints = [one for one in site.modifiers if one.startswith(("L1::", "L2::"))]
    site.modifiers = tuple(one for one in site.modifiers if one not in hints)
    if "L2::cache_hint" in hints:
        site.operands = site.operands[:-1]


def _shape(site: Site, *never: str) -> tuple[str, str, int, bool]:
    """Return space, type and number of elements of a load or store, and whether it may poll memory. never: modifiers
    that this instruction must not have."""
    drop_hints(site)
    space = take_space(site)
    kind, how = site.typed(" ".join(one for one in SIZES if one != "b128"), *ORDER, *CACHE, *VECTORS)
    if how & {*never}:
        raise site.refuse()
    count = next((number for name, number in VECTORS.items() if name in how), 1)
    return space, kind, count, bool(how & _POLLS)


@opcode("ld", "ldu")
def load(site: Site) -> Step:
    space, kind, count, polls = _shape(site, "release", "acq_rel", "wb", "wt")
    targets, address = site.targets(0, kind), site.address(1)
    if len(targets) != count:
        raise site.refuse(f"{len(targets)} registers")
    unit, dtype, memory = SIZES[kind], KINDS[kind], site.machine.memory

    def step(g: Group) -> None:
        values = memory.read(g, space, address(g), unit, count)
        for target, value in zip(targets, values, strict=True):
            g.put(target, value.view(dtype) if value.flags.c_contiguous else value.astype(dtype))
        if polls:
            g.give_way()

    return step


@opcode("st")
def store(site: Site) -> Step:
    if {"const", "param::entry"} & {*site.modifiers}:
        raise site.refuse()
    space, kind, count, _ = _shape(site, "acquire", "acq_rel", "ca", "cv", "lu", "nc", "unified")
    rows, address = site.rows(1, kind), site.address(0)
    if len(rows) != count:
        raise site.refuse(f"{len(rows)} registers")
    unit, memory = SIZES[kind], site.machine.memory
    dtype = UNSIGNED[unit]

    def step(g: Group) -> None:
        memory.write(g, space, address(g), unit, [row[g.s].astype(dtype, copy=False) for row in rows])

    return step


@opcode("createpolicy")
def create_policy(site: Site) -> Step:
    """Make the step of createpolicy, which writes 0: only cache hints use the value."""
    target = site.target(0, "b64")
    return lambda g: g.put(target, np.uint64(0))


def _bytes_to_copy(site: Site, given: str | None, size: int) -> Callable[[Group], Array]:
    """Return the reader of the number of bytes that each thread copies. given: the operand src-size (a number of
    bytes), or the operand ignore-src (a predicate; true means 0 bytes); None: all `size` bytes."""
    full = site.constant(size, np.uint32)
    if given is not None and given.lstrip("!").startswith("%p"):
        ignored = site.predicate(given)
        return lambda g: np.where(ignored(g), np.uint32(0), full[g.s])
    row = full if given is None else site.row(given, "u32")
    return lambda g: row[g.s]


@opcode("cp.async")
def copy(site: Site) -> Step:
    drop_hints(site)
    how = site.known("ca", "cg", "shared", "shared::cta", "global")
    if "global" not in how or len(site.operands) not in (3, 4):
        raise site.refuse()
    target, source, size = site.address(0), site.address(1), site.integer(2)
    given = site.operands[3] if len(site.operands) == 4 else None
    sizes = _bytes_to_copy(site, given, size)
    memory, copies = site.machine.memory, site.machine.copies
    if size not in (4, 8, 16):
        raise site.refuse(f"{size} bytes")

    def step(g: Group) -> None:
        values = copies.read(g, source(g), sizes(g), size)
        store, index = memory.locate(g, SHARED, target(g), size, "c")
        copies.start(g, store, index, 4, values)

    return step


@opcode("cp.async.commit_group", "cp.async.wait_group", "cp.async.wait_all")
def copy_groups(site: Site) -> Step:
    site.known()
    copies = site.machine.copies
    if site.name.endswith("commit_group"):
        return copies.commit
    pending = site.integer(0) if site.name.endswith("wait_group") else None
    return lambda g: copies.wait(g, pending)
