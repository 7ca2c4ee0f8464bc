"""Which arguments' contents steer a kernel: those that reach an address or a branch. Other contents may be anything.

A flow of data through registers and shared memory, without regard to order, so that it finds too much rather than too
little. Pure.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from tritonhook.ptx.module import Ptx
from tritonhook.ptx.statements import NO_RESULT, Statement, statements

_NAMES = re.compile(r"[%A-Za-z_$][\w$%.]*")
_BRACKETS = re.compile(r"\[([^\]]*)\]")
_GUARD = re.compile(r"@\s*!?\s*([\w$%]+)\s+$")
_FROM_SHARED = frozenset({"wgmma", "ldmatrix", "tcgen05"})  # read shared memory through descriptors


@dataclass(slots=True)
class _Flow:
    """What one statement does, as sets of names. loads: whether it reads memory at `addresses`."""

    result: tuple[str, ...]
    sources: tuple[str, ...]
    addresses: tuple[str, ...]
    item: Statement
    steers: tuple[str, ...] = ()


@dataclass(slots=True)
class _State:
    """By register, bits of arguments: `points`: it points into that argument's buffer; `holds`: made of its contents.
    shared: the contents that went to shared or local memory. steering: what was found."""

    points: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))
    holds: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))
    shared: int = 0
    shared_points: int = 0
    steering: int = 0

    def pointed(self, names: tuple[str, ...]) -> int:
        found = 0
        for name in names:
            found |= self.points.get(name, 0)
        return found

    def held(self, names: tuple[str, ...]) -> int:
        found = 0
        for name in names:
            found |= self.holds.get(name, 0)
        return found

    @property
    def size(self) -> tuple[int, int, int, int]:
        return sum(self.points.values()), sum(self.holds.values()), self.shared | self.shared_points, self.steering


def steering_parameters(ptx: Ptx, entry: str) -> frozenset[int]:
    """The parameters, by number, whose buffers' contents reach an address or a branch of the entry."""
    numbers = {name: number for number, name in enumerate(ptx.parameters(entry))}
    flows = [_flow(item, guard) for item, guard in _guarded(ptx, entry)]
    state, before = _State(), None
    while before != state.size:
        before = state.size
        for flow in flows:
            _advance(state, flow, numbers)
    return frozenset(number for number in numbers.values() if state.steering >> number & 1)


def _guarded(ptx: Ptx, entry: str) -> Iterator[tuple[Statement, tuple[str, ...]]]:
    """The instructions of an entry, and of the functions of its module, each with the predicate that guards it."""
    code = ptx.tokens.code
    for item in statements(ptx):
        if item.opcode.startswith(".") or item.function not in (entry, *ptx.functions):
            continue
        found = _GUARD.search(code, max(0, item.position - 80), item.position)
        yield item, (found[1],) if found else ()


def _flow(item: Statement, guard: tuple[str, ...]) -> _Flow:
    root = item.parts[0]
    first = 0 if root in NO_RESULT or (root == "mbarrier" and "wait" not in item.opcode) else 1
    result = _names(item.operands[:first])
    given = item.operands[first:]
    if root in ("mma", "wgmma"):  # the accumulator is read too
        given = item.operands
    addresses = tuple(name for text in item.operands for name in _names(tuple(_BRACKETS.findall(text))))
    sources = (*_names(tuple(_BRACKETS.sub(" ", operand) for operand in given)), *guard)
    steers = addresses
    if root in ("bra", "brx", "exit", "ret", "trap"):
        steers = sources
    elif root == "call":
        steers = _names(item.operands)
    return _Flow(result, sources, addresses, item, steers)


def _names(texts: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name for text in texts for name in _NAMES.findall(text))


def _advance(state: _State, flow: _Flow, numbers: dict[str, int]) -> None:
    parts = flow.item.parts
    root = parts[0]
    points, holds = state.pointed(flow.sources), state.held(flow.sources)
    if root == "ld" and "param" in "".join(parts[1:2]):
        for name in flow.addresses:
            if name in numbers:
                points |= 1 << numbers[name]
    elif root == "mbarrier":
        points = holds = 0  # whether a barrier is complete does not follow from contents
    else:
        state.steering |= state.held(flow.steers)
        at = state.pointed(flow.addresses)
        is_shared = any(part.startswith(("shared", "local")) for part in parts)
        if root in ("ld", "ldu", "atom", "ldmatrix", "tex", "suld", "multimem"):
            holds |= at
            if is_shared or not any(part.startswith(("global", "const")) for part in parts):
                holds |= state.shared
                points |= state.shared_points
        elif root in ("st", "stmatrix", "red") and (is_shared or "global" not in parts):
            state.shared |= holds
            state.shared_points |= points
        elif root == "cp":
            state.shared |= at | points
        if root in _FROM_SHARED:
            holds |= state.shared
    for name in flow.result:
        state.points[name] |= points
        state.holds[name] |= holds
