"""Result of `emulate --count`: Nsight Compute's counters of kernels, counted on the CPU."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from tritonhook._util.schema import Count, Fields
from tritonhook._util.text import file_line
from tritonhook.capture.store import CaptureFolder
from tritonhook.cubin.image import Cubin
from tritonhook.cubin.resources import launch_shared, occupancy
from tritonhook.errors import NotUnderstood, TritonHookError, UsageError
from tritonhook.report.result import UNKNOWN, Result, Summary, Table, Tone, count, grouped, number

if TYPE_CHECKING:
    from tritonhook.capture.launches.record import Launch
    from tritonhook.emulate.counters.floor import Rates
    from tritonhook.emulate.counters.metrics import Counted, CountedInstruction

_WORST = 5  # how many source lines are listed, those with the most excess
_RUN, _THREADS, _ON = (f"{name}Instructions Executed" for name in ("", "Thread ", "Predicated-On Thread "))
_WAVES, _SECTORS, _EXCESS = "L1 Wavefronts Shared", "L2 Theoretical Sectors Global", " Excessive"
_SECTOR_BYTES = 32
Figures = dict[str, Count | None]


class CountedRow(Fields):
    """One instruction. file, line: its place in the source; "" and 0: not known. counters: by the names of Nsight
    Compute's source page; null: no rule is known for computing it."""

    instruction: str
    file: str
    line: Count
    counters: Figures

    @classmethod
    def of(cls, one: CountedInstruction) -> CountedRow:
        return cls(one.text, one.file, one.line, one.counters.ncu)

    @property
    def place(self) -> str:
        return file_line(self.file, self.line) if self.line else ""


class CountedKernel(Fields):
    """One kernel. reason: why it was not counted; "" if it was. arch: the SM number of its machine code. ctas: how many
    CTAs were executed and counted. of_ctas: how many CTAs the launch has. factor: counters of the whole launch divided
    by those of the counted CTAs; null: not known, because the counted CTAs differ. evidence: for each kind of counting
    rule, how it was confirmed for this architecture. without: opcodes whose memory accesses are not known, and so are
    in no total. metrics: totals, by the names of Nsight Compute's raw page. global_bytes: bytes of global memory that
    threads asked for. local_bytes: bytes of local memory, which is the stack. tensor_instructions, barriers: how many
    of these instructions warps executed. operations: multiplications and additions, by pipe and type. gpu: the GPU of
    `floor_cycles`. mhz: the highest clock of that GPU. floor_cycles: for each unit of an SM of `gpu`, the fewest cycles
    that it needs, according to a model; null: not known. occupancy: as text; "": not known."""

    kernel: str
    launch: str
    reason: str
    arch: Count = 0
    ctas: Count = 0
    of_ctas: Count = 0
    factor: float | None = None
    evidence: dict[str, str] = {}
    without: tuple[str, ...] = ()
    metrics: dict[str, Count] = {}
    global_bytes: Count = 0
    local_bytes: Count = 0
    tensor_instructions: Count = 0
    barriers: Count = 0
    operations: dict[str, Count] = {}
    gpu: str = ""
    mhz: Count = 0
    floor_cycles: dict[str, float] | None = None
    occupancy: str = ""
    instructions: tuple[CountedRow, ...] = ()

    @classmethod
    def of(cls, launch: str, counted: Counted, occupancy: str, gpu: str = "") -> CountedKernel:
        """Build from a counted launch. gpu: the GPU for the lower bound of the time; "": the usual GPU of the
        architecture. Raises UsageError for an unknown GPU."""
        from tritonhook.emulate.counters.floor import cycles_of

        whole, rates = counted.total, rates_of(counted.arch, gpu)
        return cls(
            counted.kernel, launch, "", counted.arch, counted.ctas, counted.of_ctas, counted.factor,
            dict(counted.evidence), counted.without, counted.raw, whole.global_bytes or 0, whole.local_bytes,
            whole.tensor_instructions, counted.executed("BAR", "UCGABAR_WAIT"), counted.operations,
            *(("", 0, None) if rates is None else (rates.gpu, rates.mhz, cycles_of(counted, rates))), occupancy,
            tuple(map(CountedRow.of, counted.instructions)),
        )  # fmt: skip

    @property
    def floor(self) -> str:
        """Lower bound of the time, as text: the time of the unit that needs the most cycles."""
        if not self.floor_cycles:
            return UNKNOWN
        unit = max(self.floor_cycles, key=self.floor_cycles.__getitem__)
        cycles = self.floor_cycles[unit]
        return f"{cycles / self.mhz:,.3g} µs ({cycles:,.0f} cycles), bound by {unit} (modelled)"

    def total(self, name: str) -> int:
        return sum(row.counters[name] or 0 for row in self.instructions)

    def worst(self) -> list[tuple[str, str, int]]:
        """List the source lines with the most excess wavefronts and sectors: (line, what is wrong, cost in sectors).

        For an instruction without a source line, its own text is the line.
        """
        lines: dict[str, list[CountedRow]] = {}
        for row in self.instructions:
            lines.setdefault(row.place or row.instruction, []).append(row)
        found = [(place, *_excess(rows)) for place, rows in lines.items()]
        return sorted((one for one in found if one[2]), key=lambda one: -one[2])[:_WORST]

    def figures(self) -> Iterator[tuple[str, str]]:
        """Yield (label, text) for those figures of Nsight Compute's details page that are counted."""
        moved, waves = self.total(_SECTORS) * _SECTOR_BYTES, self.total(_WAVES)
        yield "instructions of warps", number(self.total(_RUN))
        yield "threads on, of 32", f"{self.total(_ON) / max(self.total(_RUN), 1):.1f}"
        yield "divergent branches", number(self.total("Divergent Branches"))
        if "global memory" in self.evidence:
            used = f"{self.global_bytes:,} asked for, {moved:,} moved in sectors"
            yield "bytes of global memory", used
            yield "sectors in excess", _share(self.total(_SECTORS + _EXCESS), self.total(_SECTORS))
            yield "operations for each byte moved", f"{sum(self.operations.values()) / moved:.2f}" if moved else UNKNOWN
        if "shared memory" in self.evidence:
            yield "wavefronts of shared memory in excess", _share(self.total(_WAVES + _EXCESS), waves)
        yield "barriers of warps", number(self.barriers)
        yield "bytes of local memory", number(self.local_bytes)
        yield "tensor instructions", number(self.tensor_instructions)
        pipes = [f"{pipe} {number(operations)}" for pipe, operations in self.operations.items()]
        yield "operations, by pipe", "; ".join(pipes) or "0"
        yield f"floor of time{self.gpu and f' on {self.gpu}'}", self.floor
        yield "occupancy", self.occupancy or UNKNOWN

    def notes(self) -> Iterator[str]:
        kinds = [f"{evidence}: {what}" for evidence, what in grouped(self.evidence.items()).items()]
        yield f"{self.kernel}, rules of sm_{self.arch}: {'; '.join(kinds) or UNKNOWN}"
        if self.without:
            yield f"{self.kernel}: memory accesses of {', '.join(self.without)} are {UNKNOWN}, and are in no total"
        ctas = f"{self.ctas:,} of {count(self.of_ctas, 'CTA')}"
        if self.factor is None:
            yield f"{self.kernel}: {ctas} counted; their counters differ, so those of the whole launch are {UNKNOWN}"
        elif self.factor != 1:
            yield f"{self.kernel}: {ctas} counted; their counters are equal; the launch has {self.factor:g} times these"


def _excess(rows: list[CountedRow]) -> tuple[str, int]:
    """Describe the excess of a source line, and its cost in sectors: a wavefront of shared memory has as many bytes as
    four sectors."""
    texts = []
    waves, extra = (sum(row.counters[name] or 0 for row in rows) for name in (_WAVES, _WAVES + _EXCESS))
    if extra:
        ways = max(row.counters["L1 Conflicts Shared N-Way"] or 0 for row in rows if row.counters[_WAVES + _EXCESS])
        texts.append(f"{ways}-way bank conflict, {_share(extra, waves)} wavefronts in excess")
    sectors, over = (sum(row.counters[name] or 0 for row in rows) for name in (_SECTORS, _SECTORS + _EXCESS))
    if over:
        texts.append(f"{sectors:,} sectors where {sectors - over:,} would do")
    return "; ".join(texts), 4 * extra + over


def _share(part: int, whole: int) -> str:
    return f"{part:,} of {whole:,}"


class Counting(Result, tag="counters"):
    """Kernels counted on the CPU. input: what the buffers held. ctas: how many CTAs of each launch were executed; null:
    all."""

    verbs: ClassVar = "emulate --count"

    target: str
    input: str
    ctas: Count | None
    kernels: tuple[CountedKernel, ...]

    @classmethod
    def of_captures(cls, folder: CaptureFolder) -> Counting:
        """Count a launch of each kernel of a capture folder."""
        kernels = tuple(_captured(folder, record) for record in folder.running)
        return cls(str(folder.path), "recorded", None, kernels)

    def summary(self) -> Summary:
        counted = [kernel for kernel in self.kernels if not kernel.reason]
        tables, notes = [], [f"buffers hold {self.input}; run on CPU (emulated), from machine code; nothing was timed"]
        for kernel in counted:
            if rows := [place[:2] for place in kernel.worst()]:
                tables.append(Table(f"Worst lines of {kernel.kernel}", ("line", "what"), tuple(rows), 2, words=(1,)))
            tables.append(Table(f"{kernel.kernel} {kernel.launch}", ("figure", "value"), tuple(kernel.figures()), 1))
            notes += kernel.notes()
        if failed := tuple((kernel.kernel, kernel.reason) for kernel in self.kernels if kernel.reason):
            tables.append(Table("Not counted", ("kernel", "why"), failed, 2))
        verdict = f"{len(counted):,} of {count(len(self.kernels), 'kernel')} counted"
        worst = max((one for kernel in counted for one in kernel.worst()), key=lambda one: one[2], default=None)
        if counted:
            verdict += f"; {worst[0]}: {worst[1]}" if worst else ": nothing in excess"
        tone = Tone.UNSURE if failed else Tone.CHANGED if worst else Tone.GOOD
        return Summary("Counters", self.target, verdict, tone, (), tuple(tables), tuple(notes))

    def csv_table(self) -> Table:
        """Return the instructions as a table with the columns of Nsight Compute's CSV of its source page."""
        names = tuple(next((row.counters for kernel in self.kernels for row in kernel.instructions), {}))
        rows = tuple(
            (kernel.kernel, str(index), row.instruction, row.place, *(number(row.counters[name]) for name in names))
            for kernel in self.kernels
            for index, row in enumerate(kernel.instructions)
        )
        return Table("Instructions", ("Kernel Name", "#", "Source", "File:Line", *names), rows, 4)


def rates_of(arch: int, name: str = "") -> Rates | None:
    """Return the clock and rates of a GPU.

    arch: SM number of the machine code. name: of the GPU; "": the usual GPU of the architecture, None if there is none.
    Raises UsageError for an unknown GPU, and for a GPU of another architecture.
    """
    from tritonhook.emulate.counters.floor import CLOCKS, OPERATIONS, USUAL, Rates
    from tritonhook.memory.prediction import find_gpu

    known = f"known: {', '.join(CLOCKS)}"
    if not name and arch not in USUAL:
        return None
    try:
        gpu = find_gpu(name or USUAL[arch])
    except UsageError:
        raise UsageError(f"--gpu {name}: not known; {known}") from None
    if gpu.name not in CLOCKS or gpu.arch is None:
        raise UsageError(f"--gpu {name}: its rates are not known; {known}")
    if gpu.arch != arch:
        raise UsageError(f"--gpu {name}: a GPU of sm_{gpu.arch}, but the machine code is for sm_{arch}")
    return Rates(gpu.name, gpu.sms, *CLOCKS[gpu.name], OPERATIONS[arch])


def held_at_once(launch: Launch, cubin: Cubin, kernel: str) -> str:
    """Describe the occupancy of a launch, and what limits it; "" if it is not known."""
    needs = cubin.resources[kernel]
    shared = launch_shared(needs.shared or 0, launch.shared)
    held = occupancy(f"sm_{cubin.arch}", needs.registers, math.prod(launch.block), shared)
    return "" if held is None else held.text


def _captured(folder: CaptureFolder, record: str) -> CountedKernel:
    """Count a launch of a captured kernel. If that fails, the result has only the reason."""
    from tritonhook.snapshot.counted import count_launch, launch_at

    launch = ""
    try:
        recorded = launch_at(folder.path / "kernels" / record)
        launch, capture = recorded.launch.summary, folder.capture(record)
        found = count_launch(capture, recorded)
        return CountedKernel.of(
            launch, found, held_at_once(recorded.launch, Cubin.from_bytes(capture.cubin), found.kernel)
        )
    except (TritonHookError, OSError, MemoryError, RecursionError) as error:
        kind = "NOT UNDERSTOOD: " if isinstance(error, NotUnderstood) else ""
        return CountedKernel(record, launch, f"{kind}{error}" or type(error).__name__)
