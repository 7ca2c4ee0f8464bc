"""Find the first version of ptxas that changed a kernel, between a good and a bad version.

The search tries installed versions first, and fetches others from the package index if need be. It keeps them and its
results. Exit codes: 0 the good and the bad version agree, 1 a version changed the kernel, 2 error, or a
kernel has no result under the good or the bad version.

  tritonhook bisect kernel.ptx --good 12.9.86 --bad 13.5.37 --on spills
  tritonhook bisect tritonhook.lock --good 12.9.86 --bad 13.5.37 --on registers
  tritonhook bisect tritonhook.lock --entry add --good 12.9.86 --bad 13.5.37 --all    # a table of every version
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

from tritonhook._util.text import say
from tritonhook._util.versions import is_version, version_key
from tritonhook.capture.model import Stage
from tritonhook.capture.selection import fits
from tritonhook.cli._inputs import OnlyKernel, is_folder, kernels_at, load_file, load_input, options_option, place
from tritonhook.cli._parser import Group, flag, option, part
from tritonhook.cli._progress import working
from tritonhook.cli._results import Results, give
from tritonhook.cli._sweeps import Sweep, running
from tritonhook.errors import ToolError, UsageError, listed
from tritonhook.ptx.module import Ptx
from tritonhook.ptxas.install import add_ptxas, released_versions
from tritonhook.ptxas.tool import Tool, available_ptxas
from tritonhook.ptxas.toolchain import DEFAULT_ARGUMENTS, STEADY_RUNS, may_draw
from tritonhook.report.result import count
from tritonhook.snapshot.assembled import Task, all_drawn, disassembler
from tritonhook.snapshot.bisection import CODE, ON, Search, TriedVersion, bisect
from tritonhook.snapshot.facts import FIGURES, Identity, KernelFacts, sha256
from tritonhook.snapshot.lockfile import all_kept_ptx, is_lock, read_whole_lock

_COUNTED = ("instructions", "loop_instructions")  # figures that need nvdisasm


def _version(text: str) -> str:
    if not is_version(text):
        raise UsageError(f"--good and --bad: {text!r} is no version of ptxas; give a full version such as 12.9.86")
    return text


@dataclass(frozen=True, kw_only=True)
class Options(Group):
    kernel: str = place(metavar="KERNEL", help="PTX file, lock, capture folder, captured kernel or its id")
    good: str = option(type=_version, required=True, metavar="VERSION", help="the older ptxas, e.g. 12.9.86")
    bad: str = option(type=_version, required=True, metavar="VERSION", help="the newer ptxas, e.g. 13.5.37")
    on: str = option(choices=ON, default=CODE, metavar="FIGURE", help=f"figure to compare: {', '.join(ON)}")
    only: OnlyKernel = part(OnlyKernel)
    ptxas_options: str | None = options_option("the kernel's own, else -v -lineinfo")
    all: bool = flag(help="try every version, and show all of them")
    at_hand: bool = flag(help="use only installed versions; fetch none")
    sweep: Sweep = part(Sweep)
    results: Results = part(Results)


def run(options: Options) -> int:
    from tritonhook.report.results.bisect import Bisect

    kernels = list(_kernels(options))
    if not kernels:
        only = f" {options.only.entry}" if options.only.entry else ""
        raise UsageError(f"{options.kernel}: no kernel{only} in it")
    tools = {tool.version: tool for tool in reversed(list(available_ptxas()))}
    at_hand, versions = frozenset(tools), _versions(options, tools)
    searches = [Search(kernel.locked.identity, options.on, versions) for kernel in kernels]
    ended = bisect(searches, partial(_tried, options, kernels, tools), at_hand, options.all)
    fetched = [version for version in tools if version not in at_hand]
    notes = [f"fetched ptxas {', '.join(fetched)}"] if fetched else []
    if any(may_draw(search.identity.arch) for search in ended):
        notes.append(
            "ptxas is not deterministic for sm_10x: each version was run several times, and all its codes were compared"
        )
    give(options.results, Bisect.of(options.kernel, ended, options.all, notes))
    if any(search.first for search in ended):
        return 1
    problems = [f"{search.identity.text}: {search.problem}" for search in ended if search.problem]
    if problems:
        more = f" (and {count(len(problems) - 1, 'further kernel')} without a result)" if problems[1:] else ""
        say(f"tritonhook bisect: {problems[0]}{more}")
    return 2 if problems else 0


class _Kernel(NamedTuple):
    """A kernel to bisect. locked: its name, target and facts. options: ptxas options."""

    locked: KernelFacts
    ptx: str
    options: tuple[str, ...]


def _kernels(options: Options) -> Iterator[_Kernel]:
    """Read the kernels to bisect. Raises UsageError."""
    place, entry = options.kernel, options.only.entry
    given = None if options.ptxas_options is None else tuple(options.ptxas_options.split())

    def kernel(locked: KernelFacts, text: str) -> _Kernel:
        return _Kernel(locked, text, (locked.options or DEFAULT_ARGUMENTS) if given is None else given)

    def without_facts(name: str, ptx: Ptx, own: tuple[str, ...] | None = None) -> _Kernel:
        identity, figures = Identity(name, ptx.target, "PTX"), dict.fromkeys(FIGURES)
        return kernel(KernelFacts(identity, name, {}, sha256(ptx.text), None, own, (), figures), ptx.text)

    if is_folder(place):
        (captured,), _ = kernels_at(place)
        for capture, facts in captured:
            text = capture.text(Stage.PTX)
            named = entry == facts.identity.kernel or fits(entry, capture.kernel, capture.options)
            if named and text is not None:
                yield kernel(facts, text)
    elif Path(place).is_dir():
        loaded = load_input(place, entry)
        if loaded.ptx is None:
            raise UsageError(f"{place}: no PTX to assemble; capture it again")
        own = None if loaded.assembler is None else loaded.assembler.options
        yield without_facts(loaded.entry, loaded.ptx, own)
    elif is_lock(Path(place)):
        known = [it for it in read_whole_lock(Path(place)).kernels if entry in (None, it.identity.kernel, it.entry)]
        yield from map(kernel, known, all_kept_ptx(Path(place), known))
    else:
        file = load_file(place)
        if not isinstance(file.content, Ptx):
            raise UsageError(f"{file.label}: a cubin, which no ptxas can assemble; give its PTX, a lock or captures")
        for name in file.kernels:
            if entry in (None, name):
                yield without_facts(name, file.content)


def _versions(options: Options, at_hand: Collection[str]) -> tuple[str, ...]:
    """List all versions from good to bad. Raises UsageError for a version that does not exist."""
    good, bad, known = options.good, options.bad, set(at_hand)
    if not options.at_hand:
        with working("fetching the list of ptxas versions from the package index"):
            try:
                known |= set(released_versions())
            except ToolError as error:
                raise ToolError(f"{error}; --at-hand uses only installed versions") from None
    for given, version in (("--good", good), ("--bad", bad)):
        if version not in known:
            where = "is installed" if options.at_hand else "is on the package index"
            near = sorted(known, key=lambda other: _distance(other, version))[:5]
            raise UsageError(f"{given} {version}: no such version {where}; the nearest are {listed(near)}")
    if version_key(good) >= version_key(bad):
        raise UsageError(f"--good {good} --bad {bad}: give the older version as --good, even if it is the worse one")
    between = [it for it in known if version_key(good) <= version_key(it) <= version_key(bad)]
    return tuple(sorted(between, key=version_key))


def _distance(version: str, wanted: str) -> tuple[int, ...]:
    pairs = zip(version_key(version), version_key(wanted), strict=False)
    return tuple(abs(a - b) for a, b in pairs)


def _tried(
    options: Options, kernels: Sequence[_Kernel], tools: dict[str, Tool], wanted: Sequence[tuple[int, str]]
) -> list[TriedVersion]:
    """Assemble kernels by versions of ptxas. wanted: (index into `kernels`, version). tools: the ptxas by version;
    fetched ones are added."""
    failures: dict[str, str] = {}
    for version in sorted({version for _, version in wanted} - tools.keys(), key=version_key):
        try:
            with working(f"fetching ptxas {version} (about 30 MB)"):
                tools[version] = add_ptxas(version)
        except ToolError as error:
            failures[version] = str(error)
    tried: dict[tuple[int, str], TriedVersion] = {}
    for draws in (False, True):
        pairs = [(n, v) for n, v in wanted if v in tools and may_draw(kernels[n].locked.identity.arch) is draws]
        tasks = [Task(kernels[n].locked, kernels[n].ptx, tools[version], kernels[n].options) for n, version in pairs]
        if not tasks:
            continue
        runs = STEADY_RUNS + 1 if draws else 1
        with running(options.sweep) as (go, expect):
            expect(runs * len({task.input for task in tasks}))
            drawn = all_drawn(tasks, go, disassembler() if options.on in _COUNTED else None, runs)
        for pair, facts in zip(pairs, drawn, strict=True):
            made = tuple(kernel for kernel in facts if not kernel.failure)
            tried[pair] = TriedVersion(pair[1], made, "" if made else facts[0].failure)
    return [tried.get((n, version)) or TriedVersion(version, (), failures[version]) for n, version in wanted]
