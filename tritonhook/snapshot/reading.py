"""Read the facts of captured kernels: figures and stages from their files, instructions from nvdisasm, spills that no
file tells from one more run of ptxas. All three at the same time."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import chain, islice

from tritonhook.capture.model import Capture, Stage
from tritonhook.capture.store import CaptureFolder
from tritonhook.cubin.image import Cubin
from tritonhook.cubin.sass import Sass
from tritonhook.errors import ToolError
from tritonhook.lab.sweep import sweep, usable_processors
from tritonhook.ptxas.discovery import find_ptxas
from tritonhook.ptxas.toolchain import reading_toolchain
from tritonhook.snapshot.facts import Disassemble, KernelFacts, numbered, with_code, without_stages
from tritonhook.snapshot.recheck import Task, all_drawn
from tritonhook.snapshot.stages import stage_hashes

Kernels = list[tuple[Capture, KernelFacts]]
_SPILLS = ("spill_stores", "spill_loads")


def disassembler() -> Disassemble:
    """Raises ToolError if there is no nvdisasm."""
    toolchain = reading_toolchain()

    def disassemble(kernels: Sequence[tuple[Cubin, str]]) -> Sequence[Sass]:
        return toolchain.disassemble_many(kernels, usable_processors())

    return disassemble


def read_kernels(*folders: CaptureFolder) -> list[Kernels]:
    """The kernels of each capture folder that run, each with its facts: without those that lost an autotuning. In the
    order of identity. Raises CaptureError, CubinError or ToolError."""
    captures = [[one.capture(record) for record in one.records if record not in one.lost] for one in folders]
    facts = iter(facts_of(list(chain.from_iterable(captures))))
    return [numbered(list(zip(own, islice(facts, len(own)), strict=True))) for own in captures]


def facts_of(captures: Sequence[Capture]) -> list[KernelFacts]:
    """Read the facts of captures. Raises CaptureError or CubinError where one is damaged; ToolError without
    nvdisasm."""
    images = {
        n: (Cubin.from_bytes(capture.cubin, capture.kernel), capture.kernel)
        for n, capture in enumerate(captures)
        if Stage.CUBIN in capture.artifacts
    }
    with ThreadPoolExecutor(2) as background:
        disassembled = background.submit(disassembler(), list(images.values()))
        figures = background.submit(_with_spills, captures, [without_stages(capture) for capture in captures])
        stages = [stage_hashes(capture) for capture in captures]
        found = [replace(facts, stages=own) for facts, own in zip(figures.result(), stages, strict=True)]
        for (n, (cubin, kernel)), sass in zip(images.items(), disassembled.result(), strict=True):
            found[n] = with_code(found[n], cubin, kernel, sass)
    return found


def _with_spills(captures: Sequence[Capture], found: Sequence[KernelFacts]) -> list[KernelFacts]:
    """The facts with the spills that neither cubin nor PTX tell: from one more run of the ptxas that made the kernel,
    where it is at hand and gives the same code."""
    unknown = [n for n, facts in enumerate(found) if facts.codes and None in map(facts.figures.get, _SPILLS)]
    tasks = {n: task for n in unknown if (task := task_of(captures[n], found[n])) is not None}
    kernels = list(found)
    for number, (made,) in zip(tasks, all_drawn(list(tasks.values()), sweep, runs=1), strict=True):
        facts = kernels[number]
        if made.codes == facts.codes:
            spills = {name: made.figures.get(name) for name in _SPILLS}
            kernels[number] = replace(facts, figures={**facts.figures, **spills}, ran_again=True)
    return kernels


def task_of(capture: Capture, facts: KernelFacts) -> Task | None:
    """The kernel, to be assembled again as it was; None where that cannot be."""
    text = capture.text(Stage.PTX)
    if text is None or facts.ptxas is None or facts.options is None:
        return None
    try:
        return Task(facts, text, find_ptxas(facts.ptxas), facts.options)
    except ToolError:
        return None
