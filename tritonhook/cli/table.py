"""Show the published table of the name effect beside the results of this machine's ptxas.

tritonhook table                  # ptxas 12.8.93, as published
tritonhook table --ptxas 13.5.37 --kernel gluon_kernels.attention_blackwell:compile_offline
"""

from __future__ import annotations

import argparse

from tritonhook._util.entry_points import compiled_ptx
from tritonhook.cli._results import add_results, give
from tritonhook.lab.published_table import PTXAS, ExtraRow, measure
from tritonhook.ptx.module import Ptx
from tritonhook.ptxas.assembler import DEFAULT_ARGUMENTS
from tritonhook.ptxas.toolchain import find_toolchain

ROW_NOTES = {
    "scalar row sum": "the row sum adds one number at a time, as in the kernel of the published row",
    "packed row sum": "the row sum adds pairs (add.f32x2), as in Triton's own kernel",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--ptxas", default=PTXAS, metavar="VERSION|PATH", help=f"default: {PTXAS}, as published")
    parser.add_argument(
        "--kernel", metavar="MODULE:FUNCTION", help="add the kernel that this function compiles offline"
    )
    add_results(parser)


def run(arguments: argparse.Namespace) -> int:
    toolchain = find_toolchain(arguments.ptxas)
    extra = []
    if arguments.kernel:
        ptx = Ptx(compiled_ptx(arguments.kernel))
        extra.append(ExtraRow(arguments.kernel, ptx, DEFAULT_ARGUMENTS))
    rows = list(measure(toolchain, extra))
    from tritonhook.report.documents.published import table_document

    give(arguments, lambda full: table_document(rows, toolchain.ptxas))
    return 0
