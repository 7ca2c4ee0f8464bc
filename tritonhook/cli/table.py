"""Show the published table of the name effect beside the results of this machine's ptxas.

tritonhook table                  # ptxas 12.8.93, as published; it is fetched if need be
tritonhook table --ptxas 13.5.37 --kernel gluon_kernels.attention_blackwell:compile_offline
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from tritonhook._util.entry_points import compiled_ptx
from tritonhook.cli._progress import working
from tritonhook.cli._published import HELP, published_ptxas
from tritonhook.cli._results import add_results, give
from tritonhook.lab.kernels.published import CONDITIONS
from tritonhook.lab.published_table import ExtraRow, Row, measure
from tritonhook.ptx.module import Ptx
from tritonhook.ptxas.assembler import DEFAULT_ARGUMENTS
from tritonhook.ptxas.toolchain import Toolchain, toolchain_of

ROW_NOTES = {
    "scalar row sum": "the row sum adds one number at a time, as in the kernel of the published row",
    "packed row sum": "the row sum adds pairs (add.f32x2), as in Triton's own kernel",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--ptxas", metavar="VERSION|PATH", help=HELP)
    parser.add_argument(
        "--kernel", metavar="MODULE:FUNCTION", help="add the kernel that this function compiles offline"
    )
    add_results(parser)


def run(arguments: argparse.Namespace) -> int:
    ptxas, notes = published_ptxas(arguments.ptxas)
    extra = []
    if arguments.kernel:
        ptx = Ptx(compiled_ptx(arguments.kernel))
        extra.append(ExtraRow(arguments.kernel, ptx, DEFAULT_ARGUMENTS))
    rows = measured_rows(toolchain_of(ptxas), extra)
    from tritonhook.report.documents.published import table_document

    give(arguments, lambda full: table_document(rows, ptxas, notes))
    return 0


def measured_rows(toolchain: Toolchain, extra: Sequence[ExtraRow] = ()) -> list[Row]:
    """Assemble all rows of the table, with progress."""
    total = len(CONDITIONS) + len(extra)
    rows = []
    with working(f"assembling the table with ptxas {toolchain.ptxas.version}", total) as advance:
        for row in measure(toolchain, extra):
            rows.append(row)
            advance(1)
    return rows
