"""Does the assembler compute what the PTX says? List known bugs of ptxas that a kernel meets. Needs no GPU.

  tritonhook verify --known tritonhook-captures              # each kernel judged by its own ptxas
  tritonhook verify --known kernel.ptx --ptxas 12.9.86       # that ptxas need not be here

Exit codes: 1 if the ptxas in use is wrong somewhere, or may be; 2 if nothing could be read.
"""

from __future__ import annotations

import argparse

from tritonhook.cli._known import give_known
from tritonhook.cli._results import add_results
from tritonhook.errors import UsageError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("target", nargs="+", help="PTX file, capture folder or capture")
    parser.add_argument("--known", action="store_true", help="list known bugs of ptxas in its PTX, without a GPU")
    parser.add_argument("--ptxas", metavar="VERSION|PATH", help="the ptxas in use (default: the one of the capture)")
    add_results(parser)


def run(arguments: argparse.Namespace) -> int:
    if not arguments.known:
        raise UsageError("give --known: known bugs of ptxas are all that verify looks for so far")
    return give_known(arguments, arguments.target, arguments.ptxas)
