"""Read the facts of captured kernels: figures and stages from their files, instructions from nvdisasm, spills that no
file tells from one more run of ptxas. All three at the same time."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import chain, islice

from tritonhook.capture.model import Capture, Stage
from tritonhook.capture.store import CaptureFolder
from tritonhook.capture.store.schema import REPAIR
from tritonhook.cubin.image import Cubin
from tritonhook.cubin.sass import Sass
from tritonhook.errors import CaptureError, CubinError, PtxError, ToolError
from tritonhook.lab.sweep import sweep, usable_processors
from tritonhook.ptx.module import Ptx
from tritonhook.ptxas.discovery import find_ptxas
from tritonhook.ptxas.toolchain import reading_toolchain
from tritonhook.snapshot.facts import (
    Disassemble,
    Identity,
    KernelFacts,
    identity_of,
    numbered,
    with_code,
    without_stages,
)
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
    """The kernels of each capture folder that run, each with its facts: without those that lost an autotuning, and
    those that are `outdated`. In the order of identity. Raises CaptureError, CubinError or ToolError."""
    captures = list(map(_counting, folders))
    together = list(chain.from_iterable(own.items() for own in captures))
    facts = iter(facts_of([capture for _, capture in together], [place for place, _ in together]))
    return [numbered(list(zip(own.values(), islice(facts, len(own)), strict=True))) for own in captures]


def outdated(folder: CaptureFolder) -> dict[str, Identity]:
    """The records that no process met after the start of the latest run of the same command that met kernels of their
    identity: it met others, as the source or the compiler has changed. Raises CaptureError where one is damaged."""
    if len({run.command for run in folder.runs}) == len(folder.runs):  # no command ran twice
        return {}
    kept = [record for record in folder.records if record not in folder.lost]
    identities = {record: identity_of(folder.capture(record)) for record in kept}
    latest: dict[tuple[Identity, str], int] = {}
    for record, identity in identities.items():
        for run in (one.run for one in folder.seen(record) if one.run is not None):
            key = identity, run.command
            latest[key] = max(run.started_ns, latest.get(key, 0))

    def is_outdated(record: str) -> bool:
        # A process of an earlier run may still be at work, as on another node: what it meets then counts.
        seen = folder.seen(record)
        runs = [(one.time_ns, one.run.command) for one in seen if one.run is not None]
        return 0 < len(seen) == len(runs) and all(at < latest[identities[record], command] for at, command in runs)

    return {record: identity for record, identity in identities.items() if is_outdated(record)}


def _counting(folder: CaptureFolder) -> dict[str, Capture]:
    """By the place of each, for messages."""
    left_out = folder.lost | outdated(folder).keys()
    kept = [record for record in folder.records if record not in left_out]
    return {f"{folder.path}/kernels/{record}": folder.capture(record) for record in kept}


def facts_of(captures: Sequence[Capture], places: Sequence[str] | None = None) -> list[KernelFacts]:
    """Read the facts of captures. places: where each is, for messages. Raises CaptureError or CubinError where one is
    damaged; ToolError without nvdisasm."""
    images = {
        n: (_image(capture, capture.kernel if places is None else places[n]), capture.kernel)
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


def _image(capture: Capture, place: str) -> Cubin:
    """The image of a capture. Raises CaptureError if it, or the PTX, is damaged."""
    text = capture.text(Stage.PTX)
    try:
        if text is not None and capture.kernel not in Ptx(text).entries:
            raise CubinError("its PTX has another kernel, or is not whole")
        image = Cubin.from_bytes(capture.cubin)
        image.only_kernel(capture.kernel)
    except (CubinError, PtxError) as error:
        raise CaptureError(f"{place}: damaged: {error}; {REPAIR}") from None
    return image


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
