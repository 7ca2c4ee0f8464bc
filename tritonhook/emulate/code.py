"""Decoded instructions of a kernel, which the machine executes."""

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
    """One decoded instruction.

    step: executes it for a group of threads. text: its source text. line: line of the PTX, or address in the machine
    code. ends: whether `step` may change program counters, so that a block of instructions ends here. guard: reads the
    predicate of the instruction, for observers."""

    step: Step
    text: str
    line: int
    ends: bool = False
    guard: Callable[[Group], Array] | None = None


@dataclass(frozen=True, slots=True)
class Code:
    """A decoded kernel.

    targets: indices of the instructions that others jump to. entry: index of the first instruction. origin: finds how
    an address was computed, from the index of the instruction, the thread and the address; for machine code, it returns
    an empty Origin. decoder: the decoder of a PTX kernel that calls no functions; else None."""

    instructions: Sequence[Instruction]
    targets: frozenset[int]
    entry: int = 0
    origin: Callable[[int, int, int], Origin] = lambda pc, thread, address: Origin()
    decoder: Decoder | None = None
