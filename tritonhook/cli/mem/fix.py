"""Remove the driver syscall of TMA loads: `.shared::cluster` becomes `.shared::cta` where that means the same.

tritonhook mem fix kernel.ptx -o fixed.ptx
tritonhook mem fix captures/kernels/attention-1a2b --ptxas 12.9.86
tritonhook mem fix kernel.ptx --target sm_120a      # show the effect on another target

Each load is changed only if that is proved safe; else it stays, and the reason is shown. Then both forms are assembled
by the same ptxas and compared. Exit codes: 0 all loads changed, or none to change; 1 some stay; 2 trouble.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tritonhook.capture.model import Assembler
from tritonhook.cli._inputs import find_capture, place, read_bytes, recorded_ptxas, trust_option
from tritonhook.cli._parser import Group, option, part
from tritonhook.cli._streams import Results, give, working, write_new
from tritonhook.errors import ToolError
from tritonhook.ptx.cta_loads import ClusterToCta, sites
from tritonhook.ptx.module import Ptx
from tritonhook.ptxas.tool import Tool, find_ptxas
from tritonhook.ptxas.toolchain import DEFAULT_ARGUMENTS, AssembleError, Crash, assemble

if TYPE_CHECKING:
    from tritonhook.report.results.stacks import FixedKernel


@dataclass(frozen=True, kw_only=True)
class Options(Group):
    kernel: str = place(metavar="CAPTURE|PTX", help="captured kernel or its id, or a PTX file")
    output: str | None = option("-o", "--output", metavar="FILE", help="write the PTX here")
    ptxas: str | None = option(
        metavar="VERSION|PATH", help="assemble with this ptxas (default: the capture's, else the newest)"
    )
    trust: bool = trust_option()
    target: str | None = option(metavar="SM", help="assemble for this, e.g. sm_120a (default: the PTX's own)")
    results: Results = part(Results)


def run(options: Options) -> int:
    ptx, ptxas_options, own = _load(Path(options.kernel))
    loads = sites(ptx)
    fixed = ClusterToCta().apply(ptx)
    if options.output:
        write_new(Path(options.output), fixed.text, options.results.force)
    effects: list[FixedKernel] = []
    tool: Tool | None = None
    why_not = None
    try:
        recorded = None if options.ptxas else recorded_ptxas(own.path, own.version, options.trust)
        tool = recorded or find_ptxas(options.ptxas)
        target = [f"--gpu-name={options.target}"] if options.target else []
        with working(f"assembling both forms with ptxas {tool.version}"):
            effects = _effects(tool, ptx, fixed, (*ptxas_options, *target))
    except ToolError as error:
        why_not = "; ".join(line.strip() for line in str(error).splitlines())
    version = None if tool is None else tool.version
    from tritonhook.report.results.stacks import MemoryFix

    give(options.results, MemoryFix.of(loads, effects, version, why_not, options.output))
    if options.output and not options.results.json:
        print(f"wrote {options.output}", file=sys.stderr)
    if why_not is not None:
        return 2
    return int(any(site.refusal is not None for site in loads))


def _load(place: Path) -> tuple[Ptx, tuple[str, ...], Assembler]:
    """Read the PTX, with the ptxas options and the ptxas of the capture."""
    if not place.is_dir():
        return Ptx.from_bytes(read_bytes(place), str(place)), DEFAULT_ARGUMENTS, Assembler()
    capture = find_capture(place, None)
    options = capture.assembler.options
    return capture.ptx, DEFAULT_ARGUMENTS if options is None else options, capture.assembler


def _effects(tool: Tool, before: Ptx, after: Ptx, options: tuple[str, ...]) -> list[FixedKernel]:
    from tritonhook.report.results.stacks import FixedKernel

    made = [assemble(tool, ptx, options) for ptx in (before, after)]
    for result in made:
        if isinstance(result, Crash):
            raise AssembleError(result)
    a, b = (result.cubin for result in made if not isinstance(result, Crash))
    return [FixedKernel.of(kernel, a, b) for kernel in a.kernels if kernel in b.kernels]
