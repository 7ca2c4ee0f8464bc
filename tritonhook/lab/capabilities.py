"""Survey which PTX instructions each ptxas supports for each target, and how it implements them.

A probe is a small kernel with one PTX instruction. It is assembled, never executed: it shows whether ptxas accepts the
instruction for a target, and which machine code it makes, but not whether a GPU runs it, or how fast. The results are
the cells of a matrix by ptxas version, architecture and probe.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import chain

from tritonhook._display import Brief
from tritonhook._util.versions import version_key
from tritonhook.cubin.image import Cubin
from tritonhook.cubin.sass import words_of
from tritonhook.errors import ToolError
from tritonhook.lab.name_probe import newest_versions
from tritonhook.ptx.module import Ptx
from tritonhook.ptxas.pool import Job, ResultCache, Run
from tritonhook.ptxas.result_cache import Outcome, OutcomeKind
from tritonhook.ptxas.threads import tool_threads
from tritonhook.ptxas.tool import Tool, check_targets, target_key, targets
from tritonhook.ptxas.toolchain import list_words

KERNEL = "probe"

# Operands are loaded from memory so that ptxas cannot fold constants; it removes the loads that a probe does not use.
# %rd0, %rd1: pointers. %r0..15, %f0..15, %fd0..7, %h0..3, %rd2..5: loaded values. %r60: an mbarrier in shared memory.
# %r61: data after it. %r62: tensor memory. %rd10, %rd11: matrix descriptors. %p0: a condition.
_HEADER = """.version {version}
.target {target}
.address_size 64
.extern .shared .align 1024 .b8 smem[];
.visible .entry {name}(.param .u64 p0, .param .u64 p1)
.reqntid 128 {directives}
{{
 .reg .pred %p<8>; .reg .b16 %h<16>; .reg .b32 %r<64>; .reg .b64 %rd<32>; .reg .f32 %f<64>; .reg .f64 %fd<16>;
 ld.param.u64 %rd0, [p0]; ld.param.u64 %rd1, [p1];
"""


def _load(type_: str, register: str, count: int, size: int, offset: int) -> str:
    """Write PTX that loads `count` registers in vectors of 16 bytes. size: bytes per register."""
    lines = []
    for first in range(0, count, 16 // size):
        names = ",".join(f"%{register}{first + i}" for i in range(16 // size))
        lines.append(f" ld.global.v{16 // size}.{type_} {{{names}}}, [%rd0+{offset + size * first}];\n")
    return "".join(lines)


_PROLOGUE = (
    _load("b32", "r", 16, 4, 0)
    + _load("f32", "f", 16, 4, 64)
    + _load("f64", "fd", 8, 8, 128)
    + " ld.global.v4.b16 {%h0,%h1,%h2,%h3}, [%rd0+256]; ld.global.v2.b64 {%rd2,%rd3}, [%rd0+272];\n"
    + " ld.global.v2.b64 {%rd4,%rd5}, [%rd0+288];\n"
    + " mov.b64 %rd10, 0x4000004000010040; mov.b64 %rd11, 0x4000004000010140;\n"
    + " mov.u32 %r60, smem; add.u32 %r61, %r60, 1024; ld.shared.b32 %r62, [%r60+64]; setp.ne.u32 %p0, %r0, 0;\n"
)
_STORE = {"r": "b32", "f": "f32", "fd": "f64", "h": "b16", "rd": "b64"}


def _stored(register: str, offset: int) -> str:
    kind = register.rstrip("0123456789")
    if kind == "p":
        return f" selp.b32 %r63, 1, 0, %{register}; st.global.b32 [%rd0+{offset}], %r63;\n"
    return f" st.global.{_STORE[kind]} [%rd0+{offset}], %{register};\n"


@dataclass(frozen=True, slots=True)
class InstructionProbe:
    """A probe of one PTX instruction.

    version: PTX ISA version that introduced this form. code: the instruction. expected: regular expression for the
    start of the SASS opcode that implements it. outputs: registers to store, separated by blanks. directives:
    performance directives of the kernel.
    """

    group: str
    name: str
    version: str
    code: str
    expected: str
    outputs: str = ""
    directives: str = ""

    @property
    def key(self) -> str:
        """The probe's name in tables: its group and its own name."""
        return f"{self.group}: {self.name}"

    def ptx(self, arch: str, version: str, kernel: str = KERNEL) -> Ptx:
        stores = "".join(_stored(register, 512 + 8 * i) for i, register in enumerate(self.outputs.split()))
        header = _HEADER.format(version=version, target=arch, name=kernel, directives=self.directives)
        return Ptx(f"{header}{_PROLOGUE} {self.code}\n{stores} ret;\n}}\n")


class Status(str, Enum):
    """How ptxas implements an instruction.

    inline: by the expected opcode. syscall: by a call of a driver function, with or without the expected opcode.
    emulated: by other opcodes, or by a call of other code. rejected: ptxas refuses the instruction for this target.
    unknown version: this ptxas does not read the PTX version that introduced the instruction. crashed: ptxas crashed or
    hung.
    """

    INLINE = "inline"
    SYSCALL = "syscall"
    EMULATED = "emulated"
    REJECTED = "rejected"
    UNKNOWN_VERSION = "unknown PTX version"
    CRASHED = "crashed"


@dataclass(frozen=True, slots=True)
class Cell:
    """The result for one probe, target and ptxas.

    opcode: SASS opcodes that implement the instruction, the most frequent first. reason: ptxas's message, or names of
    syscalls; "{arch}" stands for the target.
    """

    status: Status
    opcode: str = ""
    reason: str = ""

    def reason_for(self, arch: str) -> str:
        """Return the reason with the target's name inserted."""
        return self.reason.replace("{arch}", arch)


_SYSCALL = "__cuda_syscall"
# Opcodes in the code of any probe: they load operands, store results and end the kernel. Some versions of ptxas also
# fill issue slots with UIADD3 and BMOV.
_SURROUNDINGS = re.compile(
    r"(S2U?R|CS2R|LDCU?|ULDC|LDG|STG|LDS|U?MOV|IMAD\.(MOV|U32)|R2UR|EXIT|BRA|NOP|RET|BSSY|BSYNC|WARPSYNC|RPCMOV|UIADD3|BMOV)(\.|$)"
)


_LINE = re.compile(r"^line \d+: ")  # prefix of a ptxas message


def judge_failure(outcome: Outcome, arch: str) -> Cell | None:
    """Make the cell for a probe from which ptxas made no cubin; None if it made one."""
    if outcome.kind is OutcomeKind.ASSEMBLED:
        return None
    if outcome.kind in (OutcomeKind.REJECTED, OutcomeKind.UNSUPPORTED):
        return Cell(Status.REJECTED, reason=_LINE.sub("", outcome.message).replace(f"'{arch}'", "'{arch}'"))
    how = outcome.signal or outcome.kind.value
    return Cell(Status.CRASHED, reason=f"{outcome.kind.value}: {how}")


def judge_code(probe: InstructionProbe, opcodes: Iterable[str], externs: Iterable[str]) -> Cell:
    """Make the cell for an assembled probe. opcodes: opcodes of its code. externs: its undefined symbols."""
    code = list(opcodes)
    hits = Counter(opcode for opcode in code if re.match(probe.expected, opcode))
    called = sorted(externs)
    syscalls = [name for name in called if name.startswith(_SYSCALL)]
    if syscalls:
        return Cell(Status.SYSCALL, _listed(hits), ", ".join(syscalls))
    if called:
        return Cell(Status.EMULATED, _listed(hits), f"calls {', '.join(called)}")
    beside = "the code also calls other code" if any(opcode.startswith("CALL") for opcode in code) else ""
    if hits:
        return Cell(Status.INLINE, _listed(hits), beside)
    others = Counter(opcode for opcode in code if not _SURROUNDINGS.match(opcode))
    return Cell(Status.EMULATED, _listed(others), "" if others else "dropped: ptxas removed the instruction")


def _listed(opcodes: Counter[str]) -> str:
    """Format the four most frequent opcodes, matrix instructions first."""
    ranked = sorted(opcodes.items(), key=lambda item: ("MMA." not in item[0], -item[1]))
    return ", ".join(f"{name} x{n}" if n > 1 else name for name, n in ranked[:4])


# --- the matrix ----------------------------------------------------------------------------------

EVIDENCE = "assembled, never executed: no GPU ran any of this"


@dataclass(frozen=True, slots=True)
class PtxasVersion:
    """One ptxas. ptx_version: the newest PTX version that it reads, which all its probes use. archs: its targets."""

    version: str
    ptx_version: str
    archs: tuple[str, ...]


@dataclass(frozen=True, slots=True, repr=False)
class Matrix(Brief):
    """The results of a survey. assemblers: oldest first. probes: their keys. cells: by (ptxas version, arch, probe
    key)."""

    assemblers: tuple[PtxasVersion, ...]
    probes: tuple[str, ...]
    cells: Mapping[tuple[str, str, str], Cell]

    @property
    def newest(self) -> PtxasVersion:
        return self.assemblers[-1]

    def cell(self, ptxas: str, arch: str, probe: str) -> Cell | None:
        """Look up one cell; None if this ptxas does not support the target."""
        return self.cells.get((ptxas, arch, probe))


# --- the survey -----------------------------------------------------------------------------------


OLDEST = 80  # the oldest SM of a survey; older ones lack cp.async and most other instructions


@dataclass(frozen=True, slots=True)
class _Question:
    """Position of a cell in the matrix."""

    ptxas: str
    arch: str
    probe: InstructionProbe


def survey(
    tools: Sequence[Tool],
    archs: Sequence[str] | None,
    probes: Sequence[InstructionProbe],
    run: Run,
    nvdisasm: Tool,
    expect: Callable[[int], None] = lambda jobs: None,
    notes: ResultCache | None = None,
) -> Matrix:
    """Assemble each probe with each ptxas for each architecture that this ptxas supports.

    archs: only these; None: all. run: runs jobs, e.g. `sweep` with executor and cache bound. expect: called with the
    number of jobs to come as soon as it is known, e.g. to show progress. notes: cache for the opcodes of each code, so
    that a second survey disassembles nothing.
    Raises ToolError if no tool supports an architecture, or a tool cannot be used.
    """
    expect(len(tools))
    assemblers = _assemblers(tools, archs, run)
    state = _State(probes)
    jobs = list(state.jobs(zip(tools, assemblers, strict=True)))
    expect(len(jobs))
    for job, outcome in run(jobs):
        state.take(job, outcome)
    state.disassemble(nvdisasm, notes)
    ordered = sorted(assemblers, key=lambda a: version_key(a.version))
    return Matrix(tuple(ordered), tuple(p.key for p in probes), state.cells)


def _assemblers(tools: Sequence[Tool], archs: Sequence[str] | None, run: Run) -> list[PtxasVersion]:
    known = {tool: [a for a in targets(tool) if target_key(a)[0] >= OLDEST] for tool in tools}
    check_targets(archs or (), tools)
    newest_ptx = newest_versions(tools, run)
    for tool in tools:
        if tool.version not in newest_ptx:
            raise ToolError(f"{tool.path}: cannot find out which PTX version this ptxas {tool.version} reads")
    chosen = {tool: tuple(a for a in known[tool] if not archs or a in archs) for tool in tools}
    return [PtxasVersion(tool.version, newest_ptx[tool.version], chosen[tool]) for tool in tools]


def _opcodes_key(nvdisasm: Tool, arch: str, sha256: str) -> str:
    """Make the cache key for the opcodes of a code. sha256: hash of the code."""
    return hashlib.sha256(f"opcodes-1 {nvdisasm.version} {arch} {sha256}".encode()).hexdigest()


class _State:
    """State of a survey: the cells so far, and the code that is still to be disassembled."""

    def __init__(self, probes: Sequence[InstructionProbe]) -> None:
        self.probes = probes
        self.cells: dict[tuple[str, str, str], Cell] = {}
        self.questions: dict[Job, _Question] = {}
        self.codes: dict[tuple[str, str], bytes] = {}  # by arch and hash, since most versions of ptxas make equal code
        self.assembled: list[tuple[_Question, str, tuple[str, ...]]] = []

    def jobs(self, assemblers: Iterable[tuple[Tool, PtxasVersion]]) -> Iterator[Job]:
        for tool, assembler in assemblers:
            for arch in assembler.archs:
                for probe in self.probes:
                    if version_key(probe.version) > version_key(assembler.ptx_version):
                        needs = f"needs PTX {probe.version}; this ptxas reads up to {assembler.ptx_version}"
                        self._put(_Question(tool.version, arch, probe), Cell(Status.UNKNOWN_VERSION, reason=needs))
                        continue
                    job = Job(probe.ptx(arch, assembler.ptx_version).text, tool, keep_cubin=True)
                    self.questions[job] = _Question(tool.version, arch, probe)
                    yield job

    def take(self, job: Job, outcome: Outcome) -> None:
        question = self.questions[job]
        failure = judge_failure(outcome, question.arch)
        if failure is not None:
            self._put(question, failure)
            return
        assert outcome.image is not None and outcome.cubin is not None  # since judge_failure returned None
        kernel = outcome.image.kernel(KERNEL)
        key = (question.arch, kernel.code_sha256)
        if key not in self.codes:
            self.codes[key] = Cubin.from_bytes(outcome.cubin).text(KERNEL)
        self.assembled.append((question, kernel.code_sha256, kernel.externs))

    def disassemble(self, nvdisasm: Tool, notes: ResultCache | None) -> None:
        """Judge the assembled probes. nvdisasm runs once for each architecture that has code without cached opcodes."""
        opcodes: dict[tuple[str, str], tuple[str, ...]] = {}
        by_arch: dict[str, list[str]] = {}
        for arch, sha256 in self.codes:
            noted = None if notes is None else notes.get_document(_opcodes_key(nvdisasm, arch, sha256))
            if isinstance(noted, list):
                opcodes[arch, sha256] = tuple(map(str, noted))
            else:
                by_arch.setdefault(arch, []).append(sha256)

        def read(arch: str) -> dict[tuple[str, str], tuple[str, ...]]:
            words = {sha256: words_of(self.codes[arch, sha256]) for sha256 in by_arch[arch]}
            listed = list_words(nvdisasm, arch, chain.from_iterable(words.values()))
            return {(arch, sha256): tuple(listed[word].opcode for word in keys) for sha256, keys in words.items()}

        with tool_threads(2) as pool:
            for part in pool.map(read, by_arch):
                opcodes.update(part)
                if notes is not None:
                    for (arch, sha256), read_opcodes in part.items():
                        notes.put_document(_opcodes_key(nvdisasm, arch, sha256), list(read_opcodes))
        for question, sha256, externs in self.assembled:
            self._put(question, judge_code(question.probe, opcodes[question.arch, sha256], externs))

    def _put(self, question: _Question, cell: Cell) -> None:
        self.cells[question.ptxas, question.arch, question.probe.key] = cell
