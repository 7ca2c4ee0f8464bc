"""Facts of the kernels in built libraries: what their cubins tell without a disassembler, a ptxas or the PTX."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tritonhook.cubin.elf import read_elf
from tritonhook.cubin.image import Cubin, kernel_names
from tritonhook.cubin.loaded import Image, loaded_parts
from tritonhook.cubin.shipped import ShippedFile, shipped_files
from tritonhook.cubin.summary import summarise_image
from tritonhook.errors import CubinError, UsageError, listed
from tritonhook.ptx.kernel_names import lasting_name, source_file
from tritonhook.snapshot.facts import BUILT, Identity, KernelFacts, numbered, with_image

_RELOCATABLE = b"\1\0"  # the type of an ELF file that is still to be linked
_TARGET = re.compile(r"-arch[ =]+sm_\d+([af])\b")


@dataclass(frozen=True, slots=True)
class BuiltKernels:
    """The kernels of built files, in the order of identity. notes: what was not read, and why."""

    kernels: tuple[KernelFacts, ...]
    notes: tuple[str, ...]


def built_kernels(paths: Sequence[str]) -> BuiltKernels:
    """Read files, wheels and folders. A kernel that several images of a file have with the same code counts once.
    Raises UsageError if a path cannot be read, or there is no kernel at all."""
    built: list[KernelFacts] = []
    notes: list[str] = []
    for path in paths:
        try:
            for file in shipped_files(Path(path)):
                notes += (f"{file.name}: {note}" for note in file.notes)
                built += _in_file(file, notes)
        except OSError as error:
            raise UsageError(f"{path}: cannot be read: {error.strerror}") from None
    if not built:
        why = f": {listed(notes, '; ')}" if notes else ""
        raise UsageError(f"{' '.join(paths)}: no machine code for GPUs in it{why}")
    built.sort(key=lambda facts: sorted(facts.loaded.items()))  # of equal codes the first one stays
    kernels = [facts for _, facts in numbered([(None, facts) for facts in built])]
    same = Counter(replace(facts.identity, number=1) for facts in kernels)
    if twice := [identity.text for identity, times in same.items() if times > 1]:
        notes.append(f"several kernels of one name, which get numbers: {listed(twice)}")
    return BuiltKernels(tuple(kernels), tuple(notes))


def _in_file(file: ShippedFile, notes: list[str]) -> Iterator[KernelFacts]:
    """What the linker has not joined yet counts only where no linked image has the kernel."""
    linked: dict[tuple[Identity, str], None] = {}
    for number, (data, suffix) in sorted(enumerate(file.images, 1), key=lambda it: it[1][0][16:18] == _RELOCATABLE):
        try:
            for facts in _in_image(data, suffix, file.name):
                key = facts.identity, facts.entry
                if data[16:18] != _RELOCATABLE:
                    linked[key] = None
                elif key in linked:
                    continue
                yield facts
        except CubinError as error:
            notes.append(f"{file.name}: cubin {number}: {error}")


def _in_image(data: bytes, suffix: str, name: str) -> Iterator[KernelFacts]:
    cubin, summary, elf = Cubin.from_bytes(data), summarise_image(data, {}), read_elf(data)
    image = Image(elf, elf.symbols(), frozenset(kernel_names(elf)))
    told = _TARGET.search(cubin.ptxas_arguments or "")
    arch = f"sm_{cubin.arch}{told[1] if told else suffix}"
    for kernel, resources in cubin.resources.items():
        places = [f"file={source}"] if (source := source_file(kernel)) is not None else []
        facts = KernelFacts(
            identity=Identity(lasting_name(kernel), arch, BUILT, (*places, f"in={name}")),
            entry=kernel,
            stages={},
            ptx_sha256=None,
            ptxas=cubin.ptxas_version,
            options=None,
            codes=(),
            figures={},
            threads=resources.threads,
            launch_bounds=resources.launch_bounds,
        )
        facts, local = with_image(facts, summary, None, kernel, None), resources.local_traffic
        sizes = {"code_bytes": summary.kernel(kernel).code_bytes, "local_bytes": None if local is None else sum(local)}
        loaded = {part: code for part, code in loaded_parts(image, kernel).items() if code}
        codes = (summary.own_code_hash(kernel),)
        yield replace(facts, codes=codes, figures={**facts.figures, **sizes}, loaded=loaded)
