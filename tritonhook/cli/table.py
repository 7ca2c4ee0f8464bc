"""Show the published table of the name effect beside the results of this machine's ptxas.

tritonhook table                  # ptxas 12.8.93, as published; it is fetched if need be
tritonhook table --ptxas 13.5.37 --kernel gluon_kernels.attention_blackwell:compile_offline
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tritonhook._util.entry_points import compiled_ptx
from tritonhook.cli._parser import Group, option, part
from tritonhook.cli._streams import Results, give, working
from tritonhook.errors import ToolError
from tritonhook.lab.kernels.published import CONDITIONS
from tritonhook.lab.published_table import PTXAS, ConditionRow, ExtraRow, measure
from tritonhook.ptx.module import Ptx
from tritonhook.ptxas.assembler import DEFAULT_ARGUMENTS
from tritonhook.ptxas.discovery import find_ptxas
from tritonhook.ptxas.install import add_ptxas
from tritonhook.ptxas.tool import Tool
from tritonhook.ptxas.toolchain import Toolchain, toolchain_of

ROW_NOTES = {
    "scalar row sum": "the row sum adds one number at a time, as in the kernel of the published row",
    "packed row sum": "the row sum adds pairs (add.f32x2), as in Triton's own kernel",
}


HELP = f"assemble with this ptxas (default: {PTXAS}, as published; fetched if needed)"


@dataclass(frozen=True, kw_only=True)
class Options(Group):
    ptxas: str | None = option(metavar="VERSION|PATH", help=HELP)
    kernel: str | None = option(metavar="MODULE:FUNCTION", help="add the kernel that this function compiles offline")
    results: Results = part(Results)


def run(options: Options) -> int:
    ptxas, notes = published_ptxas(options.ptxas)
    extra = []
    if options.kernel:
        ptx = Ptx(compiled_ptx(options.kernel))
        extra.append(ExtraRow(options.kernel, ptx, DEFAULT_ARGUMENTS))
    rows = measured_rows(toolchain_of(ptxas), extra)
    from tritonhook.report.results.table import PublishedTable

    give(options.results, PublishedTable.of(rows, ptxas, notes))
    return 0


def measured_rows(toolchain: Toolchain, extra: Sequence[ExtraRow] = ()) -> list[ConditionRow]:
    """Assemble all rows of the table, with progress."""
    total = len(CONDITIONS) + len(extra)
    rows = []
    with working(f"assembling the table with ptxas {toolchain.ptxas.version}", total) as advance:
        for row in measure(toolchain, extra):
            rows.append(row)
            advance(1)
    return rows


def published_ptxas(given: str | None) -> tuple[Tool, tuple[str, ...]]:
    """Find the ptxas, and fetch the published version where it is missing; a note if another one has to do.

    Raises ToolError if there is none at all.
    """
    if given is not None:
        return find_ptxas(given), ()
    try:
        return find_ptxas(PTXAS), ()
    except ToolError:
        pass
    try:
        with working(f"fetching ptxas {PTXAS}, the version of the published table, once (30 MB)"):
            return add_ptxas(PTXAS), ()
    except ToolError as error:
        reason = str(error).splitlines()[0]
    tool = find_ptxas()
    return tool, (
        f"ptxas {PTXAS}, the version of the published table, could not be fetched; ptxas {tool.version} at hand is "
        f"used, whose code can differ ({reason})",
    )
