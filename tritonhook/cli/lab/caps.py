"""Show which instructions each architecture has. ptxas assembles a kernel for each instruction; nothing is executed.

A cell is "inline" (with the SASS opcode), "syscall" (a call into the driver), "emulated" (by other opcodes),
"rejected", or "unknown PTX version" (this ptxas is too old for the instruction).

  tritonhook lab caps                                  # the newest installed ptxas, the usual architectures
  tritonhook lab caps --arch sm_120a,sm_121a --only 'TMA|mxf'
  tritonhook lab caps --arch all --ptxas all --markdown
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tritonhook._util.text import say
from tritonhook.cli._inputs import regular_expression
from tritonhook.cli._parser import Group, option, part, words
from tritonhook.cli._progress import is_quiet
from tritonhook.cli._results import Results, give
from tritonhook.cli._sweeps import Sweep, running, wanted_tools
from tritonhook.errors import UsageError
from tritonhook.ptxas.pool import usable_processors
from tritonhook.ptxas.tool import find_nvdisasm

if TYPE_CHECKING:
    from tritonhook.lab.capabilities import InstructionProbe

_MANY = 1000  # if there are so many ptxas runs, print the expected time first
_SECONDS = 0.02  # processor time of one ptxas run, roughly
USUAL_ARCHS = ("sm_80", "sm_89", "sm_90a", "sm_100a", "sm_103a", "sm_110a", "sm_120a", "sm_121a")


@dataclass(frozen=True, kw_only=True)
class Options(Group):
    arch: tuple[str, ...] = option(
        type=words,
        default=(),
        metavar="SM,...|all",
        help=f"assemble for these (default: those of {', '.join(USUAL_ARCHS)} that ptxas supports)",
    )
    ptxas: tuple[str, ...] = option(
        type=words, default=(), metavar="VERSION,...|all", help="ptxas to assemble with (default: the newest)"
    )
    only: str = option(
        metavar="REGEX",
        default="",
        help="only instructions whose group or name has a word that begins with this, e.g. TMA; if there are none, "
        "those whose group or name contains it",
    )
    sweep: Sweep = part(Sweep)
    results: Results = part(Results)


def run(options: Options) -> int:
    from tritonhook.lab.capabilities import survey
    from tritonhook.lab.kernels.instructions import PROBES
    from tritonhook.ptxas.tool import targets
    from tritonhook.report.results.capabilities import Capabilities

    probes = _matching(PROBES, options.only)
    if not probes:
        groups = ", ".join(dict.fromkeys(probe.group for probe in PROBES))
        raise UsageError(f"--only {options.only!r}: no probe matches; the groups are: {groups}")
    tools = wanted_tools(options.ptxas)
    archs = options.arch or tuple(arch for arch in USUAL_ARCHS if any(arch in targets(tool) for tool in tools))
    cache = options.sweep.cache()
    with running(options.sweep) as (go, expect):

        def announced(jobs: int) -> None:
            if jobs >= _MANY and not is_quiet():
                minutes = jobs * _SECONDS / usable_processors() / 60
                say(f"tritonhook: {jobs:,} runs of ptxas, about {minutes:.0f} min; results of earlier runs are cached")
            expect(jobs)

        matrix = survey(tools, None if archs == ("all",) else archs, probes, go, find_nvdisasm(), announced, cache)
    give(options.results, Capabilities.of(matrix))
    return 0


def _matching(probes: Sequence[InstructionProbe], only: str) -> list[InstructionProbe]:
    """Return the probes whose key has a part that begins with `only` ("TMA" does not match stmatrix). If no key has
    one, return the probes whose key contains `only`."""
    anywhere = regular_expression("--only", only)
    begins = re.compile(rf"(?<![A-Za-z0-9])(?:{only})", re.IGNORECASE)
    return [p for p in probes if begins.search(p.key)] or [p for p in probes if anywhere.search(p.key)]
