"""Where the values of a function's registers come from and go to: what is dead, what is read before it is written.

Works on the items of program.py. Registers written under a guard count as read by it, too, as they keep their value.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tritonhook.ptx.access import NAME, access
from tritonhook.ptx.program import LABEL, REGISTER, VARIABLES, Function, Item

# Have an effect beside their result. An instruction without a result has an effect, too.
_EFFECTS = frozenset(
    {"alloca", "atom", "bar", "barrier", "call", "mbarrier", "multimem", "stacksave", "tcgen05", "wgmma"}
)
_ENDS = frozenset({"ret", "exit", "trap"})


class Flow(NamedTuple):
    """The registers that an item writes and reads; whether it is more than its results; whether it may do nothing."""

    writes: frozenset[str]
    reads: frozenset[str]
    has_effect: bool
    is_guarded: bool


@functools.lru_cache(maxsize=1 << 16)
def flow_of(item: Item) -> Flow:
    """What an item writes and reads."""
    base = item.opcode.partition(".")[0]
    if not base:
        return Flow(frozenset(), frozenset(), False, False)
    result, sources = access(item.opcode, item.operands)
    writes = _registers(result)
    return Flow(writes, _registers(item.guard, *sources), base in _EFFECTS or not writes, bool(item.guard))


def _registers(*texts: str) -> frozenset[str]:
    return frozenset(match[0] for text in texts for match in REGISTER.finditer(text))


def is_branch(item: Item) -> bool:
    return item.opcode.partition(".")[0] in ("bra", "brx")


def target(item: Item) -> str | None:
    """The label that a branch goes to; None for another item, and for a branch to one of several labels."""
    return item.operands[0] if item.opcode.startswith("bra") and item.operands else None


def cleaned(items: Iterable[Item]) -> tuple[Item, ...]:
    """The items without those that are never reached, without effect or used by nothing that has one."""
    kept = list(items)
    while True:
        count = len(kept)
        kept = _live(_without_jumps_to_next(_reached(kept)))
        if len(kept) == count:
            return tuple(kept)


def _reached(items: Sequence[Item]) -> list[Item]:
    """Without what stands between a jump and the next label that is used."""
    used = {name for item in items if not item.label for operand in item.operands for name in LABEL.findall(operand)}
    kept: list[Item] = []
    reached = True
    for item in items:
        if item.label:
            if item.label not in used:
                continue
            reached = True
        if reached or item.opcode.startswith("."):
            kept.append(item)
        if not item.label and not item.guard and _leaves(item):
            reached = False
    return kept


def _leaves(item: Item) -> bool:
    base = item.opcode.partition(".")[0]
    return base in _ENDS or is_branch(item)


def _without_jumps_to_next(items: Sequence[Item]) -> list[Item]:
    kept: list[Item] = []
    following: set[str] = set()  # the labels that stand directly behind
    for item in reversed(items):
        if item.label:
            following.add(item.label)
        elif target(item) in following:
            continue
        else:
            following = set()
        kept.append(item)
    return kept[::-1]


def _live(items: Sequence[Item]) -> list[Item]:
    """Without items whose registers no effect needs, not even around a loop; and declarations that nothing names."""
    writers: dict[str, list[int]] = {}
    flows = [flow_of(item) for item in items]
    for number, flow in enumerate(flows):
        for name in flow.writes:
            writers.setdefault(name, []).append(number)
    waiting = [number for number, flow in enumerate(flows) if flow.has_effect]
    alive = set(waiting)
    while waiting:
        for name in flows[waiting.pop()].reads:
            new = [number for number in writers.get(name, ()) if number not in alive]
            alive.update(new)
            waiting += new
    kept = [item for number, item in enumerate(items) if item.label or number in alive or item.opcode.startswith(".")]
    if not any(map(_declares, kept)):
        return kept
    used = {word for item in kept if not _declares(item) for text in item.operands for word in NAME.findall(text)}
    return [item for item in kept if not _declares(item) or _declared(item) in used]


def _declares(item: Item) -> bool:
    return item.opcode in VARIABLES


def _declared(item: Item) -> str:
    return item.operands[0].partition("[")[0].partition("=")[0].split()[-1]


def read_unwritten(function: Function) -> frozenset[tuple[str, str]]:
    """The registers that some path reads before it has written them for sure: their value is not defined. Each with the
    instruction that reads it."""
    items = function.items
    places = {item.label: number for number, item in enumerate(items) if item.label}
    every = frozenset(name for item in items for name in flow_of(item).writes)
    written: dict[int, frozenset[str]] = {0: frozenset()}  # at the start of an item: on all paths so far
    found: set[tuple[str, str]] = set()
    waiting = [0]
    while waiting:
        number = waiting.pop()
        state = written[number]
        while number < len(items):
            item = items[number]
            flow = flow_of(item)
            found |= {(name, item.opcode.partition(".")[0]) for name in flow.reads - state}
            if flow.writes and not flow.is_guarded:
                state = state | flow.writes
            targets = [places[name] for operand in item.operands for name in LABEL.findall(operand) if name in places]
            for place in targets if is_branch(item) else ():
                if place not in written or not written[place] <= state:
                    written[place] = written.get(place, every) & state
                    waiting.append(place)
            if not item.label and not item.guard and _leaves(item):
                break
            number += 1
            if number < len(items) and items[number].label:
                if number in written and written[number] <= state:
                    break
                written[number] = state = written.get(number, every) & state
    return frozenset(found)
