"""What both front ends decode with: a table of makers of steps by opcode, and steps under a predicate."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any

from tritonhook.emulate.machine import Group, Step
from tritonhook.emulate.words import Array as Array
from tritonhook.errors import NotUnderstood

Reader = Callable[[Group], Array]  # of a source: its bits for a group's threads


class Opcodes(dict[str, Callable[[Any], Step]]):
    """Makers by opcode: each takes a Site and gives the step. moves: opcodes whose steps may move threads."""

    def __init__(self) -> None:
        self.moves: set[str] = set()

    def of(self, *names: str, moves: bool = False) -> Callable[[Callable[[Any], Step]], Callable[[Any], Step]]:
        """Register a maker for these opcodes."""

        def register(maker: Callable[[Any], Step]) -> Callable[[Any], Step]:
            self.update(dict.fromkeys(names, maker))
            if moves:
                self.moves.update(names)
            return maker

        return register

    def step(self, name: str, site: Any) -> Step:
        """Make the step of a site. Raises NotUnderstood."""
        if name not in self:
            raise site.refuse()
        return self[name](site)


def only(site: Any, given: Iterable[Any]) -> Any:
    """Return the only item. Raises NotUnderstood where one modifier of several is missing, or is there twice."""
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
    """Whether two modifiers, in capitals or not, exclude each other: one of them would be ignored."""
    return _contradict(tuple(modifiers))


@lru_cache(maxsize=4096)
def _contradict(modifiers: tuple[str, ...]) -> bool:
    given = [one.lower() for one in modifiers]
    return any(sum(one in names for one in given) > 1 for names in _EXCLUSIVE)


def rounding(how: Iterable[str]) -> str:
    """Return the rounding among modifiers, in capitals or not; without one, rounding to nearest."""
    return next((one.lower() for one in how if one.lower() in ("rn", "rz", "rm", "rp", "rna")), "rn")


def guarded(step: Step, predicate: Reader, moves: bool) -> Step:
    """Put a step under a predicate; a step that may move threads gets a group of its own."""

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
