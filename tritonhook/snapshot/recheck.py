"""Assemble locked kernels again, with the ptxas that made them or with another one, and read their facts.

ptxas is not deterministic for some kernels: where a kernel's code is not one of those locked, it is assembled again
with ptxas's memory at other addresses, until a locked code comes or `STEADY_RUNS` runs have not given one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from tritonhook.cubin.image import Cubin
from tritonhook.lab.outcome import Outcome
from tritonhook.lab.sweep import Job, Run
from tritonhook.ptx.module import Ptx
from tritonhook.ptx.retarget import lowered_for
from tritonhook.ptxas.assembler import STEADY_RUNS
from tritonhook.ptxas.tool import Tool
from tritonhook.snapshot.facts import Disassemble, KernelFacts, with_code, with_image


@dataclass(frozen=True, slots=True)
class Task:
    """A locked kernel, its PTX, and the ptxas and options to assemble it with. A ptxas that is too old for the PTX's
    `.version` gets it with the newest that it reads."""

    locked: KernelFacts
    ptx: str
    ptxas: Tool
    options: tuple[str, ...]

    def job(self, draw: int) -> Job:
        # -v prints the spills. The code does not depend on it.
        options = self.options if "-v" in self.options else (*self.options, "-v")
        return Job(lowered_for(Ptx(self.ptx), self.ptxas.version).text, self.ptxas, options, keep_cubin=True, draw=draw)


def recheck(tasks: Sequence[Task], run: Run, disassemble: Disassemble) -> list[KernelFacts]:
    """The facts of each task's kernel now. Instructions are counted only where the code is a new one."""
    found = _assembled(tasks, run, draw=0)
    for draw in range(1, STEADY_RUNS + 1):
        moved = [n for n, task in enumerate(tasks) if _may_be_a_draw(task, found[n])]
        again = _assembled([tasks[n] for n in moved], run, draw)
        for n, facts in zip(moved, again, strict=True):
            if set(facts[0].codes) & set(tasks[n].locked.codes):
                found[n] = facts
    return _counted(tasks, found, disassemble)


def all_drawn(
    tasks: Sequence[Task], run: Run, disassemble: Disassemble | None = None, runs: int = STEADY_RUNS + 1
) -> list[tuple[KernelFacts, ...]]:
    """The facts of each task's kernel now, one for each code that ptxas gives it in several runs. disassemble: None
    leaves instructions uncounted."""
    seen: list[dict[tuple[str, ...], tuple[KernelFacts, bytes | None]]] = [{} for _ in tasks]
    for draw in range(runs):
        for codes, (facts, cubin) in zip(seen, _assembled(tasks, run, draw), strict=True):
            codes.setdefault(facts.codes, (facts, cubin))
    both = [(task, made) for task, codes in zip(tasks, seen, strict=True) for made in codes.values()]
    drawn = [made for _, made in both]
    tasks_of = [task for task, _ in both]
    counted = [made[0] for made in drawn] if disassemble is None else _counted(tasks_of, drawn, disassemble)
    following = iter(counted)
    return [tuple(islice(following, len(codes))) for codes in seen]


def codes_of(tasks: Sequence[Task], run: Run, runs: int = STEADY_RUNS + 1) -> list[tuple[str, ...]]:
    """All codes that ptxas gives each task's kernel in several runs."""
    drawn = all_drawn(tasks, run, runs=runs)
    return [tuple(sorted({code for facts in one for code in facts.codes})) for one in drawn]


def _may_be_a_draw(task: Task, found: tuple[KernelFacts, bytes | None]) -> bool:
    facts, locked = found[0], task.locked
    same_tool = (facts.ptxas, facts.options) == (locked.ptxas, locked.options)
    return same_tool and not facts.failure and not set(facts.codes) & set(locked.codes)


def _assembled(tasks: Sequence[Task], run: Run, draw: int) -> list[tuple[KernelFacts, bytes | None]]:
    """One run of ptxas for each task: the facts, without instructions, and the cubin."""
    jobs = [task.job(draw) for task in tasks]
    outcomes: Mapping[str, Outcome] = {job.key: outcome for job, outcome in run(jobs)}
    return [_facts(task, outcomes[job.key]) for task, job in zip(tasks, jobs, strict=True)]


def _facts(task: Task, outcome: Outcome) -> tuple[KernelFacts, bytes | None]:
    now = replace(task.locked, ptxas=task.ptxas.version, options=task.options, codes=())
    if outcome.image is None:
        reason = f"ptxas {task.ptxas.version}: {outcome.kind.value}"
        return replace(now, figures={}, failure=f"{reason}: {outcome.message}" if outcome.message else reason), None
    return with_image(now, outcome.image, task.locked.entry, task.ptx), outcome.cubin


def _counted(
    tasks: Sequence[Task], found: Sequence[tuple[KernelFacts, bytes | None]], disassemble: Disassemble
) -> list[KernelFacts]:
    """The facts with the instructions counted: of the lock where the code is the same, else of the cubin."""
    counted = [facts for facts, _ in found]
    images: dict[int, tuple[Cubin, str]] = {}
    for n, (task, (facts, cubin)) in enumerate(zip(tasks, found, strict=True)):
        locked = task.locked
        if set(facts.codes) & set(locked.codes):
            known = {name: locked.figures.get(name) for name in ("instructions", "loop_instructions")}
            counted[n] = replace(facts, figures={**facts.figures, **known}, classes=locked.classes)
        elif cubin is not None:
            images[n] = Cubin.from_bytes(cubin, task.locked.entry), task.locked.entry
    for (n, (image, kernel)), sass in zip(images.items(), disassemble(list(images.values())), strict=True):
        counted[n] = with_code(counted[n], image, kernel, sass)
    return counted
