"""Count the steps that a piece of work takes in Python: how work grows is told without a clock."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

Work = Callable[[], Any]


def steps_of(work: Work) -> int:
    """The bytecode instructions that `work` runs in this thread. What C code does in one call counts as one."""
    steps = 0

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal steps
        frame.f_trace_lines, frame.f_trace_opcodes = False, True
        steps += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return steps


def is_linear(work: Callable[[int], Work], small: int = 32) -> bool:
    """Whether four times the size takes at most 4.4 times the steps. work: makes the work of a size."""
    work(small)()  # what is loaded or compiled once does not count
    return steps_of(work(4 * small)) <= 4.4 * steps_of(work(small))
