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
    Identity,
    KernelFacts,
    identity_of,
    numbered,
    with_code,
    without_stages,
)
from tritonhook.snapshot.recheck import all_drawn, task_of
from tritonhook.snapshot.stages import stage_hashes

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
    lost an autotuning, and those that are `outdated`. notes: of the processes that wrote it."""

    kernels: Kernels
    outdated: Mapping[str, Identity]
    notes: tuple[str, ...]


def read_folders(*folders: CaptureFolder) -> list[ReadFolder]:
    """Read capture folders at the same time. Raises CaptureError, CubinError or ToolError."""
    left_out = list(map(outdated, folders))
    captures = [_counting(folder, old) for folder, old in zip(folders, left_out, strict=True)]
    together = list(chain.from_iterable(own.items() for own in captures))
    facts = iter(facts_of([capture for _, capture in together], [place for place, _ in together]))
    kernels = [numbered(list(zip(own.values(), islice(facts, len(own)), strict=True))) for own in captures]
    notes = [(*dry_run_note(own.values()), *folder.notes) for own, folder in zip(captures, folders, strict=True)]
    return [ReadFolder(own, old, noted) for own, old, noted in zip(kernels, left_out, notes, strict=True)]


def outdated(folder: CaptureFolder) -> dict[str, Identity]:
    """The records that no process met after the start of the latest run of the same command that met kernels of their
    identity: it met others, as the source or the compiler has changed. Raises CaptureError where one is damaged."""
    last: dict[str, int] = {}
    for run in folder.runs:
        last[run.command] = max(run.started_ns, last.get(run.command, 0))

    def may_be(record: str) -> bool:
        runs = [one.run for one in folder.seen(record)]
        return bool(runs) and all(run is not None and run.started_ns < last[run.command] for run in runs)

    asked = list(filter(may_be, folder.running))
    if not asked:  # no kernel's stages are read
        return {}
    identities = {record: identity_of(folder.capture(record)) for record in folder.running}
    latest: dict[tuple[Identity, str], int] = {}
    for record, identity in identities.items():
        for run in (one.run for one in folder.seen(record) if one.run is not None):
            key = identity, run.command
            latest[key] = max(run.started_ns, latest.get(key, 0))

    def is_outdated(record: str) -> bool:
        # A process of an earlier run may still be at work, as on another node: what it meets then counts.
        runs = [(one.time_ns, one.run.command) for one in folder.seen(record) if one.run is not None]
        return all(at < latest[identities[record], command] for at, command in runs)

    return {record: identities[record] for record in asked if is_outdated(record)}


def _counting(folder: CaptureFolder, left_out: Mapping[str, Identity]) -> dict[str, Capture]:
    """By the place of each, for messages."""
    kept = (record for record in folder.running if record not in left_out)
    return {f"{folder.path}/kernels/{record}": folder.capture(record) for record in kept}


def facts_of(captures: Sequence[Capture], places: Sequence[str] | None = None) -> list[KernelFacts]:
    """Read the facts of captures. places: where each is, for messages. Raises CaptureError or CubinError where one is
    damaged; ToolError without nvdisasm."""
    disassemble = disassembler()
    found: list[KernelFacts] = []
    disassembled = []
    with ThreadPoolExecutor(usable_processors()) as background:
        for start in range(0, len(captures), BATCH):
            images: dict[int, tuple[Cubin, str]] = {}
            for n, capture in enumerate(captures[start : start + BATCH], start):
                image, facts = _read(capture, capture.kernel if places is None else places[n])
                found.append(facts)
                if image is not None:
                    images[n] = image, capture.kernel
            disassembled.append((images, background.submit(disassemble, list(images.values()))))
        found = _with_spills(captures, found)
        for images, future in disassembled:
            for (n, (cubin, kernel)), sass in zip(images.items(), future.result(), strict=True):
                found[n] = with_code(found[n], cubin, kernel, sass)
    return found


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
