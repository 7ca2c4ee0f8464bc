"""Reading capture folders: CaptureFolder merges the indexes of all processes."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

from tritonhook._display import Brief, Notebook
from tritonhook._util.files import read_given, read_regular
from tritonhook.capture.launches.record import Launch
from tritonhook.capture.model import Capture
from tritonhook.capture.store.ids import digest_of, short_ids
from tritonhook.errors import CaptureError

_RUN = re.compile(r"(?P<command>[0-9a-f]{16})-(?P<started_ns>\d{1,19})(?: (?P<name>.{1,4096}))?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a program and all its processes.

    command: a hash. started_ns: time.time_ns at its start. name: of the script, module or program, without its
    arguments; "" if not known.
    """

    command: str
    started_ns: int
    name: str = ""

    @classmethod
    def of(cls, text: object) -> Run | None:
        """Read the run id that `tritonhook run` gave a process; None for a process outside of a run."""
        match = _RUN.fullmatch(text) if isinstance(text, str) else None
        return None if match is None else cls(match["command"], int(match["started_ns"]), match["name"] or "")


@dataclass(frozen=True, slots=True, repr=False)
class Sighting(Brief):
    """One kernel in one process. record: its folder. cache_hit: True if it came from Triton's disk cache. time_ns:
    time.time_ns of the event. run: the run of the process; None outside of `tritonhook run`. compile_us:
    microseconds of each compiler stage; empty if the kernel came from a cache, or was not timed."""

    record: str
    kernel: str
    cache_hit: bool
    process: str
    rank: str
    time_ns: int
    run: Run | None
    compile_us: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, repr=False)
class AutotunerChoice(Brief):
    """One choice of an autotuner in one process. winner: the chosen record. among: the records it tried."""

    winner: str
    among: tuple[str, ...]
    by: str
    process: str


@dataclass(frozen=True, slots=True, repr=False)
class RecordedLaunch(Brief):
    """A recorded launch of a record's kernel.

    folder: with the buffers' contents. count: launches of all processes with this grid and these arguments; None if no
    process lived to write its count.
    """

    record: str
    folder: Path
    launch: Launch
    count: int | None = None

    @property
    def key(self) -> str:
        return self.launch.key

    @property
    def path(self) -> Path:
        """Path of its file."""
        return self.folder / f"{self.key}.json"


@dataclass(frozen=True, slots=True, repr=False)
class Configurations(Brief):
    """The configurations of an autotuned function that were tried for a key: text by record, in Triton's form.

    key: "name=value" of the deciding arguments, then dtypes. chosen: the record that the autotuner took, in the last
    process that asked; in a dry run the first one. source: hash of the function's source; None if not known. by: the
    name of the autotuner's owner.
    """

    function: str
    key: tuple[str, ...]
    chosen: str
    by_record: Mapping[str, str]
    source: str | None = None
    by: str = "Triton"


def read_launch(path: Path, read: Callable[[Path, int], bytes] = read_given) -> Launch:
    """Read a launch from its JSON file, recorded or written by hand. Raises CaptureError."""
    from tritonhook._util.schema import MOST_JSON
    from tritonhook.capture.launches.schema import from_json

    try:
        data = read(path, MOST_JSON)
    except OSError as error:
        raise CaptureError(f"{path}: cannot be read: {error.strerror}") from None
    return from_json(data, str(path))


def read_launches(folder: Path) -> tuple[RecordedLaunch, ...]:
    """Read all launches in one kernel folder. Raises CaptureError if one is damaged."""
    return tuple(
        RecordedLaunch(folder.name, path.parent, read_launch(path, read_regular))
        for path in sorted((folder / "launches").glob("[!.]*.json"))
    )


@dataclass(frozen=True, slots=True, repr=False)
class CaptureFolder(Notebook):
    """A capture folder, as it was when it was opened.

    torn: number of unreadable index lines; a dying process leaves its last line incomplete. sources: files of the
    modules that processes of runs had loaded, without installed packages. runs: runs whose processes met kernels,
    oldest first, also in a partial view; their numbers begin with 1. crashes: the crash.json of each kernel that failed
    to compile. outdated: records left out of this view, because only earlier runs met them (`latest`). is_part: True
    for a view of some processes (`since`, `of_rank`), False for the whole folder. configurations: those that autotuners
    tried, also in dry runs, which measure nothing. launch_counts: number of launches by (record, key of the launch).
    unrecorded: why a launch of a record could not be recorded.
    """

    _shown: ClassVar[tuple[str, ...]] = ("path", "records", "processes")

    path: Path
    sightings: tuple[Sighting, ...]
    processes: tuple[Mapping[str, Any], ...]
    torn: int
    notes: tuple[str, ...] = ()
    is_part: bool = False
    tunings: tuple[AutotunerChoice, ...] = ()
    configurations: tuple[Configurations, ...] = ()
    launch_counts: Mapping[tuple[str, str], int] = field(default_factory=dict)
    unrecorded: Mapping[str, str] = field(default_factory=dict)
    sources: tuple[str, ...] = ()
    runs: tuple[Run, ...] = ()
    outdated: frozenset[str] = frozenset()
    crashes: tuple[Path, ...] = ()
    _captures: dict[str, Capture] = field(default_factory=dict, init=False, repr=False, compare=False)
    _by_record: dict[str, tuple[Sighting, ...]] = field(default_factory=dict, init=False, repr=False, compare=False)

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> CaptureFolder:
        """Read and merge all indexes. Raises CaptureError if `path` is not a capture folder."""
        path = Path(path)
        if not (path / "index").is_dir():
            what = "a file, not a capture folder" if path.is_file() else "not a capture folder (it has no index/)"
            what = what if path.exists() else "no such file or folder"
            raise CaptureError(f"{path}: {what}; {_remedy(path)}")
        return replace(_merged(path, _indexes(path)), crashes=tuple(sorted((path / "crashes").glob("*/crash.json"))))

    def since(self, started_ns: int) -> CaptureFolder:
        """Select the part written by processes that started at or after this time (of time.time_ns)."""
        newer = _merged(self.path, [path for path in _indexes(self.path) if _started_ns(path) >= started_ns])
        crashes = self._crashes(lambda time_ns, run: time_ns >= started_ns)
        return replace(newer, runs=self.runs, crashes=crashes, is_part=True)

    @property
    def ranks(self) -> tuple[str, ...]:
        """The ranks of the processes that met kernels; "-" for processes without a rank."""
        return tuple(sorted({s.rank for s in self.sightings}, key=lambda rank: (len(rank), rank)))

    def of_rank(self, rank: str) -> CaptureFolder:
        """Select the part written by processes of one rank. Raises CaptureError if there is none."""
        if rank not in self.ranks:
            known = ", ".join(rank for rank in self.ranks if rank != "-")
            there = f"the ranks here are {known}" if known else "its processes have no ranks"
            raise CaptureError(f"{self.path}: no kernel of rank {rank}; {there}")
        return self._only(tuple(s for s in self.sightings if s.rank == rank), lambda p: str(p.get("rank", "-")) == rank)

    def _only(self, sightings: tuple[Sighting, ...], is_its: Callable[[Mapping[str, Any]], bool]) -> CaptureFolder:
        """Select the part with these sightings and processes."""
        names = {s.process for s in sightings}
        return replace(
            self,
            sightings=sightings,
            processes=tuple(p for p in self.processes if is_its(p)),
            tunings=tuple(t for t in self.tunings if t.process in names),
            is_part=True,
        )

    @property
    def records(self) -> tuple[str, ...]:
        """Names of the kernel folders, in the order of their first sighting. Records that no index names come last:
        their process died before it wrote the line. A partial view has none of these."""
        listed = dict.fromkeys(s.record for s in self.sightings)
        if not self.is_part:
            stored = sorted(p.name for p in (self.path / "kernels").glob("[!.]*") if (p / "capture.json").exists())
            listed |= dict.fromkeys(stored)
        return tuple(record for record in listed if record not in self.outdated)

    @property
    def ids(self) -> dict[str, str]:
        """The short id of each record."""
        return short_ids(self.records)

    def find(self, prefix: str) -> str | None:
        """Find the folder of the kernel whose id begins with `prefix`, such as kernels/add-0123; None if there is
        none. Raises CaptureError if several match."""
        names = {record: f"kernels/{record}" for record in self.records}
        names |= {path.parent.name: f"crashes/{path.parent.name}" for path in self.crashes}
        matching = [name for name in names if digest_of(name).startswith(prefix)]
        if len(matching) > 1:
            ids = short_ids(list(names))
            listed = "".join(f"\n  {ids[name]}  {name}" for name in matching)
            raise CaptureError(f"{prefix}: the ids of {len(matching)} kernels begin so; give more of one:{listed}")
        return names[matching[0]] if matching else None

    @property
    def lost(self) -> frozenset[str]:
        """Records that lost every autotuning they were in: they were measured, but do not run in the program."""
        won = {tuning.winner for tuning in self.tunings}
        return frozenset(record for tuning in self.tunings for record in tuning.among) - won

    @property
    def failed(self) -> dict[str, tuple[str, str]]:
        """The kernels that failed to compile: by folder, the name and the error. A configuration that an autotuner
        rejected is none of them: the program runs another one."""
        from tritonhook.capture.store.schema import read_rejected

        tuned = {tried.function for tried in self.configurations}
        found = dict[str, tuple[str, str]]()
        for place in (path.parent for path in self.crashes):
            try:
                rejected = read_rejected(place)
                failure = rejected.kernel, f"not compiled: {rejected.error}"
            except CaptureError as error:
                failure = place.name, str(error)
            if failure[0] not in tuned and failure not in found.values():
                found[place.name] = failure
        return found

    @property
    def running(self) -> tuple[str, ...]:
        """The records that run in the program: all except the lost ones."""
        lost = self.lost
        return tuple(record for record in self.records if record not in lost)

    def latest(self) -> CaptureFolder:
        """Drop the records that no process met after the start of the latest run of the same command.

        A process of an earlier run may still be active then, for example on another node: its later sightings count. So
        do sightings outside of runs.
        """
        last = {run.command: run.started_ns for run in self.runs}

        def is_outdated(record: str) -> bool:
            seen = self.seen(record)
            return bool(seen) and all(s.run is not None and s.time_ns < last[s.run.command] for s in seen)

        crashes = self._crashes(lambda time_ns, run: run is None or time_ns >= last.get(run.command, 0))
        return replace(self, outdated=frozenset(filter(is_outdated, self.records)), crashes=crashes)

    def previous(self, number: int | None = None) -> tuple[int, int]:
        """Return the numbers of two runs: a run, by default the latest, and the run of the same command before it.
        Raises CaptureError if there is no such pair."""
        number = len(self.runs) if number is None else number
        command = self.runs[number - 1].command if self.runs else ""
        before = [n for n, run in enumerate(self.runs[: max(number - 1, 0)], 1) if run.command == command]
        if not before:
            raise CaptureError(
                f"{self.path}: no command has two runs with kernels; `tritonhook run script.py`, again after an edit"
            )
        return before[-1], number

    def of_run(self, number: int) -> CaptureFolder:
        """Select the part written by the processes of one run. Raises CaptureError if there is no such run."""
        if not 1 <= number <= len(self.runs):
            there = f"its runs are 1 to {len(self.runs)}" if self.runs else "`tritonhook run` has written none"
            raise CaptureError(f"{self.path}: no run {number}; {there}")
        run = self.runs[number - 1]
        part = self._only(tuple(s for s in self.sightings if s.run == run), lambda p: Run.of(p.get("run")) == run)
        return replace(part, crashes=self._crashes(lambda time_ns, other: other == run))

    def capture(self, record: str) -> Capture:
        """Read one capture; its artifacts are read on first use. Raises CaptureError if it is damaged."""
        from tritonhook.capture.store.schema import read_capture

        if record not in self._captures:
            self._captures[record] = read_capture(self.path / "kernels" / record)
        return self._captures[record]

    def try_capture(self, record: str) -> Capture | CaptureError:
        """Read one capture, or return its error: one bad record must not end a listing."""
        try:
            return self.capture(record)
        except CaptureError as error:
            return error

    def captures(self) -> dict[str, Capture | CaptureError]:
        """Read all records, in order: each with its capture or its error."""
        return {record: self.try_capture(record) for record in self.records}

    def launches(self, record: str) -> tuple[RecordedLaunch, ...]:
        """Read the recorded launches of a record's kernel, the most frequent first. Raises CaptureError if one is
        damaged."""
        recorded = read_launches(self.path / "kernels" / record)
        counted = [replace(launch, count=self.launch_counts.get((record, launch.key))) for launch in recorded]
        return tuple(sorted(counted, key=lambda launch: -(launch.count or 0)))

    def compile_us(self, record: str) -> Mapping[str, int]:
        """Return the microseconds of each stage in the latest compile of a record's kernel; empty if not known."""
        known = [sighting for sighting in self.seen(record) if sighting.compile_us]
        return max(known, key=lambda sighting: sighting.time_ns).compile_us if known else {}

    def seen(self, record: str) -> tuple[Sighting, ...]:
        """Return the sightings of a record's kernel, the first one first."""
        if not self._by_record:  # grouped once: a search per record took 4.5 s for 2,000 kernels of 64 processes
            grouped: dict[str, list[Sighting]] = {}
            for sighting in self.sightings:
                grouped.setdefault(sighting.record, []).append(sighting)
            self._by_record.update({name: tuple(several) for name, several in grouped.items()})
        return self._by_record.get(record, ())

    def _crashes(self, is_wanted: Callable[[int, Run | None], bool]) -> tuple[Path, ...]:
        """Select crashes by time and run; unreadable ones are always included. is_wanted: takes time_ns and run."""
        from tritonhook.capture.store.schema import read_rejected

        def wanted(path: Path) -> bool:
            with suppress(CaptureError):
                rejected = read_rejected(path.parent)
                return is_wanted(rejected.time_ns, Run.of(rejected.run))
            return True

        return tuple(filter(wanted, self.crashes))


# --- merging indexes -----------------------------------------------------------------------------


def _merged(path: Path, indexes: Sequence[Path]) -> CaptureFolder:
    from tritonhook.capture.store.schema import check_format

    sightings: dict[tuple[str, str], Sighting] = {}
    processes: list[Mapping[str, Any]] = []
    notes: list[str] = []
    tunings: dict[tuple[str, str], AutotunerChoice] = {}
    configured: dict[tuple[str, tuple[str, ...]], Configurations] = {}
    counts: dict[tuple[str, str], int] = {}
    unrecorded: dict[str, str] = {}
    sources: dict[str, None] = {}
    torn = 0
    for index, header, kind, item in _lines(indexes):
        # Two sessions of one process can write to one folder, each its own index; the process met the kernel once.
        process = _process_of(header) or index.stem
        if kind == "format":
            check_format(index, item["format"])
            processes.append(item)
        elif kind == "record":
            sighting = Sighting(
                item["record"],
                item["kernel"],
                item["cache_hit"],
                index.stem,
                str(header.get("rank", "-")),
                item["time_ns"],
                Run.of(header.get("run")),
                item.get("compile_us") or {},
            )
            sightings.setdefault((item["record"], process), sighting)
        elif kind == "winner":
            chosen = AutotunerChoice(item["winner"], tuple(item["among"]), item["by"], index.stem)
            if (earlier := tunings.get((process, item["tuning"]))) is not None:
                chosen = replace(chosen, among=tuple(dict.fromkeys([*earlier.among, *chosen.among])))
            tunings[process, item["tuning"]] = chosen
        elif kind == "configurations":
            what = item["function"], tuple(item["key"]), item["chosen"], item["configurations"]
            read = Configurations(*what, item.get("source"), item.get("by", "Triton"))
            if (known := configured.get((read.function, read.key))) is not None:
                read = replace(read, by_record={**known.by_record, **read.by_record})
            configured[read.function, read.key] = read
        elif kind == "launch":
            launched = item["of"], item["launch"]
            counts[launched] = counts.get(launched, 0) + item["count"]
        elif kind == "notes":
            notes += item["notes"]
            unrecorded |= item.get("unrecorded", {})
            sources |= dict.fromkeys(item.get("sources", ()))
        else:
            torn += 1
    return CaptureFolder(
        path,
        tuple(sightings.values()),
        tuple(processes),
        torn,
        tuple(dict.fromkeys(notes)),
        tunings=tuple(tunings.values()),
        configurations=tuple(configured.values()),
        launch_counts=counts,
        unrecorded=unrecorded,
        sources=tuple(sources),
        runs=tuple(sorted({s.run for s in sightings.values() if s.run}, key=lambda run: (run.started_ns, run.command))),
    )


def _lines(indexes: Sequence[Path]) -> Iterator[tuple[Path, Mapping[str, Any], str | None, Any]]:
    """Yield each line of each index as (index, its header so far, kind of line, values)."""
    from tritonhook.capture.store.schema import read_index

    for index in indexes:
        header: Mapping[str, Any] = {}
        for kind, item in read_index(index):
            if kind == "format":
                header = item
            yield index, header, kind, item


def _indexes(path: Path) -> list[Path]:
    """List the index files. Raises CaptureError if the folder cannot be listed: `glob` would find nothing, without
    error."""
    try:
        files = list((path / "index").iterdir())
    except OSError as error:
        raise CaptureError(f"{path / 'index'}: cannot read: {error.strerror}") from None
    return sorted(index for index in files if index.suffix == ".jsonl" and index.exists() and not index.is_dir())


def _remedy(path: Path) -> str:
    """Advise on a path that is not a capture folder."""
    if not path.exists() and path.suffix:  # meant as a file: kernel.ptx, libkernels.so
        return "check the path; `tritonhook run --out FOLDER script.py` makes a capture folder"
    if not path.exists():
        return f"`tritonhook run --out {path} script.py` makes a capture folder"
    if path.is_file():
        return "give the folder that `tritonhook run --out FOLDER script.py` makes"
    if path.exists() and (path.absolute().parent / "index").is_dir():
        return f"give {path.parent}"
    return f"make one with `tritonhook run --out {path} script.py`"


def _started_ns(index: Path) -> int:
    """Read an index's start time from its name; 0 for a file that another program put there."""
    number = index.stem.rpartition("-")[2]
    return int(number) if number.isdecimal() else 0


def _process_of(header: Mapping[str, Any]) -> str | None:
    """Return a name for the process, unique across hosts; None if the header is torn."""
    parts = [header.get(name) for name in ("host", "pid", "process_ns")]
    return None if None in parts else str(parts)
