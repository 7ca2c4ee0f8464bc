"""What "cutlass" in the name does to the time of gluon_kernels' attentions for this GPU, at their default configs.

    python -m benchmarks gluon_ab [--ptxas 12.6.85] [--append FILE] [OPTIONS of name_effect]

Each row is a `tritonhook ab` of its own, as timing/name_effect.py makes it: B4 H16 S4096. mma.sync and Hopper's,
under the ptxas that Triton takes; --ptxas times Hopper's under that version too. Needs a GPU of sm_90
and torch.
"""

from __future__ import annotations

import argparse

from benchmarks.gluon.attentions import subjects
from benchmarks.timing import name_effect

NEEDS = ("gpu", "torch", "triton")
QUICK = ("--only", "gluon_mma_d64$", "--processes", "1", "--each", "5")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    name_effect.add_arguments(parser)
    parser.set_defaults(targets="")


def run(arguments: argparse.Namespace) -> None:
    timed = [(target, kernel) for target, kernel, *_ in subjects() if kernel != "blackwell"]
    targets = [target for target, _ in timed]
    if arguments.ptxas:
        targets += [f"{target}@{arguments.ptxas}" for target, kernel in timed if kernel == "hopper"]
    arguments.targets, arguments.ptxas = arguments.targets or ",".join(targets), ""
    name_effect.run(arguments)
