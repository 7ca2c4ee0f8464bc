"""Find which version of ptxas changed a kernel first, between a good and a bad one.

The versions are those of the package index; the search fetches those it needs, and keeps them and its results. The
installed versions are tried first. Exit codes: 0 the good and the bad version give the same, 1 a version changed it, 2
trouble, or a kernel has no result under the good or the bad version.

  tritonhook bisect kernel.ptx --good 12.9.86 --bad 13.5.37 --on spills
  tritonhook bisect tritonhook.lock --good 12.9.86 --bad 13.5.37 --on registers
  tritonhook bisect tritonhook.lock --entry add --good 12.9.86 --bad 13.5.37 --all    # a table of every version
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tritonhook._util.text import say
from tritonhook._util.versions import is_version, version_key
from tritonhook.capture.model import Stage
from tritonhook.capture.selection import fits
from tritonhook.cli._inputs import KernelFile, OnlyKernel, is_folder, kernels_at, load_file, load_input, place
from tritonhook.cli._parser import Group, flag, option, part
from tritonhook.cli._progress import working
from tritonhook.cli._results import Results, give
from tritonhook.cli._sweeps import Sweep, running
from tritonhook.errors import ToolError, UsageError, listed
from tritonhook.ptx.module import Ptx
from tritonhook.ptxas.install import add_ptxas, released_versions
from tritonhook.ptxas.tool import Tool, available_ptxas
from tritonhook.ptxas.toolchain import DEFAULT_ARGUMENTS, STEADY_RUNS, may_draw
from tritonhook.snapshot.assembled import Task, all_drawn, disassembler
from tritonhook.snapshot.bisection import CODE, ON, Search, TriedVersion, bisect
from tritonhook.snapshot.facts import FIGURES, Disassemble, Identity, KernelFacts, sha256
from tritonhook.snapshot.lockfile import all_kept_ptx, is_lock, read_lock

_COUNTED = ("instructions", "loop_instructions")  # need nvdisasm


def _version(text: str) -> str:
    if not is_version(text):
        raise UsageError(f"--good and --bad: {text!r} is no version of ptxas; give one such as 12.9.86")
    return text


@dataclass(frozen=True, kw_only=True)
class Options(Group):
    kernel: str = place(metavar="KERNEL", help="PTX file, lock, capture folder, captured kernel or its id")
    good: str = option(type=_version, required=True, metavar="VERSION", help="the older ptxas, e.g. 12.9.86")
    bad: str = option(type=_version, required=True, metavar="VERSION", help="the newer ptxas, e.g. 13.5.37")
    on: str = option(choices=ON, default=CODE, metavar="FIGURE", help=f"figure to compare: {', '.join(ON)}")
    only: OnlyKernel = part(OnlyKernel)
    ptxas_options: str | None = option(
        "--options", metavar="'...'", help="ptxas options (default: the kernel's own, else -v -lineinfo)"
    )
    all: bool = flag(help="try every version, and show all of them")
    at_hand: bool = flag(help="use only installed versions; fetch none")
    sweep: Sweep = part(Sweep)
    results: Results = part(Results)


def run(options: Options) -> int:
    from tritonhook.report.results.bisect import Bisect

    kernels = _kernels(options)
    tools = _Tools({tool.version: tool for tool in reversed(list(available_ptxas()))})
    versions = _versions(options, tools)
    searches = [Search(kernel.locked.identity, options.on, versions) for kernel in kernels]
    assemble = _Assemble(kernels, tools, options.sweep, disassembler() if options.on in _COUNTED else None)
    ended = bisect(searches, assemble, frozenset(tools.at_hand), options.all)
    notes = [f"fetched ptxas {', '.join(tools.fetched)}"] if tools.fetched else []
    if any(may_draw(search.identity.arch) for search in ended):
        notes.append(
            "ptxas is not deterministic for sm_10x: each version was run several times, and all its codes count"
        )
    give(options.results, Bisect.of(options.kernel, ended, options.all, notes))
    if any(search.first for search in ended):
        return 1
    problems = [f"{search.identity.text}: {search.problem}" for search in ended if search.problem]
    if problems:
        more = f" (and the same for {len(problems) - 1:,} more)" if problems[1:] else ""
        say(f"tritonhook bisect: {problems[0]}{more}")
    return 2 if problems else 0


# --- the kernels ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Kernel:
    locked: KernelFacts
    ptx: str
    options: tuple[str, ...]


def _kernels(options: Options) -> list[_Kernel]:
    """Read the kernels to search for. Raises UsageError if there is none."""
    own = None if options.ptxas_options is None else tuple(options.ptxas_options.split())
    kernels = [
        _Kernel(locked, text, (locked.options or DEFAULT_ARGUMENTS) if own is None else own)
        for locked, text in _with_ptx(options.kernel, options.only.entry)
    ]
    if not kernels:
        raise UsageError(f"{options.kernel}: no kernel{f' {options.only.entry}' if options.only.entry else ''} in it")
    return kernels


def _with_ptx(place: str, entry: str | None) -> Iterator[tuple[KernelFacts, str]]:
    path = Path(place)
    if is_folder(place):
        (kernels,), _ = kernels_at(place)
        for capture, facts in kernels:
            if (entry == facts.identity.kernel or fits(entry, capture.kernel, capture.options)) and (
                text := capture.text(Stage.PTX)
            ) is not None:
                yield facts, text
    elif path.is_dir():
        loaded = load_input(place, entry)
        if loaded.ptx is None:
            raise UsageError(f"{place}: no PTX to assemble; capture it again")
        options = None if loaded.assembler is None else loaded.assembler.options
        yield _unknown(loaded.entry, loaded.ptx, options), loaded.ptx.text
    elif is_lock(path):
        locked = [kernel for kernel in read_lock(path) if entry in (None, kernel.identity.kernel, kernel.entry)]
        yield from zip(locked, all_kept_ptx(path, locked), strict=True)
    else:
        yield from _of_file(load_file(place), entry)


def _of_file(file: KernelFile, entry: str | None) -> Iterator[tuple[KernelFacts, str]]:
    if not isinstance(file.content, Ptx):
        raise UsageError(f"{file.label}: a cubin, which no ptxas can assemble; give its PTX, a lock or captures")
    for name in file.kernels:
        if entry in (None, name):
            yield _unknown(name, file.content, None), file.content.text


def _unknown(name: str, ptx: Ptx, options: tuple[str, ...] | None) -> KernelFacts:
    """Make facts for a kernel that has only PTX."""
    identity = Identity(name, ptx.target, "PTX")
    return KernelFacts(identity, name, {}, sha256(ptx.text), None, options, (), dict.fromkeys(FIGURES))


# --- the versions --------------------------------------------------------------------------------


@dataclass(slots=True)
class _Tools:
    """ptxas by version. fetched: versions downloaded by this run."""

    at_hand: dict[str, Tool]
    fetched: list[str] = field(default_factory=list)

    def get(self, version: str) -> Tool:
        """Return a version, fetched if it is not installed. Raises ToolError."""
        if version not in self.at_hand:
            with working(f"fetching ptxas {version} (about 30 MB)"):
                self.at_hand[version] = add_ptxas(version)
            self.fetched.append(version)
        return self.at_hand[version]


def _versions(options: Options, tools: _Tools) -> tuple[str, ...]:
    """List all versions from good to bad. Raises UsageError for a version that does not exist."""
    good, bad = options.good, options.bad
    known = set(tools.at_hand) | (set() if options.at_hand else set(_released()))
    for given, version in (("--good", good), ("--bad", bad)):
        if version not in known:
            where = "at hand" if options.at_hand else "on the package index"
            near = sorted(known, key=lambda other: _distance(other, version))[:5]
            raise UsageError(f"{given} {version}: no such version {where}; near it are {listed(near)}")
    if version_key(good) >= version_key(bad):
        raise UsageError(f"--good {good} --bad {bad}: give the older version as --good, even if it is the worse one")
    between = [it for it in known if version_key(good) <= version_key(it) <= version_key(bad)]
    return tuple(sorted(between, key=version_key))


def _distance(version: str, wanted: str) -> tuple[int, ...]:
    pairs = zip(version_key(version), version_key(wanted), strict=False)
    return tuple(abs(a - b) for a, b in pairs)


def _released() -> list[str]:
    with working("asking the package index for its versions of ptxas"):
        try:
            return released_versions()
        except ToolError as error:
            raise ToolError(f"{error}; --at-hand uses only installed versions") from None


@dataclass(frozen=True, slots=True)
class _Assemble:
    """Tries kernels under versions."""

    kernels: Sequence[_Kernel]
    tools: _Tools
    sweep: Sweep
    disassemble: Disassemble | None

    def __call__(self, wanted: Sequence[tuple[int, str]]) -> list[TriedVersion]:
        failures = self._fetch({version for _, version in wanted})
        tried = {pair: TriedVersion(pair[1], (), failures[pair[1]]) for pair in wanted if pair[1] in failures}
        for draws in (False, True):
            pairs = [pair for pair in wanted if pair not in tried and may_draw(self._arch(pair[0])) is draws]
            if pairs:
                tried |= dict(zip(pairs, self._assembled(pairs, draws), strict=True))
        return [tried[pair] for pair in wanted]

    def _arch(self, number: int) -> str:
        return self.kernels[number].locked.identity.arch

    def _fetch(self, versions: set[str]) -> dict[str, str]:
        """Fetch versions that are not installed. Returns the reason for each version that could not be fetched."""
        failures = {}
        for version in sorted(versions, key=version_key):
            try:
                self.tools.get(version)
            except ToolError as error:
                failures[version] = str(error)
        return failures

    def _assembled(self, pairs: Sequence[tuple[int, str]], draws: bool) -> list[TriedVersion]:
        kernels = [self.kernels[number] for number, _ in pairs]
        tasks = [
            Task(kernel.locked, kernel.ptx, self.tools.get(version), kernel.options)
            for kernel, (_, version) in zip(kernels, pairs, strict=True)
        ]
        runs = STEADY_RUNS + 1 if draws else 1
        with running(self.sweep) as (go, expect):
            expect(runs * len({task.input for task in tasks}))
            made = all_drawn(tasks, go, self.disassemble, runs)
        return [_tried(version, facts) for (_, version), facts in zip(pairs, made, strict=True)]


def _tried(version: str, facts: tuple[KernelFacts, ...]) -> TriedVersion:
    made = tuple(kernel for kernel in facts if not kernel.failure)
    return TriedVersion(version, made, "" if made else facts[0].failure)
