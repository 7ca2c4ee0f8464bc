"""Read capture folders: CaptureFolder merges the indexes of all processes."""

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
    """One `tritonhook run` of a program, with all its processes.

    command: hash of the command. started_ns: time.time_ns at its start. name: name of the script, module or program,
    without arguments; "" if not known.
    """

    command: str
    started_ns: int
    name: str = ""

    @classmethod
    def of(cls, text: object) -> Run | None:
        """Read a run id from an index or a crash.json; None for a process outside of `tritonhook run`."""
        match = _RUN.fullmatch(text) if isinstance(text, str) else None
        return None if match is None else cls(match["command"], int(match["started_ns"]), match["name"] or "")


@dataclass(frozen=True, slots=True, repr=False)
class Sighting(Brief):
    """The first compile or load of one kernel in one process. record: name of the kernel's folder. cache_hit: True if
    the kernel came from Triton's disk cache. time_ns: time.time_ns of this event. run: the run of the process; None
    outside of `tritonhook run`. compile_us: microseconds of each compiler stage; empty if the kernel came from a cache
    or its compile was not timed."""

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
    """One choice of an autotuner in one process. winner: the chosen record. among: the records that it tried. by: name
    of the autotuner."""

    winner: str
    among: tuple[str, ...]
    by: str
    process: str


@dataclass(frozen=True, slots=True, repr=False)
class RecordedLaunch(Brief):
    """A recorded launch of a record's kernel.

    folder: folder of the launch's JSON file and its buffers' contents. count: number of launches with this grid and
    these arguments, in all processes; None if every process died before it wrote its count.
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
        """Path of the launch's JSON file."""
        return self.folder / f"{self.key}.json"


@dataclass(frozen=True, slots=True, repr=False)
class Configurations(Brief):
    """The configurations that an autotuner tried for one key of a function.

    key: "name=value" of each argument in the autotuner's key, then the dtypes. by_record: each configuration as text in
    Triton's format, by record. chosen: the record that the autotuner chose, in the last process that autotuned; in a
    dry run the first one. source: hash of the function's source; None if not known. by: "Triton" or "Inductor".
    """

    function: str
    key: tuple[str, ...]
    chosen: str
    by_record: Mapping[str, str]
    source: str | None = None
    by: str = "Triton"


def read_launch(path: Path, read: Callable[[Path, int], bytes] = read_given) -> Launch:
    """Read a launch from its JSON file, recorded or written by hand. read: reads the file, up to a limit in bytes.
    Raises CaptureError if the file is unreadable or wrong."""
    from tritonhook._util.schema import MOST_JSON
    from tritonhook.capture.launches.schema import from_json

    try:
        data = read(path, MOST_JSON)
    except OSError as error:
        raise CaptureError(f"{path}: cannot be read: {error.strerror}") from None
    return from_json(data, str(path))


def read_launches(folder: Path) -> tuple[RecordedLaunch, ...]:
    """Read all launches in one kernel folder. Raises CaptureError if a launch is damaged."""
    return tuple(
        RecordedLaunch(folder.name, path.parent, read_launch(path, read_regular))
        for path in sorted((folder / "launches").glob("[!.]*.json"))
    )


@dataclass(frozen=True, slots=True, repr=False)
class CaptureFolder(Notebook):
    """The contents that a capture folder had when it was opened. They are of the whole folder, or only of some
    processes or runs.

    processes: headers of the indexes. torn: number of unreadable index lines; a dying process leaves its last line
    incomplete. sources: files of the Python modules that processes of runs had loaded, without installed packages.
    runs: all runs of the folder that used kernels, oldest first; run numbers begin with 1. crashes: the crash.json of
    each kernel that failed to compile. outdated: records left out because only earlier runs used them (`latest`).
    is_part: True if limited to some processes or one run (`since`, `of_rank`, `of_run`), False for the whole folder.
    configurations: the configurations that autotuners tried; dry runs, which measure nothing, are included.
    launch_counts: number of launches by (record, key of the launch). unrecorded: reason why a launch could not be
    recorded, by record.
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
        """Select the part written by processes that started at or after this time, in time.time_ns."""
        newer = _merged(self.path, [path for path in _indexes(self.path) if _started_ns(path) >= started_ns])
        crashes = self._crashes(lambda time_ns, run: time_ns >= started_ns)
        return replace(newer, runs=self.runs, crashes=crashes, is_part=True)

    @property
    def ranks(self) -> tuple[str, ...]:
        """The ranks of the processes that used kernels; "-" for processes without a rank."""
        return tuple(sorted({s.rank for s in self.sightings}, key=lambda rank: (len(rank), rank)))

    def of_rank(self, rank: str) -> CaptureFolder:
        """Select the part written by processes of one rank. Raises CaptureError if no process with this rank used
        kernels."""
        if rank not in self.ranks:
            known = ", ".join(rank for rank in self.ranks if rank != "-")
            there = f"the ranks here are {known}" if known else "its processes have no ranks"
            raise CaptureError(f"{self.path}: no kernel of rank {rank}; {there}")
        return self._only(tuple(s for s in self.sightings if s.rank == rank), lambda p: str(p.get("rank", "-")) == rank)

    def _only(self, sightings: tuple[Sighting, ...], is_its: Callable[[Mapping[str, Any]], bool]) -> CaptureFolder:
        """Return the folder with only these sightings, and only the processes that `is_its` accepts."""
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
        """Names of the kernel folders, in the order of their first sighting. Records that no index lists come last:
        their process died before it wrote the line. They are omitted if `is_part`."""
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
        """Find the folder of the kernel whose id begins with `prefix`, e.g. "kernels/add-0123"; None if no id matches.
        Raises CaptureError if several match."""
        names = {record: f"kernels/{record}" for record in self.records}
        names |= {path.parent.name: f"crashes/{path.parent.name}" for path in self.crashes}
        matching = [name for name in names if digest_of(name).startswith(prefix)]
        if len(matching) > 1:
            ids = short_ids(list(names))
            listed = "".join(f"\n  {ids[name]}  {name}" for name in matching)
            raise CaptureError(f"{prefix}: the ids of {len(matching)} kernels begin so; give more digits:{listed}")
        return names[matching[0]] if matching else None

    @property
    def lost(self) -> frozenset[str]:
        """Records that lost every autotuning: they were measured, but the program does not use them."""
        won = {tuning.winner for tuning in self.tunings}
        return frozenset(record for tuning in self.tunings for record in tuning.among) - won

    @property
    def failed(self) -> dict[str, tuple[str, str]]:
        """(name, error) of each kernel that failed to compile, by folder. Failed configurations of an autotuned
        function are omitted: the program runs another configuration."""
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
        """The records that the program runs: all except `lost`."""
        lost = self.lost
        return tuple(record for record in self.records if record not in lost)

    def latest(self) -> CaptureFolder:
        """Drop the records that no process used after the start of the latest run of the same command.

        A record is also kept if a process outside of runs used it, or if a process of an earlier run used it after that
        start. Such a process may still be active, for example on another node.
        """
        last = {run.command: run.started_ns for run in self.runs}

        def is_outdated(record: str) -> bool:
            seen = self.seen(record)
            return bool(seen) and all(s.run is not None and s.time_ns < last[s.run.command] for s in seen)

        crashes = self._crashes(lambda time_ns, run: run is None or time_ns >= last.get(run.command, 0))
        return replace(self, outdated=frozenset(filter(is_outdated, self.records)), crashes=crashes)

    def previous(self, number: int | None = None) -> tuple[int, int]:
        """Return (number of the previous run of the same command, `number`). number: by default the latest run. Raises
        CaptureError if there is no previous run."""
        number = len(self.runs) if number is None else number
        command = self.runs[number - 1].command if self.runs else ""
        before = [n for n, run in enumerate(self.runs[: max(number - 1, 0)], 1) if run.command == command]
        if not before:
            raise CaptureError(
                f"{self.path}: no earlier run of the same command; use `tritonhook run` before and after an edit"
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
        """Read one capture. Its artifacts are read on first use. Raises CaptureError if it is damaged."""
        from tritonhook.capture.store.schema import read_capture

        if record not in self._captures:
            self._captures[record] = read_capture(self.path / "kernels" / record)
        return self._captures[record]

    def try_capture(self, record: str) -> Capture | CaptureError:
        """Read one capture, or return its error, so that a listing goes on after a damaged record."""
        try:
            return self.capture(record)
        except CaptureError as error:
            return error

    def captures(self) -> dict[str, Capture | CaptureError]:
        """Read all captures, in the order of `records`. A damaged record has its error as value."""
        return {record: self.try_capture(record) for record in self.records}

    def launches(self, record: str) -> tuple[RecordedLaunch, ...]:
        """Read the recorded launches of a record's kernel, the most frequent first. Raises CaptureError if a launch is
        damaged."""
        recorded = read_launches(self.path / "kernels" / record)
        counted = [replace(launch, count=self.launch_counts.get((record, launch.key))) for launch in recorded]
        return tuple(sorted(counted, key=lambda launch: -(launch.count or 0)))

    def compile_us(self, record: str) -> Mapping[str, int]:
        """Return the microseconds of each compiler stage in the latest compile of a record; empty if not known."""
        known = [sighting for sighting in self.seen(record) if sighting.compile_us]
        return max(known, key=lambda sighting: sighting.time_ns).compile_us if known else {}

    def seen(self, record: str) -> tuple[Sighting, ...]:
        """Return the sightings of a record."""
        if not self._by_record:  # group once: a search per record took 4.5 s for 2,000 kernels of 64 processes
            grouped: dict[str, list[Sighting]] = {}
            for sighting in self.sightings:
                grouped.setdefault(sighting.record, []).append(sighting)
            self._by_record.update({name: tuple(several) for name, several in grouped.items()})
        return self._by_record.get(record, ())

    def _crashes(self, is_wanted: Callable[[int, Run | None], bool]) -> tuple[Path, ...]:
        """Select crashes by time and run. Unreadable crash.json files are always included. is_wanted: called with
        time_ns and run."""
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
        # Two sessions of one process can write to one folder, each with an index: count the process's kernel once.
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
    """Yield each line of each index as (index, its latest header, kind of line, values)."""
    from tritonhook.capture.store.schema import read_index

    for index in indexes:
        header: Mapping[str, Any] = {}
        for kind, item in read_index(index):
            if kind == "format":
                header = item
            yield index, header, kind, item


def _indexes(path: Path) -> list[Path]:
    """List the index files. Raises CaptureError if the folder cannot be listed; `glob` would return nothing, without
    error."""
    try:
        files = list((path / "index").iterdir())
    except OSError as error:
        raise CaptureError(f"{path / 'index'}: cannot read: {error.strerror}") from None
    return sorted(index for index in files if index.suffix == ".jsonl" and index.exists() and not index.is_dir())


def _remedy(path: Path) -> str:
    """Return advice for a path that is not a capture folder."""
    if not path.exists() and path.suffix:  # probably meant as a file, e.g. kernel.ptx, libkernels.so
        return "check the path; `tritonhook run --out FOLDER script.py` makes a capture folder"
    if not path.exists():
        return f"`tritonhook run --out {path} script.py` makes a capture folder"
    if path.is_file():
        return "give the folder that `tritonhook run --out FOLDER script.py` makes"
    if (path.absolute().parent / "index").is_dir():
        return f"give {path.parent}"
    return f"make one with `tritonhook run --out {path} script.py`"


def _started_ns(index: Path) -> int:
    """Read an index's start time (ns) from its file name; 0 for a file that another program made."""
    number = index.stem.rpartition("-")[2]
    return int(number) if number.isdecimal() else 0


def _process_of(header: Mapping[str, Any]) -> str | None:
    """Return a name for the process, unique across hosts; None if the header is incomplete."""
    parts = [header.get(name) for name in ("host", "pid", "process_ns")]
    return None if None in parts else str(parts)
