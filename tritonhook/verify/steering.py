"""Which arguments' contents steer a kernel: those that reach an address or a branch. Other contents may be anything.

A flow of data through registers and memory, without regard to order, so that it finds too much rather than too little.
Pure.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from tritonhook.ptx.access import NAME, access
from tritonhook.ptx.module import Ptx
from tritonhook.ptx.statements import Statement, statements

_BRACKETS = re.compile(r"\[([^\]]*)\]")
_LOADS = frozenset({"ld", "ldu", "atom", "ldmatrix", "tex", "suld", "multimem"})
_STORES = frozenset({"st", "stmatrix", "red"})
_FROM_SHARED = frozenset({"wgmma", "tcgen05"})  # read shared memory through descriptors
# Beside the names of registers and parameters: all memory of a block (shared, local, tensor), and what was looked for.
_MEMORY, _STEERING = "[memory]", "[steering]"


class _Flow(NamedTuple):
    """What one statement does, as names. Its results hold what the sources do, and what lies where `loaded` point."""

    results: tuple[str, ...]
    sources: tuple[str, ...]
    loaded: tuple[str, ...] = ()
    steers: tuple[str, ...] = ()


class _Bits(defaultdict[str, int]):
    """By name, bits of arguments."""

    def __init__(self) -> None:
        super().__init__(int)

    def of(self, names: Iterable[str]) -> int:
        found = 0
        for name in names:
            found |= self.get(name, 0)
        return found


def steering_parameters(ptx: Ptx, entry: str) -> frozenset[int]:
    """The parameters, by number, whose buffers' contents reach an address or a branch of the entry."""
    parameters = ptx.parameters(entry)
    points, holds = _Bits(), _Bits()  # into which buffers a name points; of whose contents it is made
    for number, name in enumerate(parameters):
        points[name] = 1 << number
    functions = (entry, *ptx.functions)
    code = [item for item in statements(ptx) if item.function in functions and not item.opcode.startswith(".")]
    flows = [flow for item in code for flow in _flows(item, frozenset(parameters))]
    size, before = sum(points.values()), 0
    while size != before:
        for results, sources, loaded, steers in flows:
            pointed, held = points.of(sources), holds.of(sources) | points.of(loaded)
            holds[_STEERING] |= holds.of(steers)
            for name in results:
                points[name] |= pointed
                holds[name] |= held
        size, before = sum(points.values()) + sum(holds.values()), size
    return frozenset(number for number in range(len(parameters)) if holds[_STEERING] >> number & 1)


def _flows(item: Statement, parameters: frozenset[str]) -> Iterator[_Flow]:
    parts = item.parts
    root = parts[0]
    result, read = access(item.opcode, item.operands)
    addresses = tuple(name for operand in item.operands for name in _names(_BRACKETS.findall(operand)))
    results, sources = _names([result]), (*_names(_BRACKETS.sub(" ", operand) for operand in read), item.guard)
    is_own = any(part.startswith(("shared", "local")) for part in parts)
    if item.opcode.startswith("ld.param"):
        is_of_entry = not parameters.isdisjoint(addresses)  # else it comes from a call
        yield _Flow(results, addresses if is_of_entry else (_MEMORY,))
    elif root == "cp":
        yield _Flow((_MEMORY,), (), (*addresses, *sources), addresses)
    elif root in _LOADS:
        is_memory = is_own or not any(part.startswith(("global", "const")) for part in parts)
        written = (*results, _MEMORY) if root == "atom" and is_memory else results
        yield _Flow(written, (*sources, _MEMORY) if is_memory else sources, addresses, addresses)
    elif (root in _STORES or parts[:2] == ("tcgen05", "st")) and (is_own or "global" not in parts):
        yield _Flow((_MEMORY,), sources, (), addresses)
    elif root in _FROM_SHARED:
        yield _Flow(results, (*sources, _MEMORY), (), addresses)
    elif root in ("bra", "brx", "call", "exit", "ret", "trap"):
        yield _Flow(results, (_MEMORY,), (), sources)
    elif root != "mbarrier":  # whether a barrier is complete does not follow from contents
        yield _Flow(results, sources, (), addresses)


def _names(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(name for text in texts for name in NAME.findall(text))
