"""Assemble kernels again, with the same ptxas or another one. Locked kernels are assembled to check them. Captured
kernels are assembled to lock all codes that ptxas makes for them.

ptxas is not deterministic for some kernels: the code can depend on the addresses of its memory. If a kernel's code is
not in the lock, the kernel is assembled again with other addresses until a locked code appears, at most `STEADY_RUNS`
times.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from tritonhook.capture.model import Capture, Stage
from tritonhook.cubin.image import Cubin
from tritonhook.cubin.sass import Sass
from tritonhook.errors import ToolError
from tritonhook.ptx.module import Ptx, lowered_for
from tritonhook.ptxas.pool import Job, Run, usable_processors
from tritonhook.ptxas.result_cache import Outcome
from tritonhook.ptxas.tool import Tool, find_ptxas
from tritonhook.ptxas.toolchain import STEADY_RUNS, assemble, reading_toolchain
from tritonhook.snapshot.facts import Disassemble, KernelFacts, with_code, with_image


def disassembler() -> Disassemble:
    """Return a function that disassembles kernels. Raises ToolError if there is no nvdisasm."""
    toolchain = reading_toolchain()

    def disassemble(kernels: Sequence[tuple[Cubin, str]]) -> Sequence[Sass]:
        return toolchain.disassemble_many(kernels, usable_processors())

    return disassemble


_TIMED_RUNS = 3
_OF_IMAGE = ("codes", "figures", "classes", "loaded")  # fields that with_image sets
_Input = tuple[str, Tool, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Task:
    """A locked kernel to assemble: its PTX, the ptxas and the options. If the PTX's `.version` is too new for this
    ptxas, it is lowered to the newest `.version` that this ptxas reads."""

    locked: KernelFacts
    ptx: str
    ptxas: Tool
    options: tuple[str, ...]

    @property
    def input(self) -> _Input:
        """The input of ptxas: PTX, ptxas, options. Tasks with equal inputs share one run."""
        return self.ptx, self.ptxas, self.options

    def job(self, draw: int) -> Job:
        # With -v, ptxas prints the spills. The option does not change the code.
        options = self.options if "-v" in self.options else (*self.options, "-v")
        return Job(lowered_for(Ptx(self.ptx), self.ptxas.version).text, self.ptxas, options, keep_cubin=True, draw=draw)


def task_of(capture: Capture, facts: KernelFacts) -> Task | None:
    """Make the task to assemble a captured kernel again; None if its PTX, its options or its ptxas is missing."""
    text = capture.text(Stage.PTX)
    if text is None or facts.ptxas is None or facts.options is None:
        return None
    try:
        return Task(facts, text, find_ptxas(facts.ptxas), facts.options)
    except ToolError:
        return None


def recheck(tasks: Sequence[Task], run: Run, disassemble: Disassemble) -> list[KernelFacts]:
    """Assemble each task's kernel and return its facts. Only code that is not in the lock is disassembled."""
    results = _assembled(tasks, run, draw=0)
    # (input, entry) -> locked code -> numbers of the tasks whose lock has this code.
    moved: dict[tuple[_Input, str], dict[str, list[int]]] = {}
    for n, task in enumerate(tasks):
        if _may_be_a_draw(task, results[n]):
            drawn = task.input, task.locked.entry
            for code in task.locked.codes:
                moved.setdefault(drawn, {}).setdefault(code, []).append(n)
    one_of = {drawn: tasks[next(iter(waiting.values()))[0]] for drawn, waiting in moved.items()}
    for draw in range(1, STEADY_RUNS + 1):
        outcomes = _outcomes(list(one_of.values()), run, draw)
        for drawn, task in one_of.items():
            for code in _facts(task, outcomes[task.input])[0].codes:
                for n in moved[drawn].pop(code, ()):
                    if _may_be_a_draw(tasks[n], results[n]):  # False if an earlier run gave another locked code
                        results[n] = _facts(tasks[n], outcomes[task.input])
        one_of = {drawn: task for drawn, task in one_of.items() if moved[drawn]}
    return _counted(tasks, results, disassemble)


def all_drawn(
    tasks: Sequence[Task], run: Run, disassemble: Disassemble | None = None, runs: int = STEADY_RUNS + 1
) -> list[tuple[KernelFacts, ...]]:
    """Assemble each task's kernel `runs` times; return its facts once for each different code. disassemble: used to
    count instructions; None: they are not counted."""
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
    """Return the hashes of all codes that ptxas makes for each task's kernel in `runs` runs."""
    drawn = all_drawn(tasks, run, runs=runs)
    return [tuple(sorted({code for facts in draws for code in facts.codes})) for draws in drawn]


def timed(task: Task) -> tuple[int, int] | None:
    """Run the lock's ptxas and the task's ptxas alternately, three times each. Return the shortest time of each, in
    microseconds; None if the lock's ptxas is not installed."""
    try:
        tools = find_ptxas(task.locked.ptxas), task.ptxas
    except ToolError:
        return None
    options = task.locked.options or task.options, task.options
    us: tuple[list[int], list[int]] = [], []
    for _ in range(_TIMED_RUNS):
        for tool, arguments, times in zip(tools, options, us, strict=True):
            ptx = lowered_for(Ptx(task.ptx), tool.version)
            began = time.perf_counter_ns()
            assemble(tool, ptx, arguments)
            times.append((time.perf_counter_ns() - began) // 1000)
    return min(us[0]), min(us[1])


def _may_be_a_draw(task: Task, result: tuple[KernelFacts, bytes | None]) -> bool:
    facts, locked = result[0], task.locked
    same_tool = (facts.ptxas, facts.options) == (locked.ptxas, locked.options)
    return same_tool and not facts.failure and not set(facts.codes) & set(locked.codes)


def _assembled(tasks: Sequence[Task], run: Run, draw: int) -> list[tuple[KernelFacts, bytes | None]]:
    """Run ptxas once for each different input. Return each task's facts, without instruction counts, and its cubin."""
    outcomes = _outcomes(tasks, run, draw)
    known: dict[tuple[_Input, str, int], KernelFacts] = {}  # a cache: equal images are read once
    return [_facts(task, outcomes[task.input], known) for task in tasks]


def _outcomes(tasks: Sequence[Task], run: Run, draw: int) -> Mapping[_Input, Outcome]:
    jobs = {given: task.job(draw) for given, task in {task.input: task for task in tasks}.items()}
    outcomes: Mapping[str, Outcome] = {job.key: outcome for job, outcome in run(jobs.values())}
    return {given: outcomes[job.key] for given, job in jobs.items()}


def _facts(
    task: Task, outcome: Outcome, known: dict[tuple[_Input, str, int], KernelFacts] | None = None
) -> tuple[KernelFacts, bytes | None]:
    """Return a task's facts and cubin for one outcome of ptxas. known: cache of facts, by input of ptxas, entry and
    dynamic shared memory, which determine code and figures."""
    key = task.input, task.locked.entry, task.locked.dynamic_shared
    if known and (like := known.get(key)) is not None:
        of_image = {name: getattr(like, name) for name in _OF_IMAGE}
        return replace(task.locked, ptxas=like.ptxas, options=like.options, **of_image), outcome.cubin
    now = replace(task.locked, ptxas=task.ptxas.version, options=task.options, codes=())
    if outcome.image is None:
        reason = f"ptxas {task.ptxas.version}: {outcome.kind.value}"
        return replace(now, figures={}, failure=f"{reason}: {outcome.message}" if outcome.message else reason), None
    made = with_image(now, outcome.image, outcome.cubin, task.locked.entry, task.ptx)
    if known is not None:
        known[key] = made
    return made, outcome.cubin


def _counted(
    tasks: Sequence[Task], results: Sequence[tuple[KernelFacts, bytes | None]], disassemble: Disassemble
) -> list[KernelFacts]:
    """Add the instruction counts: from the lock if the code is in it, else from the disassembled cubin."""
    counted = [facts for facts, _ in results]
    moved: dict[tuple[bytes, str], list[int]] = {}  # (cubin, entry) -> numbers of its results: each cubin is read once
    for n, (task, (facts, cubin)) in enumerate(zip(tasks, results, strict=True)):
        locked = task.locked
        if set(facts.codes) & set(locked.codes):
            known = {name: locked.figures.get(name) for name in ("instructions", "loop_instructions")}
            counted[n] = replace(facts, figures={**facts.figures, **known}, classes=locked.classes)
        elif cubin is not None:
            moved.setdefault((cubin, locked.entry), []).append(n)
    images = [(Cubin.from_bytes(cubin, kernel), kernel) for cubin, kernel in moved]
    for numbers, (image, kernel), sass in zip(moved.values(), images, disassemble(images), strict=True):
        for n, each in zip(numbers, with_code([counted[n] for n in numbers], image, kernel, sass), strict=True):
            counted[n] = each
    return counted
