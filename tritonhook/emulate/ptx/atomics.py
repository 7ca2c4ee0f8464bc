"""atom and red: one thread after the other, in an order that the machine's seed chooses."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tritonhook.emulate import numbers, numbers64
from tritonhook.emulate.machine import Group, Step
from tritonhook.emulate.memory import GLOBAL
from tritonhook.emulate.ptx.kernel import SIZES
from tritonhook.emulate.ptx.memory import ORDER, drop_hints, take_space
from tritonhook.emulate.ptx.site import KINDS, Array, Site, opcode

_OPERATIONS = ("add", "min", "max", "and", "or", "xor", "exch", "cas", "inc", "dec")
_VECTORS = {"v2": 2, "v4": 4, "v8": 8}
_WHOLE = "b32 b64 u32 u64 s32 s64 b16"


@opcode("atom", "red")
def atomic(site: Site) -> Step:
    drop_hints(site)
    space = take_space(site)
    if not site.modifiers:
        raise site.refuse()
    kinds = f"{_WHOLE} f16 bf16 f16x2 bf16x2 f32 f64".split()
    found = [one for one in site.modifiers if one in kinds]
    if len(found) != 1:
        raise site.refuse()
    kind = found[0]
    how = frozenset(one for one in site.known(*ORDER, *_OPERATIONS, *_VECTORS, *kinds, "noftz") if one != kind)
    (operation,) = how & set(_OPERATIONS)
    count = next((number for name, number in _VECTORS.items() if name in how), 1)
    combine, returns = _combine(site, operation, kind, space == GLOBAL), site.name == "atom"
    first = 1 if returns else 0
    address, dtype, unit = site.address(first, space), KINDS[kind], SIZES[kind]
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


def _combine(site: Site, operation: str, kind: str, is_global: bool) -> Callable[..., Array]:
    dtype = KINDS[kind]
    unsigned = np.dtype(f"u{dtype().itemsize}")

    def of(function: Callable[..., Array]) -> Callable[..., Array]:
        return lambda old, *given: function(old.view(dtype), *given).view(unsigned)

    if operation == "exch":
        return of(lambda old, new: new)
    if operation == "cas":
        return of(lambda old, wanted, new: np.where(old == wanted, new, old))
    if kind in ("f32", "f64", "f16", "bf16", "f16x2", "bf16x2"):
        if operation != "add":
            raise site.refuse()
        if kind == "f32":  # subnormal numbers in global memory are flushed
            return lambda old, given: numbers.add32(old, given, ftz=is_global)
        if kind == "f64":
            return numbers64.add64
        from tritonhook.emulate.ptx.floats import of_halves

        return of_halves(kind, numbers.odd_sum)
    if operation in ("inc", "dec"):
        if kind != "u32":
            raise site.refuse()
        one = np.uint32(1)
        if operation == "inc":
            return lambda old, most: np.where(old >= most, np.uint32(0), old + one)
        return lambda old, most: np.where((old == 0) | (old > most), most, old - one)
    functions = {
        "add": np.add,
        "min": np.minimum,
        "max": np.maximum,
        "and": np.bitwise_and,
        "or": np.bitwise_or,
        "xor": np.bitwise_xor,
    }
    return of(functions[operation])
