"""Run the capability probes through a sweep, disassemble the code, and put the answers into a Matrix."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain

from tritonhook._util.versions import version_key
from tritonhook.cubin.image import Cubin
from tritonhook.cubin.sass import words_of
from tritonhook.errors import ToolError
from tritonhook.lab.capabilities import (
    KERNEL,
    Cell,
    InstructionProbe,
    Matrix,
    PtxasVersion,
    Status,
    judge_code,
    judge_failure,
)
from tritonhook.lab.name_probe import newest_versions
from tritonhook.lab.sweep import Job, Outcome, ResultCache, Run
from tritonhook.ptxas.disassembler import list_words
from tritonhook.ptxas.tool import Tool, check_targets, target_key, targets

OLDEST = 80  # older SMs have neither cp.async nor most of the other instructions


@dataclass(frozen=True, slots=True)
class _Question:
    """Which cell of the matrix an outcome answers."""

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
    """Ask each ptxas for each probe, on those of the architectures that it knows (archs=None: on all that it knows).

    run: sweep, with executor and cache. expect: called with the number of further jobs as soon as it is known. notes:
    keeps the opcodes of each code, so that a second survey disassembles nothing.
    Raises ToolError if none of the tools knows an architecture, or a tool cannot be used.
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
    """The key under which the opcodes of a code are kept."""
    return hashlib.sha256(f"opcodes-1 {nvdisasm.version} {arch} {sha256}".encode()).hexdigest()


class _State:
    """The cells that a survey has so far, and the code that is still to be disassembled."""

    def __init__(self, probes: Sequence[InstructionProbe]) -> None:
        self.probes = probes
        self.cells: dict[tuple[str, str, str], Cell] = {}
        self.questions: dict[Job, _Question] = {}
        self.codes: dict[tuple[str, str], bytes] = {}  # by arch and hash: most versions of ptxas make the same code
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
        assert outcome.image is not None and outcome.cubin is not None  # it was assembled
        kernel = outcome.image.kernel(KERNEL)
        key = (question.arch, kernel.code_sha256)
        if key not in self.codes:
            self.codes[key] = Cubin.from_bytes(outcome.cubin).text(KERNEL)
        self.assembled.append((question, kernel.code_sha256, kernel.externs))

    def disassemble(self, nvdisasm: Tool, notes: ResultCache | None) -> None:
        """Judge the assembled probes, with one run of nvdisasm for each architecture that has code without notes."""
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

        with ThreadPoolExecutor(max_workers=2) as pool:
            for part in pool.map(read, by_arch):
                opcodes.update(part)
                if notes is not None:
                    for (arch, sha256), read_opcodes in part.items():
                        notes.put_document(_opcodes_key(nvdisasm, arch, sha256), list(read_opcodes))
        for question, sha256, externs in self.assembled:
            self._put(question, judge_code(question.probe, opcodes[question.arch, sha256], externs))

    def _put(self, question: _Question, cell: Cell) -> None:
        self.cells[question.ptxas, question.arch, question.probe.key] = cell
