"""Show tritonhook's reports on a bundled Triton kernel, without a GPU: resources, source lines, effect of the name.

--table shows the published table of the name effect beside the results of this machine. It needs no Triton. It uses
ptxas 12.8.93, as the published table does, and fetches it if it is missing. Everything is *assembled* by ptxas; nothing
is executed or timed.

  tritonhook demo
  tritonhook demo --table --ptxas 13.5.37
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import TYPE_CHECKING

from tritonhook._util.imports import call_function
from tritonhook.capture.settings import DEFAULT_OUT
from tritonhook.capture.store import CaptureFolder
from tritonhook.cli._inputs import chosen_assembler, load_input
from tritonhook.cli._parser import Group, flag, option, part
from tritonhook.cli._programs import near
from tritonhook.cli._progress import working
from tritonhook.cli._results import Results, give, show_summary
from tritonhook.cli._streams import write_out
from tritonhook.compare.names import compare_names
from tritonhook.errors import ToolError, UsageError
from tritonhook.lab.published_table import CONDITIONS, PTXAS, measure
from tritonhook.ptx_capture import session
from tritonhook.ptxas.install import add_ptxas
from tritonhook.ptxas.tool import Tool, find_ptxas
from tritonhook.ptxas.toolchain import toolchain_of
from tritonhook.rename import PREFIX, Rename

if TYPE_CHECKING:
    from tritonhook.report.result import Summary

SUBJECT = "tritonhook.lab.kernels.layer_norm:compile_offline"
_NEXT = """
Assembled, not executed or timed. Your own kernels:
  tritonhook run --arch sm_90a train.py            captures what it compiles, without a GPU
  tritonhook show --sort spills                    lists it; `show {id} --sass` prints code
  tritonhook diff {id} --rename --html diff.html makes a page of the last step
"""


@dataclass(frozen=True, kw_only=True)
class Options(Group):
    table: bool = flag(help="show the published table of the name effect beside this machine's results")
    out: str | None = option(metavar="DIR", help=f"folder for captures (default: $TRITONHOOK_OUT, else {DEFAULT_OUT})")
    ptxas: str | None = option(
        metavar="VERSION|PATH", help=f"assemble with this ptxas (default: Triton's; with --table {PTXAS})"
    )
    results: Results = part(Results)


def run(options: Options) -> int:
    if options.table:
        return _give_table(options)
    if find_spec("triton") is None:
        raise UsageError(
            "Triton is not installed, but the demo compiles a Triton kernel: `pip install triton`, or `pipx run --spec "
            "'tritonhook[triton]' tritonhook demo`, or see `tritonhook demo --table`, which needs no Triton"
        )
    _give_short(options)
    return 0


# --- one kernel -----------------------------------------------------------------------------------


def _give_short(options: Options) -> None:
    from tritonhook.report.render.terminal import render_title
    from tritonhook.report.results.capture import CapturedOne, kernel_fields, source_summary
    from tritonhook.report.results.captures import Captures
    from tritonhook.report.results.names import Demo, Names

    if options.ptxas is not None:
        find_ptxas(options.ptxas)  # raises an error before any work
    started = time.time_ns()
    with session(options.out) as current, working("compiling a layer norm for sm_90a"):
        call_function(SUBJECT)
    (capture,), (record,) = current.captures, current.records
    kernel = load_input(str(current.out / "kernels" / record), None)
    ptxas, arguments = chosen_assembler(options.ptxas, None, True, [kernel])
    with working(f"assembling it under three names with ptxas {ptxas.version}"):
        compared = compare_names(capture.ptx, Rename(prefix=PREFIX), toolchain_of(ptxas), arguments, capture.kernel)
        compared = compared.with_launches(kernel.dynamic_shared)

    def demo(full: bool) -> Demo:
        return Demo((kernel_fields(capture),), {capture.kernel: Names.of(compared, ptxas, arguments, full)})

    def show_title(text: str) -> None:
        write_out(render_title(text, sys.stdout))

    def show(summary: Summary) -> None:
        folder = CaptureFolder.open(current.out)
        own = folder.ids[record]
        show_title(f"1. A layer norm, compiled for sm_90a without a GPU: tritonhook show {near(current.out)}")
        show_summary(Captures.of(folder.since(started)).summary())
        show_title(f"2. What each line became: tritonhook show {own} --source")
        code = CapturedOne.of(capture, full=True).code
        source = source_summary(code) if code else None
        if source is not None:
            show_summary(replace(source, tables=source.tables[:1], notes=()))
        show_title(f"3. Under another name, by the same ptxas: tritonhook diff {own} --rename")
        changed = (
            replace(table, rows=tuple(row for row in table.rows if "same" not in row[-1]), tones=())
            for table in summary.tables
            if table.title == "Resources"
        )
        show_summary(replace(summary, tables=tuple(changed), notes=()))
        write_out(_NEXT.format(id=own))

    give(options.results, demo, show=show)


# --- the published table --------------------------------------------------------------------------


def _give_table(options: Options) -> int:
    from tritonhook.report.results.names import PublishedTable

    if options.out is not None:
        raise UsageError("--out: not with --table, which captures nothing")
    ptxas, notes = published_ptxas(options.ptxas)
    rows = []
    with working(f"assembling the table with ptxas {ptxas.version}", len(CONDITIONS)) as advance:
        for row in measure(toolchain_of(ptxas)):
            rows.append(row)
            advance(1)
    give(options.results, PublishedTable.of(rows, ptxas, notes))
    return 0


def published_ptxas(given: str | None) -> tuple[Tool, tuple[str, ...]]:
    """Find the ptxas: `given`, else the published version, which is fetched if it is missing, else the newest. Returns
    it, and a note if another version than the published one is used.

    Raises ToolError if there is no ptxas.
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
        f"ptxas {PTXAS}, the version of the published table, could not be fetched; the installed ptxas "
        f"{tool.version} is used, whose code can differ ({reason})",
    )
