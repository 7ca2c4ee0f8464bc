"""Steps of atom and red: threads execute them one by one, in an order that the machine's seed chooses."""

from __future__ import annotations

from tritonhook.emulate.atomics import OPERATIONS, combination
from tritonhook.emulate.machine import Group, Step
from tritonhook.emulate.ptx.kernel import SIZES
from tritonhook.emulate.ptx.memory import ORDER_OF_ATOMICS, VECTORS, drop_hints, take_space
from tritonhook.emulate.ptx.site import KINDS, Site, opcode

_WHOLE = "b32 b64 u32 u64 s32 s64 b16"


@opcode("atom", "red")
def atomic(site: Site) -> Step:
    drop_hints(site)
    space = take_space(site)
    if not site.modifiers or {"const", "param", "local"} & {*site.item.opcode.split(".")}:
        raise site.refuse()
    kinds = f"{_WHOLE} f16 bf16 f16x2 bf16x2 f32 f64".split()
    found = [one for one in site.modifiers if one in kinds]
    if len(found) != 1:
        raise site.refuse()
    kind = found[0]
    how = frozenset(one for one in site.known(*ORDER_OF_ATOMICS, *OPERATIONS, *VECTORS, *kinds, "noftz") if one != kind)
    if len(how & set(OPERATIONS)) != 1 or ("noftz" in how and not kind.startswith(("f16", "bf16"))):
        raise site.refuse()
    (operation,) = how & set(OPERATIONS)
    count = next((number for name, number in VECTORS.items() if name in how), 1)
    # Atomics flush subnormal f32 in global memory, but not in shared memory.
    combine = combination(operation, kind, True), combination(operation, kind, False, in_a_loop=True)
    returns = site.name == "atom"
    first = 1 if returns else 0
    address, dtype, unit = site.address(first), KINDS[kind], SIZES[kind]
    targets = site.targets(0, kind) if returns else []
    rows = [site.rows(number, kind) for number in range(first + 1, len(site.operands))]
    if any(len(one) != count for one in rows) or len(rows) != (2 if operation == "cas" else 1):
        raise site.refuse("operands")
    memory, steps = site.machine.memory, dtype().itemsize

    def step(g: Group) -> None:
        where = address(g)
        for number in range(count):
            at = where + where.dtype.type(number * steps) if number else where
            old = memory.atomic(g, space, at, unit, combine, *(one[number][g.s] for one in rows))
            if returns:
                g.put(
                    targets[number],
                    old.view(targets[number].dtype) if old.itemsize == targets[number].itemsize else old,
                )
        g.give_way()

    return step
