"""Result of `show CAPTURE`, and the fields of captured kernels, their code and their source lines in all results.

A result that was saved with its code (CodeFields) can be shown in full without the cubin and without nvdisasm.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, NamedTuple

from msgspec import UNSET, UnsetType
from msgspec.structs import asdict, replace

from tritonhook._util.demangle import function_name
from tritonhook._util.schema import Count, Fields, like
from tritonhook.capture.figures import resources_of
from tritonhook.capture.model import META_LEVER, META_REWRITES, Capture, Stage, dry_run_note, front_end_name
from tritonhook.capture.selection import settings_of
from tritonhook.capture.store import by_module
from tritonhook.capture.store.schema import KernelRecord, Ptxas
from tritonhook.cubin.image import Cubin
from tritonhook.cubin.line_info import Lines, read_lines
from tritonhook.cubin.resources import WARP, Occupancy, dynamic_shared, occupancy
from tritonhook.cubin.sass import INSTRUCTION_BYTES, Instruction, Sass
from tritonhook.cubin.summary import KernelSummary
from tritonhook.errors import CaptureError, CubinError, PtxError, ToolError, TritonHookError
from tritonhook.ptx.miscompiles import warnings_of
from tritonhook.ptx.throughput_pragma import Trigger, triggers_of
from tritonhook.ptxas.command_line import level_of
from tritonhook.report.result import (
    UNKNOWN,
    Result,
    Summary,
    Table,
    Tone,
    flat,
    mangled_note,
    number,
    short,
    size,
    spills,
    trigger,
)


class Row(NamedTuple):
    """One instruction. source: index into `files`, and line number. ptx: line number in the PTX."""

    predicate: str
    opcode: str
    operands: str
    control: Count
    source: tuple[Count, Count] | None
    ptx: Count | None

    @property
    def text(self) -> str:
        return f"{self.predicate} {self.opcode} {self.operands.replace(',', ', ')}".strip()


class CodeFields(Fields):
    """A kernel's code.

    indirect_targets: byte offsets that indirect branches can reach. files: source files. ptx: its text; null: not
    available. instructions: lists of predicate, opcode, operands, control field, [index into `files`, line] or null,
    line of the PTX or null; instruction *i* is at byte 16 *i*. live: for each instruction, how many general registers
    are live. counted: for each instruction in one launch, how often warps executed it, its sectors of global memory,
    and its wavefronts of shared memory; null: not known. sources: for each file, the texts of the lines around the
    kernel's code, by line number, as they were compiled; null: not known.
    """

    kernel: str
    indirect_targets: tuple[Count, ...]
    files: tuple[str, ...]
    ptx: str | None
    instructions: tuple[Row, ...]
    live: tuple[Count, ...] | UnsetType = UNSET
    counted: tuple[tuple[Count | None, ...], ...] | UnsetType = UNSET
    sources: tuple[dict[int, str] | None, ...] | UnsetType = UNSET

    def __post_init__(self) -> None:
        if any(row.source is not None and row.source[0] >= len(self.files) for row in self.instructions):
            raise ValueError("a source line names a file that is not listed")
        if self.live and len(self.live) != len(self.instructions):
            raise ValueError("the numbers of instructions and of their live registers differ")

    @classmethod
    def of(cls, cubin: Cubin, sass: Sass, ptx: str | None = None, capture: Capture | None = None) -> CodeFields:
        """Build from a kernel's instructions. ptx: the text to include; None if not available. capture: provides the
        texts of the sources, and the PTX to which the line numbers refer."""
        known = ptx if ptx is not None or capture is None else capture.text(Stage.PTX)
        lines = read_lines(cubin, sass.kernel, known)
        rows = (
            Row(instruction.predicate, instruction.opcode, instruction.operands, instruction.control, source, line)
            for instruction, source, line in zip(sass.instructions, lines.source, lines.ptx, strict=True)
        )
        code = cls(sass.kernel, sass.indirect_targets, lines.files, ptx, tuple(rows))
        return code if capture is None else replace(code, sources=tuple(_texts(lines, capture.sources)))

    def line(self, source: tuple[int, int]) -> str | None:
        """Return the text of a source line; None if unknown. source: index into `files`, and line number."""
        texts = self.sources[source[0]] if self.sources else None
        return None if texts is None else texts.get(source[1])

    def sass(self) -> Sass:
        """Rebuild the instructions with their blocks and loops."""
        rows = enumerate(self.instructions)
        listed = (Instruction(i * INSTRUCTION_BYTES, r.predicate, r.opcode, r.operands, r.control) for i, r in rows)
        return Sass(self.kernel, tuple(listed), self.indirect_targets)


# --- the instructions of each source line ---------------------------------------------------------


COUNTS = ("executed", "sectors", "wavefronts")
_CONTEXT = 3  # source lines shown before and after a line with code
_STORE, _LOAD = "STL", "LDL"  # opcodes that access local memory
_WIDTHS = {"U8": 1, "S8": 1, "U16": 2, "S16": 2, "64": 8, "128": 16}  # bytes, by opcode suffix; 4 for other opcodes


@dataclass(slots=True)
class _Line:
    """The instructions of one source line. live: the most registers live in any of them. stored, loaded: bytes of local
    memory. counted: the figures that COUNTS names; None: not known."""

    instructions: int = 0
    live: int = 0
    stored: int = 0
    loaded: int = 0
    counted: tuple[int | None, ...] = (0,) * len(COUNTS)

    def add(self, instruction: Instruction, live: int, counted: Sequence[int | None]) -> None:
        pairs = zip(self.counted, counted, strict=True)
        self.counted = tuple(None if a is None or b is None else a + b for a, b in pairs)
        self.instructions += 1
        self.live = max(self.live, live)
        if instruction.base_opcode in (_STORE, _LOAD):
            width = next((size for part, size in _WIDTHS.items() if part in instruction.opcode.split(".")), 4)
            self.stored += width * (instruction.base_opcode == _STORE)
            self.loaded += width * (instruction.base_opcode == _LOAD)


def source_summary(code: CodeFields) -> Summary:
    """Summarise for each source line its instructions, live registers, and bytes of local memory stored and loaded.
    These bytes are spills if the kernel has no local variables."""
    files: dict[int, dict[int, _Line]] = {}
    live = code.live or [0] * len(code.instructions)
    counts = code.counted or ((0,) * len(COUNTS),) * len(live)
    for row, instruction, registers, own in zip(code.instructions, code.sass().instructions, live, counts, strict=True):
        if row.source is not None:
            file, line = row.source
            files.setdefault(file, {}).setdefault(line, _Line()).add(instruction, registers, own)
    texts = code.sources or (None,) * len(code.files)
    columns = ("instrs", *(("live",) if code.live else ()), "stored", "loaded", *(COUNTS if code.counted else ()))
    tables = [_of_file(code.files[file], lines, columns, texts[file]) for file, lines in files.items()]
    known = sum(line.instructions for lines in files.values() for line in lines.values())
    verdict = f"{number(known)} of {number(len(code.instructions))} instructions have a source line"
    notes = [] if tables else ["the machine code has no line info"]
    if unknown := [Path(code.files[file]).name for file in files if texts[file] is None]:
        notes.append(
            f"source not shown: {', '.join(unknown)}: the capture has no copy, and the file has changed or is missing"
        )
    if tables and not code.live:
        notes.append(
            "live registers are not known: no installed nvdisasm can analyse this cubin; Triton includes one that can"
        )
    return Summary("Source", code.kernel, verdict, Tone.NEUTRAL, (), tuple(tables), tuple(notes))


def _texts(lines: Lines, sources: Mapping[str, str]) -> Iterator[dict[int, str] | None]:
    """Yield for each file the texts of lines with code and of their neighbours, by line number; None if the text of the
    file is not known."""
    for file, path in enumerate(lines.files):
        text = sources.get(path)
        all_lines = (text or "").splitlines()
        near = {at[1] + n for at in lines.source if at and at[0] == file for n in range(-_CONTEXT, _CONTEXT + 1)}
        yield None if text is None else {n: all_lines[n - 1] for n in sorted(near) if 0 < n <= len(all_lines)}


def _of_file(path: str, became: Mapping[int, _Line], columns: Sequence[str], texts: Mapping[int, str] | None) -> Table:
    """Make the table of one source file. columns: which figures of a line it shows."""
    texts = texts or {}
    rows = []
    for line in range(min(became), max(became) + 1):
        own = became.get(line)
        text = texts.get(line, "").expandtabs(4)
        near = any(at in became for at in range(line - _CONTEXT, line + _CONTEXT + 1))
        if own is not None:
            names = ("instrs", "live", "stored", "loaded", *COUNTS)
            values = (own.instructions, own.live, own.stored, own.loaded, *own.counted)
            figures = dict(zip(names, values, strict=True))
            rows.append((str(line), *("" if figures[name] == 0 else number(figures[name]) for name in columns), text))
        elif near and text.strip():
            rows.append((str(line), *("" for _ in columns), text))
    title = f"{path} ({'live: registers at the peak; ' if 'live' in columns else ''}local memory stored, loaded: bytes)"
    last = len(columns) + 1
    return Table(title, ("line", *columns, "source"), tuple(rows), 1, words=(last,), one_line=True)


# --- a captured kernel ----------------------------------------------------------------------------


class ResourceFields(Fields):
    """Resources of a kernel; null: not known.

    registers: per thread. stack: bytes per thread. spill_stores, spill_loads: bytes, as `ptxas -v` prints them.
    local_stores, local_loads: bytes of all instructions that access local memory, spills included. shared: static bytes
    per block. dynamic_shared: bytes that a launch adds. instructions, code_bytes: with the padding at the end. threads:
    per block. arch: the architecture for which occupancy is computed.
    """

    registers: Count | None
    stack: Count | None
    spill_stores: Count | None
    spill_loads: Count | None
    local_stores: Count | None
    local_loads: Count | None
    shared: Count | None
    dynamic_shared: Count | None
    instructions: Count | None
    code_bytes: Count
    threads: Count | UnsetType = UNSET
    arch: str | UnsetType = UNSET

    @property
    def spills(self) -> str:
        return spills(self.spill_stores, self.spill_loads)

    @property
    def shared_memory(self) -> str:
        """Bytes of shared memory; "1,024+" if a launch may add an unknown number."""
        if self.shared is None:
            return UNKNOWN
        if self.dynamic_shared is None:
            return f"{number(self.shared)}+"
        return number(self.shared + self.dynamic_shared)

    @property
    def occupancy(self) -> Occupancy | None:
        """How many blocks and warps an SM holds at a time; None if unknown."""
        if self.shared is None or self.dynamic_shared is None:
            return None
        shared = self.shared + self.dynamic_shared
        return occupancy(self.arch or "", self.registers, self.threads or None, shared, self.dynamic_shared)

    @property
    def rows(self) -> Iterator[tuple[str, str]]:
        """Rows (label, text) for a table of the resources."""
        yield "registers", number(self.registers)
        yield "stack", number(self.stack, "bytes")
        yield "spill stores", number(self.spill_stores, "bytes")
        yield "spill loads", number(self.spill_loads, "bytes")
        if self.spill_stores is None and self.local_stores is not None:
            stores, loads = number(self.local_stores), number(self.local_loads)
            yield "local memory", f"{stores} bytes stored, {loads} loaded: spills, or variables of the kernel"
        yield "shared memory", f"{self.shared_memory} bytes"
        if held := self.occupancy:
            yield "occupancy", f"{held.text}, on {self.arch}"
        yield "instructions", f"{number(self.instructions)} ({size(self.code_bytes)})"


class KernelFields(KernelRecord, kw_only=True):
    """A captured kernel in documents. stages: names of the stages that the capture has. trigger: what makes ptxas use
    its other scheduler. resources: null without a cubin."""

    stages: tuple[str, ...]
    trigger: Trigger
    resources: ResourceFields | None

    @property
    def front_end(self) -> str:
        """Name of the compiler: Triton, or another compiler that called ptxas."""
        return front_end_name(str(self.metadata.get("front_end") or "Triton"))

    @property
    def kept(self) -> str:
        """Names of the captured stages, from source to machine code."""
        return "binary only" if self.stages == (Stage.CUBIN.value,) else " ".join(self.stages)


@dataclass
class KernelsRead:
    """Captured kernels, with the fields that result documents contain. kernels: these fields by record, or the error if
    the PTX cannot be read from disk.

    unread: records whose cubin cannot be read, by error message. modules: for each kernel the PTX, the version of
    ptxas, and the optimisation level.
    """

    kernels: dict[str, KernelFields | CaptureError] = field(default_factory=dict)
    unread: dict[str, list[str]] = field(default_factory=dict)
    modules: list[tuple[str | None, str | None, str]] = field(default_factory=list)

    @classmethod
    def of(cls, captures: Mapping[str, Capture]) -> KernelsRead:
        read = cls()
        for module in by_module(captures):
            read.add(module)
        return cls({record: read.kernels[record] for record in captures}, read.unread, read.modules)

    def add(self, module: Mapping[str, Capture]) -> None:
        """Read the kernels of one module, which share their files."""
        first = next(iter(module.values()))
        version = first.assembler.version
        try:
            ptx = first.text(Stage.PTX)
        except CaptureError as error:
            self.kernels |= dict.fromkeys(module, error)
            return
        self.modules += [(ptx, version, level_of(first.assembler.options))] * len(module)
        triggers = triggers_of([capture.kernel for capture in module.values()], ptx, version)
        resources = resources_of(module, ptx)
        for record, capture in module.items():
            own = resources[record]
            if isinstance(own, TritonHookError):
                self.unread.setdefault(str(own), []).append(record)
            known = None
            if isinstance(own, KernelSummary):
                of_launch = {
                    "dynamic_shared": dynamic_shared(capture.metadata.get("shared"), ptx),
                    "threads": _threads(capture),
                }
                count = own.code_bytes // INSTRUCTION_BYTES
                known = like(own, ResourceFields, instructions=count, arch=capture.arch, **of_launch)
            stages, ptxas = tuple(stage.value for stage in capture.artifacts), like(capture.assembler, Ptxas)
            further = {"trigger": triggers[capture.kernel], "resources": known}
            self.kernels[record] = like(capture, KernelFields, ptxas=ptxas, stages=stages, **further)


def _threads(capture: Capture) -> int | UnsetType:
    """Return the threads per block of a Triton kernel; UNSET for other kernels, whose launches define them."""
    warps = capture.options.get("num_warps")
    return warps * WARP if isinstance(warps, int) and warps > 0 else UNSET


def kernel_fields(capture: Capture) -> KernelFields:
    """Read the fields of a captured kernel that result documents contain. Raises CaptureError if its PTX cannot be
    read."""
    return only(KernelsRead.of({capture.kernel: capture}))


def only(read: KernelsRead) -> KernelFields:
    (kernel,) = read.kernels.values()
    if isinstance(kernel, CaptureError):
        raise kernel
    return kernel


# --- show CAPTURE ---------------------------------------------------------------------------------


_SOURCE = ("function", "function_at", "kernel_at")  # metadata that only some front ends have


class CapturedOne(Result, KernelFields, tag="capture", kw_only=True):
    """One captured kernel.

    path: its folder. title: its name, with the configuration if others share the name. warnings: bugs of its ptxas that
    affect its PTX. notes: whether it comes from a dry run, and why its cubin cannot be read. artifacts: the texts by
    stage. code: its machine code.
    """

    verbs: ClassVar = "show CAPTURE"

    path: str | UnsetType = UNSET
    title: str | UnsetType = UNSET
    warnings: tuple[str, ...] | UnsetType = UNSET
    notes: tuple[str, ...] | UnsetType = UNSET
    artifacts: dict[str, str] | UnsetType = UNSET
    code: CodeFields | UnsetType = UNSET

    @classmethod
    def of(cls, capture: Capture, path: str | UnsetType = UNSET, full: bool = False) -> CapturedOne:
        """Build from a capture. full: add the texts of its stages and its machine code. Raises CaptureError if its PTX
        cannot be read."""
        read = KernelsRead.of({capture.kernel: capture})
        notes = (*dry_run_note([capture]), *read.unread)
        given = asdict(only(read)) | {"warnings": _warnings(capture), "notes": notes, "path": path}
        if not full:
            return cls(**given)
        given["artifacts"] = {
            stage.value: text for stage in capture.artifacts if isinstance(text := capture.artifacts[stage], str)
        }
        try:
            return cls(**given, code=_code(capture) if Stage.CUBIN in capture.artifacts else UNSET)
        except (CubinError, ToolError) as error:
            said = f"{capture.note}; " if capture.note else ""
            return cls(**given | {"note": f"{said}machine code not shown: {error}"})

    def summary(self) -> Summary:
        """Summarise how the kernel was compiled."""
        tables = [Table("Kernel", ("", ""), tuple(self._rows()), 2)]
        if self.options:
            tables.append(self.options_table())
        name, notes = function_name(self.kernel), (*(self.notes or ()), *mangled_note([self.kernel]))
        return Summary(
            "Capture", self.kernel, self.title or name, Tone.NEUTRAL, tuple(self._facts()), tuple(tables), notes
        )

    def options_table(self) -> Table:
        """Show the compile options, which decide the code together with the source."""
        options = ((name if "." in name else name.replace("_", " "), value) for name, value in flat(self.options))
        return Table("Options", ("", ""), tuple((name, short(value, 400)) for name, value in options), 2)

    def _facts(self) -> Iterator[str]:
        if self.rewritten_from:
            yield f"renamed from {self.rewritten_from}"
        if rewrites := self.metadata.get(META_REWRITES):
            yield f"rewritten by {rewrites}"
        if lever := self.metadata.get(META_LEVER):
            yield f"changed by the policy's lever {lever}"
        if self.cache_hit is not None:
            yield "taken from Triton's disk cache" if self.cache_hit else "compiled, not taken from a cache"
        if self.note:
            yield self.note
        for warning in self.warnings or ():
            yield f"warning: {warning}"

    def _rows(self) -> Iterator[tuple[str, str]]:
        yield "front end", self.front_end
        yield "target", self.arch
        if settings := settings_of(self.options):
            yield "configuration", " ".join(f"{name}={value}" for name, value in settings.items())
        for name in _SOURCE:
            if value := self.metadata.get(name):
                yield name.replace("_", " "), str(value)
        yield "ptxas", number(self.ptxas.version)
        if self.ptxas.path:
            yield "path of ptxas", self.ptxas.path
        if self.ptxas.arguments is not None:
            yield "ptxas options", " ".join(self.ptxas.arguments)
        yield "trigger", trigger(self.trigger)
        if self.resources:
            yield from self.resources.rows
        yield "stages", self.kept
        yield "hash", self.hash
        if self.path:
            yield "files", self.path


def _code(capture: Capture) -> CodeFields:
    """Disassemble the kernel's cubin. Raises CubinError or ToolError."""
    from tritonhook.ptxas.tool import available_nvdisasm
    from tritonhook.ptxas.toolchain import count_live_registers, reading_toolchain

    cubin = Cubin.from_bytes(capture.cubin, capture.kernel)
    kernel = cubin.only_kernel(capture.kernel)
    sass = reading_toolchain().disassemble(cubin, [kernel])[kernel]
    live = count_live_registers(available_nvdisasm(), cubin.data, sass)
    return replace(CodeFields.of(cubin, sass, capture=capture), live=UNSET if live is None else live)


def _warnings(capture: Capture) -> tuple[str, ...]:
    """List warnings about known miscompilations of this kernel by its ptxas."""
    try:
        level = level_of(capture.assembler.options)
        return tuple(warnings_of(capture.text(Stage.PTX) or "", capture.assembler.version, level))
    except (CaptureError, PtxError):  # without readable PTX nothing can be found
        return ()
