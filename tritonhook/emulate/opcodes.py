"""Tables of opcodes, for the decoders of PTX and machine code: a *maker* turns an instruction into its step.

A *site* is one instruction during decoding (ptx/site.py, sass/site.py). `guarded` makes a step that runs under a
predicate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any

from tritonhook.emulate.machine import Group, Step
from tritonhook.emulate.words import Array as Array
from tritonhook.errors import NotUnderstood

Reader = Callable[[Group], Array]  # reads an operand: its bits, one element per thread of the group's slice


class Opcodes(dict[str, Callable[[Any], Step]]):
    """Makers of steps by opcode; each takes a Site. moves: opcodes whose steps may change program counters."""

    def __init__(self) -> None:
        self.moves: set[str] = set()

    def of(self, *names: str, moves: bool = False) -> Callable[[Callable[[Any], Step]], Callable[[Any], Step]]:
        """Return a decorator that registers a maker for these opcodes. moves: its steps may change program counters."""

        def register(maker: Callable[[Any], Step]) -> Callable[[Any], Step]:
            self.update(dict.fromkeys(names, maker))
            if moves:
                self.moves.update(names)
            return maker

        return register

    def step(self, name: str, site: Any) -> Step:
        """Make the step of a site. Raises NotUnderstood, also for an opcode without a maker."""
        if name not in self:
            raise site.refuse()
        return self[name](site)


def only(site: Any, given: Iterable[Any]) -> Any:
    """Return the single item. Raises NotUnderstood unless there is exactly one: a modifier is missing or repeated."""
    found = list(given)
    if len(found) != 1:
        raise site.refuse("modifiers")
    return found[0]


_EXCLUSIVE = tuple(
    frozenset(names.split())
    for names in (
        "rn rz rm rp rna",
        "rni rzi rmi rpi",
        "trunc floor ceil round",
        "add min max inc dec cas exch",
        "and or xor",
        "l r",
        "lo hi wide",
        "clamp wrap",
        "all any uni ballot",
        "up down bfly idx",
        "pred b32",
        "v2 v4 v8",
        "x1 x2 x4",
        "finite infinite number notanumber normal subnormal",
        "f4e b4e rc8 ecl ecr rc16",
        "eq ne lt le gt ge lo ls hi hs equ neu ltu leu gtu geu num nan",
    )
)


def contradict(modifiers: Iterable[str]) -> bool:
    """Whether two of these modifiers exclude each other, e.g. rn and rz. A decoder would silently ignore one of them.
    Case does not matter."""
    return _contradict(tuple(modifiers))


@lru_cache(maxsize=4096)
def _contradict(modifiers: tuple[str, ...]) -> bool:
    given = [one.lower() for one in modifiers]
    return any(sum(one in names for one in given) > 1 for names in _EXCLUSIVE)


def rounding(how: Iterable[str]) -> str:
    """Return the rounding mode among modifiers, e.g. "rz"; without one, "rn". Case does not matter."""
    return next((one.lower() for one in how if one.lower() in ("rn", "rz", "rm", "rp", "rna")), "rn")


def guarded(step: Step, predicate: Reader, moves: bool) -> Step:
    """Make a step that runs `step` for the threads with a true predicate. moves: `step` may change program counters, so
    that these threads become a group of their own."""

    def run(g: Group) -> None:
        where = predicate(g)
        if (inner := g.part(where) if moves else g.under(where)) is not None:
            step(inner)
            if not moves and inner.gave_way:
                g.give_way()

    return run


def refusing(error: NotUnderstood) -> Step:
    """Make a step that raises the error."""

    def refuse(g: Group) -> None:
        raise error

    return refuse


def nothing(site: Any) -> Step:
    """Make a step without effect."""
    return lambda g: None
