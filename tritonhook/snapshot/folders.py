"""Read the facts of the kernels in capture folders: figures and stages from the files, instructions from nvdisasm, and
spills from one more run of ptxas if no file has them. Losers of an autotuning are omitted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice

from tritonhook.capture.model import Capture, Stage, dry_run_note
from tritonhook.capture.store import CaptureFolder
from tritonhook.capture.store.schema import REPAIR
from tritonhook.cubin.image import Cubin
from tritonhook.errors import CaptureError, CubinError, PtxError
from tritonhook.ptx.module import Ptx
from tritonhook.ptxas.pool import sweep, usable_processors
from tritonhook.ptxas.threads import tool_threads
from tritonhook.ptxas.toolchain import BATCH
from tritonhook.snapshot.assembled import all_drawn, disassembler, task_of
from tritonhook.snapshot.facts import KernelFacts, numbered, stage_hashes, with_code, without_stages

Kernels = list[tuple[Capture, KernelFacts]]
_SPILLS = ("spill_stores", "spill_loads")


@dataclass(frozen=True, slots=True)
class ReadFolder:
    """The kernels of a capture folder with their facts, sorted by identity, without the losers of an autotuning. notes:
    notes of the processes that wrote the folder."""

    kernels: Kernels
    notes: tuple[str, ...]


def read_folders(*folders: CaptureFolder) -> list[ReadFolder]:
    """Read capture folders at the same time. Raises CaptureError, CubinError or ToolError."""
    captures = list(map(_counting, folders))
    together = list(chain.from_iterable(own.items() for own in captures))
    read = facts_of([capture for _, capture in together], [place for place, _ in together])
    facts = map(_of_runs, read, ((folder, record) for folder in folders for record in folder.running))
    kernels = [numbered(list(zip(own.values(), islice(facts, len(own)), strict=True))) for own in captures]
    notes = [(*dry_run_note(own.values()), *folder.notes) for own, folder in zip(captures, folders, strict=True)]
    return [ReadFolder(own, noted) for own, noted in zip(kernels, notes, strict=True)]


def _of_runs(facts: KernelFacts, where: tuple[CaptureFolder, str]) -> KernelFacts:
    """Add facts from the folder's index: compile time, the autotuner's configuration, commands."""
    folder, record = where
    tried = (own.by_record[record] for own in folder.configurations if record in own.by_record)
    return replace(
        facts,
        compile_us=sum(folder.compile_us(record).values()) or None,
        configuration=next(tried, None),
        commands=tuple(sorted({seen.run.name for seen in folder.seen(record) if seen.run and seen.run.name})),
        place=f"{folder.path}/kernels/{record}",
    )


def _counting(folder: CaptureFolder) -> dict[str, Capture]:
    """Map the path of each kernel, which messages name, to its capture. Losers of an autotuning are omitted."""
    return {f"{folder.path}/kernels/{record}": folder.capture(record) for record in folder.running}


def facts_of(captures: Sequence[Capture], places: Sequence[str] | None = None) -> list[KernelFacts]:
    """Read the facts of captures. places: path of each capture, for messages. Raises CaptureError or CubinError if a
    capture is damaged, and ToolError without nvdisasm."""
    disassemble = disassembler()
    kernels: list[KernelFacts] = []
    disassembled = []
    with tool_threads(usable_processors()) as background:
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
    """Read a capture's image, and its facts without instruction counts. Each file is read once."""
    whole = replace(capture, artifacts=dict(capture.artifacts))
    image = _image(whole, place) if Stage.CUBIN in whole.artifacts else None
    return image, replace(without_stages(whole), stages=stage_hashes(whole))


def _image(capture: Capture, place: str) -> Cubin:
    """Read the image of a capture. Raises CaptureError if the image or the PTX is damaged."""
    text = capture.text(Stage.PTX)
    try:
        if text is not None and capture.kernel not in Ptx(text).entries:
            raise CubinError("its PTX does not contain the kernel: it belongs to another kernel, or is truncated")
        image = Cubin.from_bytes(capture.cubin)
        image.only_kernel(capture.kernel)
    except (CubinError, PtxError) as error:
        raise CaptureError(f"{place}: damaged: {error}; {REPAIR}") from None
    return image


def _with_spills(captures: Sequence[Capture], unsettled: Sequence[KernelFacts]) -> list[KernelFacts]:
    """Add spills that neither cubin nor PTX show. They come from one more run of the kernel's ptxas, if it is installed
    and makes the same code."""
    unknown = [n for n, facts in enumerate(unsettled) if facts.codes and None in map(facts.figures.get, _SPILLS)]
    tasks = {n: task for n in unknown if (task := task_of(captures[n], unsettled[n])) is not None}
    kernels = list(unsettled)
    for number, (made,) in zip(tasks, all_drawn(list(tasks.values()), sweep, runs=1), strict=True):
        facts = kernels[number]
        if made.codes == facts.codes:
            spills = {name: made.figures.get(name) for name in _SPILLS}
            kernels[number] = replace(facts, figures={**facts.figures, **spills}, ran_again=True)
    return kernels
