"""Decide whether the PTX or ptxas changed a kernel, if both changed. Two crossed builds are made: the new PTX with the
old ptxas, and the old PTX with the new ptxas. With the old and the new build they show the cause.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from tritonhook.errors import ToolError, TritonHookError, listed
from tritonhook.ptxas.pool import ResultCache, Run, sweep
from tritonhook.ptxas.tool import find_ptxas
from tritonhook.snapshot.assembled import Task, all_drawn, disassembler
from tritonhook.snapshot.changes import Change, Crossed
from tritonhook.snapshot.facts import KernelFacts

MOST = 100  # most kernels with crossed builds; each takes two runs of ptxas
Text = Callable[[KernelFacts], "str | None"]  # returns the PTX of a kernel


def crossed(changes: Sequence[Change], text: Text, run: Run | None = None) -> tuple[list[Change], list[str]]:
    """Add the crossed builds to the changes in which both PTX and ptxas differ, for at most MOST kernels. Also return
    notes on changes without crossed builds. text: returns the PTX of a kernel. run: runs ptxas; None: run it on this
    machine, with the cache."""
    if not any(change.has_two_steps for change in changes):
        return list(changes), []
    tasks: dict[int, tuple[Task, Task]] = {}
    why: dict[str, list[str]] = {}
    for number, change in enumerate(changes):
        if change.has_two_steps and len(tasks) < MOST and change.old is not None and change.new is not None:
            try:  # two builds: the new PTX with the old ptxas, and the old PTX with the new ptxas
                tasks[number] = _task(change.new, text, change.old), _task(change.old, text, change.new)
            except TritonHookError as error:
                why.setdefault(str(error), []).append(change.identity.kernel)
    both = [task for pair in tasks.values() for task in pair]
    made = iter(all_drawn(both, run or partial(sweep, cache=ResultCache()), disassembler(), runs=1))
    done = list(changes)
    for number in tasks:
        (new_ptx,), (new_ptxas,) = next(made), next(made)
        done[number] = replace(changes[number], crossed=Crossed(new_ptx, new_ptxas))
    whose = {reason: listed(dict.fromkeys(names)) for reason, names in why.items()}
    notes = [f"not known whether the PTX or ptxas changed {names}: {reason}" for reason, names in whose.items()]
    if (left := sum(change.has_two_steps for change in changes) - len(tasks) - sum(map(len, why.values()))) > 0:
        notes.append(f"PTX or ptxas as the cause: tested only for the worst {MOST} kernels, not for {left:,} others")
    return done, notes


def _task(kernel: KernelFacts, text: Text, assembler: KernelFacts) -> Task:
    ptx = text(kernel)
    if ptx is None or assembler.ptxas is None:
        raise TritonHookError("the PTX was not kept" if ptx is None else "the version of ptxas is not known")
    try:
        tool = find_ptxas(assembler.ptxas)
    except ToolError:
        remedy = f"`tritonhook ptxas add {assembler.ptxas}` fetches it"
        raise ToolError(f"ptxas {assembler.ptxas} is not installed; {remedy}") from None
    return Task(kernel, ptx, tool, assembler.options or ())
