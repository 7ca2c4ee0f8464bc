"""Find which names change a kernel's code, across ptxas versions, architectures and options.

Each cell compares a kernel under a name with the same kernel under a control name of equal length. The cells of .pragma
compare the kernel with `.pragma "mma_throughput"` and without it. A difference counts only if more runs confirm it
(docs/explanation/ptxas-lab.md). Results are cached: a second run assembles nothing. Exit codes: 0 nothing changes the
code, 1 something does, 2 error, or nothing could be compared.

  tritonhook lab probe kernel.ptx --ptxas 12.8.93,13.5.37 --arch sm_90a,sm_100a
  tritonhook lab probe kernel.ptx --ptxas all --names 'cutlass_*,gemm_*'
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from tritonhook._util.versions import version_key
from tritonhook.cli._inputs import (
    Input,
    check_entry,
    chosen_arguments,
    chosen_assembler,
    kernels_there,
    load_input,
    options_option,
    place,
)
from tritonhook.cli._parser import Group, option, part, words
from tritonhook.cli._results import Results, give
from tritonhook.cli._sweeps import Sweep, running, wanted_tools
from tritonhook.errors import UsageError
from tritonhook.lab.name_probe import NameVerdict, ProbedKernel, Setup, newest_versions, pragma_setups, probe, setups
from tritonhook.lab.name_templates import DEFAULT_NAMES, PRAGMA
from tritonhook.ptx.throughput_pragma import PTXAS_VERSION, ThroughputPragma
from tritonhook.ptxas.tool import check_targets, find_nvdisasm


@dataclass(frozen=True, kw_only=True)
class Options(Group):
    files: tuple[str, ...] = place(
        nargs="*", metavar="FILE", help="PTX file, capture folder, or a captured kernel or its id"
    )
    entry: str | None = option(metavar="NAME", help="the kernel, if there are several")
    names: tuple[str, ...] | None = option(
        type=words,
        metavar="NAME,...",
        help="try these names instead of the usual ones; * stands for the kernel's own name, and .pragma is the kernel "
        'with .pragma "mma_throughput", for ptxas 13.3 and newer',
    )
    ptxas: tuple[str, ...] = option(
        type=words,
        default=(),
        metavar="all|VERSION,...",
        help="assemble with these ptxas (default: the capture's, else the newest installed)",
    )
    arch: tuple[str, ...] = option(
        type=words, default=(), metavar="SM,...", help="assemble for these targets (default: the module's own)"
    )
    levels: tuple[str, ...] = option("-O", type=words, default=(), metavar="1,2,3", help="optimisation levels of ptxas")
    ptxas_options: str | None = options_option("the capture's, else -v -lineinfo")
    sweep: Sweep = part(Sweep)
    results: Results = part(Results)


def run(options: Options) -> int:
    sides = [load_input(path, options.entry) for path in options.files]
    if sides:
        check_entry(options.entry, sides)
    kernels = list(_from_files(options, sides))
    if not kernels:
        raise UsageError(f"nothing to probe; give PTX files or captures{kernels_there()}")
    tools = wanted_tools(options.ptxas) if options.ptxas else [chosen_assembler(None, None, False, sides)[0]]
    check_targets(options.arch, tools)
    cache = options.sweep.cache()
    with running(options.sweep) as (go, expect):
        expect(len(tools))
        newest = newest_versions(tools, go)
        chosen = list(setups(kernels, tools, options.arch, options.levels, newest))
        templates = options.names or (*DEFAULT_NAMES, PRAGMA)
        names = [template for template in templates if template != PRAGMA]
        with_pragma, notes = _with_pragma(chosen, names) if PRAGMA in templates else ([], [])
        cells = list(probe(chosen, names, go, find_nvdisasm(), expect, cache)) if names else []
        cells += probe(with_pragma, [PRAGMA], go, find_nvdisasm(), expect, cache)
    # Cells come in the order in which ptxas finishes them.
    order = {setup.key: number for number, setup in enumerate(chosen)}
    cells.sort(key=lambda cell: (order[replace(cell.setup, pragma=False)], templates.index(cell.template)))
    from tritonhook.report.results.probe import Probe

    give(options.results, Probe.of(cells, notes))
    verdicts = {cell.verdict for cell in cells}
    return 1 if NameVerdict.CHANGED in verdicts else 2 if verdicts == {NameVerdict.NO_ANSWER} else 0


def _with_pragma(chosen: Sequence[Setup], names: Sequence[str]) -> tuple[list[Setup], list[str]]:
    """List the setups for the pragma, and note ptxas versions that are too old for it. Raises UsageError if only the
    pragma is probed and every ptxas is too old."""
    old = sorted({s.tool.version for s in chosen if ThroughputPragma().why_not(s.tool.version)}, key=version_key)
    with_pragma = list(pragma_setups(chosen))
    if not (with_pragma or names):
        raise UsageError(f"--names .pragma: {ThroughputPragma().why_not(old[-1])}")
    return with_pragma, [
        f"{PRAGMA}: not tried with ptxas {', '.join(old)}; {PTXAS_VERSION} is the first version that supports it"
    ] if old else []


def _from_files(options: Options, sides: Sequence[Input]) -> Iterator[ProbedKernel]:
    for side in sides:
        if side.ptx is None:
            raise UsageError(f"{side.label}: no PTX to assemble; give PTX or a capture that has it")
        ptxas_options = chosen_arguments(options.ptxas_options, [side])
        yield ProbedKernel(side.entry if len(sides) == 1 else side.label, side.entry, side.ptx, ptxas_options)
