"""Steps of branches, returns, traps, fences and barriers."""

from __future__ import annotations

import numpy as np

from tritonhook.emulate.machine import Group, Step
from tritonhook.emulate.opcodes import only
from tritonhook.emulate.ptx.site import Site, opcode


@opcode("bra", moves=True)
def branch(site: Site) -> Step:
    site.known("uni")
    target = site.decoder.labels.get(site.operands[0])
    if target is None:
        raise site.refuse(f"label {site.operands[0]}")
    site.decoder.targets.add(target)
    return lambda g: g.jump(target)


@opcode("brx.idx", moves=True)
def branch_by_index(site: Site) -> Step:
    site.known("uni")
    index, names = site.row(0, "u32"), site.decoder.tables.get(site.operands[1])
    if names is None or any(name not in site.decoder.labels for name in names):
        raise site.refuse(f"targets {site.operands[1]}")
    places = np.array([site.decoder.labels[name] for name in names])
    site.decoder.targets.update(map(int, places))
    return lambda g: g.scatter(places[np.minimum(index[g.s], len(places) - 1)])


@opcode("exit", moves=True)
def leave(site: Site) -> Step:
    site.known()
    return lambda g: g.exit()


@opcode("ret", moves=True)
def back(site: Site) -> Step:
    site.known("uni")
    decoder = site.decoder
    return (lambda g: g.exit()) if decoder.function is decoder.kernel.function else decoder.stack.pop


@opcode("trap", moves=True)
def trap(site: Site) -> Step:
    site.known()

    def stop(g: Group) -> None:
        from tritonhook.emulate.errors import Fault

        raise Fault("trap", int(g.numbers[0]))

    return stop


@opcode("membar", "fence", "nanosleep", "griddepcontrol", "prefetch", "prefetchu", "applypriority", "discard")
def nothing(site: Site) -> Step:
    """Make a step without effect on memory, because each emulated access completes at once. Fences inform the
    sanitizer; nanosleep lets other threads run."""
    known = {
        "membar": "cta gl sys",
        "fence": "sc acq_rel acquire release cta cluster gpu sys proxy alias async global shared::cta "
        "shared::cluster mbarrier_init sync_restrict tensormap::generic async::generic",
        "nanosleep": "u32",
        "griddepcontrol": "wait launch_dependents",
        "prefetch": "global L1 L2 evict_last evict_normal tensormap const param",
        "prefetchu": "L1",
        "applypriority": "global L2::evict_normal",
        "discard": "global L2",
    }
    name, memory = site.name, site.machine.memory
    how = site.known(*known[name].split())
    if "proxy" in how and how & {"async", "async::generic"} and "global" not in how:
        return lambda g: None if memory.watch is None else memory.watch.fence(g)
    if "proxy" in how and "async" in how:
        return lambda g: None if memory.watch is None else memory.watch.world.fence()
    if name in ("membar", "fence") and "proxy" not in how:
        return lambda g: None if memory.watch is None else memory.watch.memory_fence(g)
    if name == "griddepcontrol" and "wait" in how:
        return lambda g: None if memory.watch is None else memory.watch.depended(g)
    return (lambda g: g.give_way()) if name == "nanosleep" else (lambda g: None)


@opcode("bar", "barrier", moves=True)
def barrier(site: Site) -> Step:
    """Make the step of bar.sync, bar.arrive or bar.red, or of barrier.*. Without .aligned, barrier.* needs no whole
    warps."""
    how = site.known("sync", "arrive", "red", "cta", "aligned", "popc", "and", "or", "u32", "pred")
    barriers, operands, vote = site.machine.barriers, site.operands, None
    if "red" in how:
        kind = only(site, (one for one in ("popc", "and", "or") if one in how))
        vote = kind, site.predicate(operands[-1]), site.target(0, "u32" if kind == "popc" else "pred")
        operands = operands[1:-1]
    number, count = site.row(operands[0], "u32"), site.row(operands[1], "u32") if len(operands) > 1 else None
    waits = "arrive" not in how
    aligned, memory = site.name == "bar" or "aligned" in how, site.machine.memory

    def step(g: Group) -> None:
        if aligned and memory.watch is not None:
            g.converge(0xFFFF_FFFF)  # the sanitizer reports lanes that do not arrive
            memory.watch.aligned(g)
        barriers.arrive(g, number[g.s], None if count is None else count[g.s], waits, vote)

    return step


@opcode("bar.warp.sync")
def warp_barrier(site: Site) -> Step:
    site.known()
    lanes, memory = site.row(0, "u32"), site.machine.memory

    def step(g: Group) -> None:
        g.meet(lanes[g.s])
        if memory.watch is not None:
            memory.watch.members(g, lanes[g.s])
            memory.watch.together(g)

    return step


@opcode("barrier.cluster", moves=True)
def cluster_barrier(site: Site) -> Step:
    how = site.known("arrive", "wait", "release", "relaxed", "acquire", "aligned")
    barriers = site.machine.barriers
    return barriers.cluster_arrive if "arrive" in how else barriers.cluster_wait
