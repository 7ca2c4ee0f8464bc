"""The options of `tritonhook verify`."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

from tritonhook.cli._inputs import place, trust_option
from tritonhook.cli._parser import Group, flag, option, part, rest
from tritonhook.cli._streams import Results
from tritonhook.verify.cpu import CTAS
from tritonhook.verify.cpu import LIMIT_S as CPU_LIMIT_S
from tritonhook.verify.differential import RUNS
from tritonhook.verify.executor import LIMIT_S
from tritonhook.verify.model import INPUTS


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split(","))


def _inputs(text: str) -> tuple[str, ...]:
    names = _words(text)
    if unknown := [name for name in names if name not in INPUTS]:
        raise argparse.ArgumentTypeError(f"{', '.join(unknown)}: give some of {', '.join(INPUTS)}")
    return names


@dataclass(frozen=True, kw_only=True)
class Options(Group):
    target: tuple[str, ...] = place(
        nargs="+",
        help="SCRIPT.py [-- ARGUMENTS], MODULE:FUNCTION, capture folder, captured kernel or its id, PTX file; or two "
        "builds",
    )
    rest: tuple[str, ...] | None = rest()
    known: bool = flag(help="list known bugs of ptxas in the PTX, without a GPU")
    args: str | None = option(metavar="RECORD", help="launch as recorded in this JSON file or capture")
    launch: str | None = option(metavar="KEY", help="which recorded launch (default: a kernel's most frequent one)")
    entry: str | None = option(metavar="NAME", help="only the kernel of this name")
    ptxas: str | None = option(metavar="VERSION|PATH", help="the ptxas in use (default: the capture's)")
    ptxas_options: str | None = option("--options", metavar="'...'", help="its options (default: the capture's)")
    against: tuple[str, ...] | None = option(
        type=_words,
        metavar="VERSION,...",
        help="compare with these ptxas (default: the oldest and the newest here that take the kernel)",
    )
    inputs: tuple[str, ...] = option(
        type=_inputs,
        default=INPUTS,
        metavar="NAME,...",
        help=f"what buffers hold (default: {', '.join(INPUTS)}); indices and flags stay as recorded",
    )
    runs: int = option(type=int, default=RUNS, metavar="N", help=f"runs of each build (default: {RUNS})")
    limit: float | None = option(
        type=float,
        metavar="S",
        help=f"seconds after which a launch counts as hung (default: {LIMIT_S:g}; on the CPU {CPU_LIMIT_S:g})",
    )
    cpu: bool = flag(help="emulate on the CPU (default where no GPU is)")
    ctas: int = option(type=int, default=CTAS, metavar="N", help=f"CTAs of a launch to emulate (default: {CTAS})")
    minimise: Path | None = option(
        type=Path,
        metavar="FOLDER",
        help="shrink each kernel that is DIFFERENT (up to 5 minutes each); write reproducers to FOLDER/KERNEL",
    )
    trust: bool = trust_option()
    results: Results = part(Results)
