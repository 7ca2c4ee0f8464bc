"""Result of `show FILE`: the kernels of a file with GPU code."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from msgspec import UNSET, UnsetType

from tritonhook._util.schema import Count, Fields, like
from tritonhook.cubin.image import Cubin
from tritonhook.cubin.sass import CLASSES, INSTRUCTION_BYTES, Loop, Sass, class_counts
from tritonhook.report.result import Result, Summary, Table, Tone, count, kernel_names, mangled_note, number
from tritonhook.report.results.capture import CodeFields, ResourceFields

_OPCODES = 4  # how many opcodes of a loop are listed
_MOST_LOOPS = 12
_COLUMNS = ("kernel", "target", "ptxas", "regs", "spills", "stack", "shared", "instrs", "barriers", "threads")
_SHORT = {"global memory": "global", "shared memory": "shared", "floating point": "float", "synchronisation": "sync"}


@dataclass(frozen=True, slots=True)
class GpuFile:
    """A file with GPU code. what: "cubin", "PTX", "fat binary" or "shared library".

    ptxas: the version that made the images, if they do not name it. code: for each image, the instructions by kernel;
    empty if they were not read (then `notes` give the reason).
    """

    path: str
    what: str
    cubins: Sequence[Cubin]
    code: Sequence[Mapping[str, Sass]]
    ptxas: str | None = None
    notes: Sequence[str] = ()


class LoopMix(Fields):
    """A loop. offset: in bytes. instructions: how many. opcodes: the most frequent ones."""

    offset: Count
    instructions: Count
    innermost: bool
    opcodes: dict[str, Count]

    @classmethod
    def of(cls, sass: Sass, loop: Loop) -> LoopMix:
        offset = sass.instructions[sass.blocks[loop.header].first].offset
        frequent = sass.opcode_counts(loop.instructions).most_common(_OPCODES)
        return cls(offset, len(loop.instructions), loop.innermost, dict(frequent))

    @property
    def row(self) -> tuple[str, ...]:
        frequent = ", ".join(f"{opcode} {n:,}" for opcode, n in self.opcodes.items())
        return f"{self.offset:#x}", number(self.instructions), number(self.innermost), frequent


class FileKernel(Fields):
    """A kernel of a file.

    ptxas: its version; null: not known. threads: the kernel's limit per block. needs: symbols that are defined
    elsewhere. mix: instructions by class; null if the code was not read. loops: null if the code was not read. code:
    its machine code.
    """

    kernel: str
    arch: str
    ptxas: str | None
    resources: ResourceFields
    barriers: Count | None
    threads: Count | tuple[Count, ...] | None
    needs: tuple[str, ...]
    mix: dict[str, Count] | None
    loops: tuple[LoopMix, ...] | None
    code: CodeFields | UnsetType = UNSET

    @classmethod
    def of(cls, cubin: Cubin, kernel: str, ptxas: str | None, sass: Sass | None, full: bool) -> FileKernel:
        resources, code = cubin.resources[kernel], cubin.text(kernel)
        return cls(
            kernel=kernel,
            arch=f"sm_{cubin.arch}",
            ptxas=cubin.ptxas_version or ptxas,
            resources=like(
                resources,
                ResourceFields,
                dynamic_shared=None,  # depends on the launch
                threads=UNSET,
                instructions=len(code) // INSTRUCTION_BYTES,
                code_bytes=len(code),
            ),
            barriers=resources.barriers,
            threads=resources.threads,
            needs=tuple(resources.externs),
            mix=None if sass is None else class_counts(sass.opcode_counts()),
            loops=None if sass is None else tuple(LoopMix.of(sass, loop) for loop in sass.loops),
            code=CodeFields.of(cubin, sass) if full and sass is not None else UNSET,
        )

    @property
    def figures(self) -> tuple[str, ...]:
        r, threads = self.resources, "not fixed" if self.threads is None else number(self.threads)
        figures = number(r.registers), r.spills, number(r.stack), r.shared_memory, number(r.instructions)
        return self.arch, number(self.ptxas), *figures, number(self.barriers), threads


class File(Result, tag="file"):
    """A cubin, PTX, fat binary or shared library. what: its type. notes: what could not be read."""

    verbs: ClassVar = "show FILE"

    path: str
    what: str
    kernels: tuple[FileKernel, ...]
    notes: tuple[str, ...]

    @classmethod
    def of(cls, file: GpuFile, full: bool = False) -> File:
        """Build from a file. full: add the code of its kernels."""
        kernels = (
            FileKernel.of(cubin, kernel, file.ptxas, code.get(kernel), full)
            for cubin, code in zip(file.cubins, file.code, strict=True)
            for kernel in cubin.kernels
        )
        return cls(file.path, file.what, tuple(kernels), tuple(file.notes))

    def summary(self) -> Summary:
        """Summarise the kernels, their instructions by class, and their largest loops."""
        kernels = count(len(self.kernels), "kernel")
        what = f"{kernels} in a {self.what}" if self.kernels else f"a {self.what}, no kernel"
        tone = Tone.NEUTRAL if self.kernels else Tone.UNSURE
        notes = (*self.notes, *mangled_note(kernel.kernel for kernel in self.kernels))
        return Summary("File", self.path, what, tone, tuple(self._facts()), tuple(self._tables()), notes)

    def names(self) -> dict[str, str]:
        """Map the kernels' names to their C++ form."""
        return kernel_names(kernel.kernel for kernel in self.kernels)

    def _facts(self) -> Iterator[str]:
        targets = Counter(kernel.arch for kernel in self.kernels)
        if len(targets) > 1:
            yield ", ".join(f"{count(n, 'kernel')} for {arch}" for arch, n in targets.items())
        if needs := dict.fromkeys(name for kernel in self.kernels for name in kernel.needs):
            yield f"needs {', '.join(needs)}, which the driver or a linker provides"

    def _tables(self) -> Iterator[Table]:
        names = self.names()
        if self.kernels:
            title = "Kernels (stack, spill stores/loads, shared: bytes)"
            rows = tuple((names[kernel.kernel], *kernel.figures) for kernel in self.kernels)
            yield Table(title, _COLUMNS, rows, 3, one_line=True)
        mixes = [(names[k.kernel], k.arch, k.mix) for k in self.kernels if k.mix is not None]
        if mixes:
            columns = ("kernel", "target", *(_SHORT.get(name, name) for name in CLASSES))
            rows = tuple((name, arch, *(number(mix[of]) for of in CLASSES)) for name, arch, mix in mixes)
            yield Table("Instructions by class", columns, rows, 2, one_line=True)
        loops = [(names[kernel.kernel], loop) for kernel in self.kernels for loop in kernel.loops or ()]
        if loops:
            yield _loops(loops)


def _loops(loops: Sequence[tuple[str, LoopMix]]) -> Table:
    largest = sorted(loops, key=lambda pair: -pair[1].instructions)[:_MOST_LOOPS]
    title = f"Loops of 8 instructions or more ({len(loops):,})"
    title += f", the {_MOST_LOOPS} largest" if len(loops) > len(largest) else ""
    columns = ("kernel", "offset", "instrs", "innermost", "most frequent")
    return Table(title, columns, tuple((name, *loop.row) for name, loop in largest), 2, words=(3, 4), one_line=True)
