"""Captured kernels as kernels of a lock, with all codes that ptxas gives them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tritonhook.capture.model import Capture, Stage
from tritonhook.cubin.image import Cubin
from tritonhook.cubin.sass import Sass
from tritonhook.errors import ToolError
from tritonhook.lab.sweep import sweep
from tritonhook.ptxas.assembler import may_draw
from tritonhook.ptxas.discovery import find_ptxas
from tritonhook.ptxas.toolchain import reading_toolchain
from tritonhook.snapshot.facts import Disassemble, Identity, KernelFacts
from tritonhook.snapshot.lockfile import Locked
from tritonhook.snapshot.recheck import Task, codes_of


def disassembler() -> Disassemble:
    """Raises ToolError if there is no nvdisasm."""
    toolchain = reading_toolchain()

    def disassemble(cubin: Cubin, kernel: str) -> Sass:
        return toolchain.disassemble(cubin, [kernel])[kernel]

    return disassemble


def lockable(
    found: Sequence[tuple[Capture, KernelFacts]], known: Sequence[KernelFacts] = ()
) -> list[tuple[Locked, str | None]]:
    """Captured kernels with their PTX, ready for a lock.

    known: kernels with their codes. Of a kernel that has one of these, no further codes are looked for.
    """
    texts = [capture.text(Stage.PTX) for capture, _ in found]
    facts = _with_all_codes(found, texts, {one.identity: frozenset(one.codes) for one in known})
    return [(Locked(one, capture.kernel), text) for (capture, _), one, text in zip(found, facts, texts, strict=True)]


def _with_all_codes(
    found: Sequence[tuple[Capture, KernelFacts]], texts: list[str | None], known: Mapping[Identity, frozenset[str]]
) -> list[KernelFacts]:
    """The facts, with further codes of kernels for which ptxas is not deterministic, if that ptxas is at hand."""
    tasks: dict[int, Task] = {}
    for number, ((capture, facts), text) in enumerate(zip(found, texts, strict=True)):
        if text is None or facts.ptxas is None or facts.options is None or not may_draw(facts.identity.arch):
            continue
        if known.get(facts.identity, frozenset()) & set(facts.codes):
            continue
        try:
            tool = find_ptxas(facts.ptxas)
        except ToolError:
            continue
        tasks[number] = Task(Locked(facts, capture.kernel), text, tool, facts.options)
    drawn = dict(zip(tasks, codes_of(list(tasks.values()), sweep), strict=True))
    return [
        replace(facts, codes=tuple(sorted({*facts.codes, *drawn.get(number, ())})))
        for number, (_, facts) in enumerate(found)
    ]
