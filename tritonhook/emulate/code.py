"""A kernel as the machine executes it: decoded instructions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tritonhook.emulate.errors import Origin
from tritonhook.emulate.words import Array

if TYPE_CHECKING:
    from tritonhook.emulate.machine import Group
    from tritonhook.emulate.ptx.decode import Decoder

Step = Callable[["Group"], None]


@dataclass(frozen=True, slots=True)
class Instruction:
    """One decoded instruction. text: as people read it. line: in the PTX, or the address in machine code. ends: whether
    its step may move threads. guard: the predicate that `step` is under, for observers."""

    step: Step
    text: str
    line: int
    ends: bool = False
    guard: Callable[[Group], Array] | None = None


@dataclass(frozen=True, slots=True)
class Code:
    """A decoded kernel. targets: the indices of instructions that others jump to. entry: where threads begin. origin:
    of an address, from the instruction, the thread and the address; machine code has none. decoder: what has made it,
    if it is PTX and calls no functions; else None."""

    instructions: Sequence[Instruction]
    targets: frozenset[int]
    entry: int = 0
    origin: Callable[[int, int, int], Origin] = lambda pc, thread, address: Origin()
    decoder: Decoder | None = None
