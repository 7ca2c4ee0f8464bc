"""Captured kernels with their facts: figures and stages from their files, each of which is read once, instructions from
nvdisasm, spills that no file tells from one more run of ptxas. Which kernels of a folder count."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import chain, islice

from tritonhook.capture.model import Capture, Stage, dry_run_note
from tritonhook.capture.store import CaptureFolder
from tritonhook.capture.store.schema import REPAIR
from tritonhook.cubin.image import Cubin
from tritonhook.cubin.sass import Sass
from tritonhook.errors import CaptureError, CubinError, PtxError
from tritonhook.lab.sweep import sweep, usable_processors
from tritonhook.ptx.module import Ptx
from tritonhook.ptxas.toolchain import BATCH, reading_toolchain
from tritonhook.snapshot.facts import (
    Disassemble,
    KernelFacts,
    numbered,
    stage_hashes,
    with_code,
    without_stages,
)
from tritonhook.snapshot.recheck import all_drawn, task_of

Kernels = list[tuple[Capture, KernelFacts]]
_SPILLS = ("spill_stores", "spill_loads")


def disassembler() -> Disassemble:
    """Raises ToolError if there is no nvdisasm."""
    toolchain = reading_toolchain()

    def disassemble(kernels: Sequence[tuple[Cubin, str]]) -> Sequence[Sass]:
        return toolchain.disassemble_many(kernels, usable_processors())

    return disassemble


@dataclass(frozen=True, slots=True)
class ReadFolder:
    """The kernels of a capture folder that count, each with its facts, in the order of identity: without those that
    lost an autotuning. notes: of the processes that wrote it."""

    kernels: Kernels
    notes: tuple[str, ...]


def read_folders(*folders: CaptureFolder) -> list[ReadFolder]:
    """Read capture folders at the same time. Raises CaptureError, CubinError or ToolError."""
    captures = list(map(_counting, folders))
    together = list(chain.from_iterable(own.items() for own in captures))
    read = facts_of([capture for _, capture in together], [place for place, _ in together])
    facts = map(_timed, read, (times for folder in folders for times in map(folder.compile_us, folder.running)))
    kernels = [numbered(list(zip(own.values(), islice(facts, len(own)), strict=True))) for own in captures]
    notes = [(*dry_run_note(own.values()), *folder.notes) for own, folder in zip(captures, folders, strict=True)]
    return [ReadFolder(own, noted) for own, noted in zip(kernels, notes, strict=True)]


def _timed(facts: KernelFacts, compile_us: Mapping[str, int]) -> KernelFacts:
    return replace(facts, compile_us=sum(compile_us.values())) if compile_us else facts


def _counting(folder: CaptureFolder) -> dict[str, Capture]:
    """By the place of each, for messages."""
    return {f"{folder.path}/kernels/{record}": folder.capture(record) for record in folder.running}


def facts_of(captures: Sequence[Capture], places: Sequence[str] | None = None) -> list[KernelFacts]:
    """Read the facts of captures. places: where each is, for messages. Raises CaptureError or CubinError where one is
    damaged; ToolError without nvdisasm."""
    disassemble = disassembler()
    kernels: list[KernelFacts] = []
    disassembled = []
    with ThreadPoolExecutor(usable_processors()) as background:
        for start in range(0, len(captures), BATCH):
            images: dict[int, tuple[Cubin, str]] = {}
            for n, capture in enumerate(captures[start : start + BATCH], start):
                image, facts = _read(capture, capture.kernel if places is None else places[n])
                kernels.append(facts)
                if image is not None:
                    images[n] = image, capture.kernel
            disassembled.append((images, background.submit(disassemble, list(images.values()))))
        kernels = _with_spills(captures, kernels)
        for images, future in disassembled:
            for (n, (cubin, kernel)), sass in zip(images.items(), future.result(), strict=True):
                kernels[n] = with_code([kernels[n]], cubin, kernel, sass)[0]
    return kernels


def _read(capture: Capture, place: str) -> tuple[Cubin | None, KernelFacts]:
    """The image of a capture, and its facts without instructions. Each of its files is read once."""
    whole = replace(capture, artifacts=dict(capture.artifacts))
    image = _image(whole, place) if Stage.CUBIN in whole.artifacts else None
    return image, replace(without_stages(whole), stages=stage_hashes(whole))


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


def _with_spills(captures: Sequence[Capture], unsettled: Sequence[KernelFacts]) -> list[KernelFacts]:
    """The facts with the spills that neither cubin nor PTX tell: from one more run of the ptxas that made the kernel,
    where it is at hand and gives the same code."""
    unknown = [n for n, facts in enumerate(unsettled) if facts.codes and None in map(facts.figures.get, _SPILLS)]
    tasks = {n: task for n in unknown if (task := task_of(captures[n], unsettled[n])) is not None}
    kernels = list(unsettled)
    for number, (made,) in zip(tasks, all_drawn(list(tasks.values()), sweep, runs=1), strict=True):
        facts = kernels[number]
        if made.codes == facts.codes:
            spills = {name: made.figures.get(name) for name in _SPILLS}
            kernels[number] = replace(facts, figures={**facts.figures, **spills}, ran_again=True)
    return kernels
