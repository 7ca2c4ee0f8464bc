"""Results of `show DIR` and `run`: the kernels in a capture folder; and of `show ID` for a kernel that failed to
compile."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

from msgspec import UNSET, UnsetType
from msgspec.structs import asdict, replace

from tritonhook._util.demangle import function_name
from tritonhook._util.files import read_given
from tritonhook._util.schema import Count, Fields, like
from tritonhook.capture.model import Capture, Stage, dry_run_note
from tritonhook.capture.selection import settings_of, titles
from tritonhook.capture.store import CaptureFolder
from tritonhook.capture.store.ids import short_ids
from tritonhook.capture.store.reader import Run, Sighting
from tritonhook.capture.store.schema import read_rejected
from tritonhook.errors import CaptureError, listed
from tritonhook.ptx.locations import Place, source_places
from tritonhook.ptx.miscompiles import note_of
from tritonhook.report.result import (
    UNKNOWN,
    Result,
    Summary,
    Table,
    Tone,
    count,
    duration,
    flat,
    kernel_names,
    mangled_note,
    number,
    short,
    trigger,
)
from tritonhook.report.results.capture import KernelFields, KernelsRead, ResourceFields


class Seen(Fields):
    """One process that compiled or loaded the kernel. process: name of its index in the capture folder. rank: "-" if it
    has none. time_ns: when it compiled or loaded the kernel, as time.time_ns counts. run: number of its run; null
    outside of `tritonhook run`. compile_us: microseconds of each step, if it compiled the kernel: `ir`, each stage, and
    `store`; if the compiler is not Triton, the stages that it reports."""

    process: str
    rank: str
    cache_hit: bool
    time_ns: int
    run: int | None
    compile_us: dict[str, Count] | UnsetType = UNSET

    @classmethod
    def of(cls, sighting: Sighting, runs: Mapping[Run, int]) -> Seen:
        run = None if sighting.run is None else runs[sighting.run]
        return like(sighting, cls, run=run, compile_us=dict(sighting.compile_us) or UNSET)


class FolderKernel(KernelFields, kw_only=True):
    """A kernel of a folder. id: the short name that verbs accept. record: the name of its folder. seen: the processes
    that compiled or loaded it. title: its name, with the configuration if others share the name."""

    id: str
    record: str
    seen: tuple[Seen, ...]
    title: str | UnsetType = UNSET

    def resource(self, text: Callable[[ResourceFields], str]) -> str:
        """Format a resource: "-" without a cubin, "not known" if the cubin cannot be read."""
        if Stage.CUBIN.value not in self.stages:
            return "-"
        return UNKNOWN if self.resources is None else text(self.resources)

    @property
    def run(self) -> str:
        """Number of the latest run in which it was compiled or loaded; "-" if there is none."""
        return str(max((seen.run for seen in self.seen if seen.run is not None), default="-"))

    @property
    def time(self) -> str:
        """Time of its latest event on this machine's clock: "14:03:22" for today, else "11-22 14:03"."""
        if not self.seen:
            return "-"
        at, now = (time.localtime(ns / 1e9) for ns in (max(seen.time_ns for seen in self.seen), time.time_ns()))
        return time.strftime("%H:%M:%S" if at[:3] == now[:3] else "%m-%d %H:%M", at)

    @property
    def hits(self) -> int:
        """Number of processes that took the kernel from a cache."""
        return sum(seen.cache_hit for seen in self.seen)

    @property
    def compile_us(self) -> Mapping[str, int]:
        """Microseconds of each stage of its latest compile; empty if unknown."""
        known = [seen for seen in self.seen if seen.compile_us]
        return (max(known, key=lambda seen: seen.time_ns).compile_us or {}) if known else {}

    @property
    def ranks(self) -> str:
        """Ranks of the processes that compiled or loaded it: "0 1 3"; "-" for a process without a rank."""
        return " ".join(sorted({seen.rank for seen in self.seen}, key=lambda rank: (len(rank), rank)))

    @property
    def configuration(self) -> str:
        """Options that an autotuner varies: "4 warps, 3 stages, BLOCK=128"."""
        counts = ((self.options.get(f"num_{what}"), what) for what in ("warps", "stages", "ctas"))
        parts = [f"{count} {what}" for count, what in counts if count is not None and (what, count) != ("ctas", 1)]
        if self.options.get("maxnreg") is not None:
            parts.append(f"maxnreg {self.options['maxnreg']}")
        constants = self.options.get("constants")
        known = constants.items() if isinstance(constants, Mapping) else ()
        return ", ".join([*parts, *(f"{name}={value}" for name, value in known if value is not None)])


class FailedKernel(Fields):
    """A kernel that could not be compiled. id: the short name that `show` accepts. by: the ptxas, or the Triton stage
    that failed. error: the first error, after its source line if known. path: its folder."""

    id: str
    kernel: str
    arch: str
    by: str
    error: str
    time_ns: int
    path: str


class Damaged(Fields):
    """A record that cannot be read. error: the reason."""

    record: str
    error: str


class TuningFields(Fields):
    """One choice of an autotuner. winner: record of the chosen kernel. among: records of all tried kernels. by: the
    autotuner. process: name of the process's index in the capture folder."""

    winner: str
    among: tuple[str, ...]
    by: str
    process: str


class Captures(Result, tag="captures"):
    """The kernels in a capture folder.

    path: the folder. processes: for each its host, rank, pid, argv and versions. torn_lines: index lines cut short by a
    killed process. kernels: the largest first. damaged: records that cannot be read. tunings: choices of autotuners.
    failed: kernels that could not be compiled. notes: messages of the programs' processes, and which cubins cannot be
    read. hidden: how many kernels `--filter` left out.
    """

    verbs: ClassVar = "show DIR`, `run"

    path: str
    processes: tuple[dict[str, Any], ...]
    torn_lines: Count
    kernels: tuple[FolderKernel, ...]
    damaged: tuple[Damaged, ...]
    tunings: tuple[TuningFields, ...]
    failed: tuple[FailedKernel, ...]
    notes: tuple[str, ...] | UnsetType = UNSET
    hidden: Count | UnsetType = UNSET

    @classmethod
    def of(cls, folder: CaptureFolder) -> Captures:
        outcomes, ids = folder.captures(), folder.ids
        captures = {record: capture for record, capture in outcomes.items() if isinstance(capture, Capture)}
        read, runs = KernelsRead.of(captures), {run: number for number, run in enumerate(folder.runs, 1)}
        damaged = {record: read.kernels.get(record, error) for record, error in outcomes.items()}
        kernels = (
            FolderKernel(
                id=ids[record],
                record=record,
                seen=tuple(Seen.of(sighting, runs) for sighting in folder.seen(record)),
                **asdict(fields),
            )
            for record, fields in read.kernels.items()
            if isinstance(fields, KernelFields)
        )
        unread = (f"{listed(records)}: {error}" for error, records in read.unread.items())
        made = cls(
            path=str(folder.path),
            processes=tuple(dict(process) for process in folder.processes),
            torn_lines=folder.torn,
            kernels=tuple(sorted(kernels, key=lambda kernel: -kernel.resources.code_bytes if kernel.resources else 0)),
            damaged=tuple(Damaged(r, str(error)) for r, error in damaged.items() if isinstance(error, CaptureError)),
            tunings=tuple(like(tuning, TuningFields) for tuning in folder.tunings),
            failed=tuple(_failed(folder)),
            notes=(*dry_run_note(captures.values()), *folder.notes, *note_of(read.modules), *unread),
        )
        return made._titled()

    def only(self, records: Collection[str]) -> Captures:
        """Keep only the kernels of these records."""
        return replace(self, kernels=tuple(kernel for kernel in self.kernels if kernel.record in records))

    def with_notes(self, notes: Iterable[str]) -> Captures:
        """Add notes, each once."""
        return replace(self, notes=tuple(dict.fromkeys((*(self.notes or ()), *notes))))

    def summary(self) -> Summary:
        """Summarise: a row for each kernel, in the document's order."""
        return Summary(
            "Captures",
            self.path,
            f"{count(len(self.kernels), 'kernel')} of {count(len(self.processes), 'process', 'processes')}"
            f"{f', {len(self.failed):,} failed' if self.failed else ''}",
            Tone.BAD if self.failed else Tone.UNSURE if self.damaged or not self.kernels else Tone.NEUTRAL,
            tuple(self._facts()),
            (*((self._table(),) if self.kernels else ()), *self._failures()),
            tuple(self._notes()),
        )

    def _facts(self) -> Iterator[str]:
        if renamed := sum(kernel.rewritten_from is not None for kernel in self.kernels):
            yield f"{renamed:,} renamed"
        if self.hidden:
            yield f"{count(self.hidden, 'kernel')} left out by --filter"
        if self.damaged:
            yield f"{count(len(self.damaged), 'record')} cannot be read"
        if shared := self._shared():
            yield "; ".join(f"{name}: {text}" for name, text in shared.items())

    def _notes(self) -> Iterator[str]:
        yield from self.notes or ()
        yield from mangled_note(kernel.kernel for kernel in self.kernels)
        for damage in self.damaged:
            yield f"{damage.record}: {damage.error}"
        if self.torn_lines:
            lines = count(self.torn_lines, "index line")
            yield f"{lines} cannot be read: cut short by a process that died, or damaged"

    def _failures(self) -> Iterator[Table]:
        if self.failed:
            names = kernel_names(ran.kernel for ran in self.failed)
            rows = tuple((ran.id, names[ran.kernel], ran.arch, ran.by, ran.error) for ran in self.failed)
            title, columns = "Kernels that could not be compiled", ("id", "kernel", "target", "by", "error")
            yield Table(title, columns, rows, left=5, words=(4,), tones=(Tone.BAD,) * len(rows))

    def _table(self) -> Table:
        shown, shared = self.titles(), self._shared()
        columns: dict[str, Cell] = {"id": lambda k: k.id, "kernel": lambda k: shown[k.record]}
        if len({k.run for k in self.kernels}) > 1:
            columns |= {"run": lambda k: k.run, "time": lambda k: k.time}
        columns |= {heading: cell for heading, cell in _COMMON.items() if heading not in shared}
        figures = columns | _FIGURES
        all_columns = figures | self._further_columns()
        headings = tuple(all_columns)
        return Table(
            "Kernels (stack, spill stores/loads, shared: bytes)",
            headings,
            tuple(tuple(cell(kernel) for cell in all_columns.values()) for kernel in self.kernels),
            len(columns),
            words=tuple(range(len(figures), len(headings))),
            one_line=True,
            extra=tuple(headings.index(h) for h in headings if h in _EXTRA),
            keys=tuple(kernel.id for kernel in self.kernels),
        )

    def _further_columns(self) -> dict[str, Cell]:
        """Choose the columns that only some folders need (autotuning, renames, triggers, ranks), and the columns that
        are shown only on request."""
        columns: dict[str, Cell] = {}
        if any(k.compile_us for k in self.kernels):
            columns["compile-time"] = lambda k: duration(sum(k.compile_us.values())) if k.compile_us else "-"
            columns["stages of it"] = lambda k: ", ".join(f"{n} {duration(us)}" for n, us in k.compile_us.items())
        if tuned := self.outcomes():
            columns["autotuned"] = lambda k: tuned.get(k.record, "")
        if any(k.rewritten_from for k in self.kernels):
            columns["renamed from"] = lambda k: function_name(k.rewritten_from or "")
        if any(k.trigger.name or k.trigger.pragma for k in self.kernels):
            columns["trigger"] = lambda k: trigger(k.trigger)
        if len({seen.rank for k in self.kernels for seen in k.seen}) > 1:
            columns["ranks"] = lambda k: k.ranks
        return columns | {"configuration": lambda k: k.configuration, "record": lambda k: k.record}

    def names(self) -> dict[str, str]:
        """Map the kernels' names to their C++ form."""
        return kernel_names(kernel.kernel for kernel in self.kernels)

    def titles(self) -> dict[str, str]:
        """Map each record to the title of its kernel: the name, with the configuration if others share the name."""
        names = self.names()
        by_record = titles({k.record: (names[k.kernel], k.arch, settings_of(k.options)) for k in self.kernels})
        return {k.record: k.title or by_record[k.record] for k in self.kernels}

    def _titled(self) -> Captures:
        """Store the titles in the kernels, so that they stay the same after filtering."""
        by_record = self.titles()
        return replace(self, kernels=tuple(replace(k, title=by_record[k.record]) for k in self.kernels))

    def outcomes(self) -> dict[str, str]:
        """Map each record to what its kernel did in autotuning: "won", "tried", or "won 1 of 3" if it was tried several
        times."""
        tried = Counter(record for tuning in self.tunings for record in {*tuning.among, tuning.winner})
        won = Counter(tuning.winner for tuning in self.tunings)
        return {
            record: f"won {won[record]} of {times}" if 0 < won[record] < times else "won" if won[record] else "tried"
            for record, times in tried.items()
        }

    def _shared(self) -> dict[str, str]:
        """Find the columns (target, ptxas, front end, stages) whose value is the same for all kernels."""
        values = {name: {cell(kernel) for kernel in self.kernels} for name, cell in _COMMON.items()}
        return {name: next(iter(texts)) for name, texts in values.items() if len(texts) == 1}


def _failed(folder: CaptureFolder) -> Iterator[FailedKernel]:
    ids = short_ids([path.parent.name for path in folder.crashes])
    for path in folder.crashes:
        place = path.parent
        try:
            lost = read_rejected(place)
        except CaptureError as error:
            yield FailedKernel(ids[place.name], place.name, UNKNOWN, UNKNOWN, str(error), 0, str(place))
            continue
        at = _source(place, lost.text)
        text = lost.error if at is None else f"{Path(at[0]).name}:{at[1]}: {lost.error}"
        yield like(lost, FailedKernel, id=ids[place.name], path=str(place), error=text)


Cell = Callable[[FolderKernel], str]  # makes the text of a kernel in one column
_COMMON: dict[str, Cell] = {
    "target": lambda k: k.arch,
    "ptxas": lambda k: number(k.ptxas.version),
    "front end": lambda k: k.front_end,
    "stages": lambda k: k.kept,
}
_FIGURES: dict[str, Cell] = {
    "regs": lambda k: k.resource(lambda r: number(r.registers)),
    "spills": lambda k: k.resource(lambda r: r.spills),
    "stack": lambda k: k.resource(lambda r: number(r.stack)),
    "shared": lambda k: k.resource(lambda r: r.shared_memory),
    "instrs": lambda k: k.resource(lambda r: number(r.instructions)),
    "warps/SM": lambda k: k.resource(lambda r: f"{r.occupancy.warps}/{r.occupancy.most_warps}" if r.occupancy else "-"),
    "code": lambda k: k.resource(lambda r: number(r.code_bytes)),
    "compiled": lambda k: number(len(k.seen) - k.hits),
    "from cache": lambda k: number(k.hits),
}
_EXTRA = ("stages", "stages of it", "code", "compiled", "from cache", "configuration", "record")


# --- one kernel that could not be compiled --------------------------------------------------------


_LINE = re.compile(r"line (\d+)")
_AROUND = 3  # lines of PTX before and after a line named in the log
_MOST_LINES = 10  # how many of the PTX lines that the log names are shown


class RejectedKernel(Result, tag="failed kernel"):
    """A kernel that a Triton pass or ptxas rejected, with all that a bug report needs.

    path: its folder, with the output of all earlier stages. stage: the stage that failed. by: the ptxas, or the stage.
    error: the first error. log: the compiler's whole output. lines: PTX lines that the log names, and their neighbours,
    by number. source: file and line of the source from which the first PTX line in the log comes. ptxas, triton:
    versions. arguments: ptxas's options. options: the compile options.
    """

    verbs: ClassVar = "show CAPTURE"

    path: str
    kernel: str
    arch: str
    stage: str
    by: str
    error: str
    log: str
    lines: dict[str, str]
    ptxas: str | None
    arguments: tuple[str, ...] | None
    triton: str | None
    options: dict[str, Any]
    source: str | UnsetType = UNSET

    @classmethod
    def of(cls, folder: Path) -> RejectedKernel:
        """Read a rejected kernel's folder. Raises CaptureError if it is damaged."""
        rejected = read_rejected(folder)
        log, lines, place = rejected.text, _ptx_of(folder).splitlines(), _source(folder, rejected.text)
        source = UNSET if place is None else f"{place[0]}:{place[1]}"
        return like(rejected, cls, path=str(folder), log=log, lines=dict(_named(log, lines)), source=source)

    def summary(self) -> Summary:
        rows = [("target", self.arch), ("rejected by", self.by), ("Triton", number(self.triton))]
        rows += [("source line", self.source)] if self.source else []
        rows += [("ptxas options", " ".join(self.arguments))] if self.arguments is not None else []
        rows += [(name, short(text, 400)) for name, text in flat(self.options)]
        rows += [("files", self.path)]
        log = tuple((line,) for line in self.log.splitlines() if line.strip())
        tables = [Table("Kernel", ("", ""), tuple(rows), 2)]
        if self.lines:
            tables.append(Table("PTX at the lines that the log names", ("line", "text"), tuple(self.lines.items()), 2))
        verdict = f"{self.by} rejected {function_name(self.kernel)}: {self.error}"
        return Summary("Failed kernel", self.kernel, verdict, Tone.BAD, (), (*tables, Table("Log", ("",), log)))


def _ptx_of(folder: Path) -> str:
    ptx = folder / "kernel.ptx"
    return read_given(ptx).decode("utf-8", "replace") if ptx.exists() else ""


def _source(folder: Path, log: str) -> Place | None:
    """Find the source file and line of the first PTX line that a rejected kernel's log names."""
    first = _LINE.search(log)
    return None if first is None else source_places(_ptx_of(folder))(int(first[1]))


def _named(log: str, lines: list[str]) -> Iterator[tuple[str, str]]:
    named = list(dict.fromkeys(int(match) for match in _LINE.findall(log)))[:_MOST_LINES]
    shown = sorted({n for line in named for n in range(line - _AROUND, line + _AROUND + 1) if 0 < n <= len(lines)})
    for n in shown:
        yield str(n), ("> " if n in named else "  ") + lines[n - 1].expandtabs(4)
