"""The options of `tritonhook ab`."""

from __future__ import annotations

from dataclasses import dataclass

from tritonhook.cli._inputs import place
from tritonhook.cli._parser import Group, option, part, rest, share
from tritonhook.cli._streams import Results
from tritonhook.cli.diff import ToolOptions
from tritonhook.cli.rename import RenameOptions, rewrite_option

OF_SAVED = {"--from", "--band", "--fail-on"}  # of the options of timing


@dataclass(frozen=True, kw_only=True)
class Timing(Group):
    """How a candidate is made and timed."""

    TITLE = "timing, on a GPU"
    candidate: str | None = option(metavar="MODULE:FUNCTION", help="compare with this launch instead of a rename")
    candidate_ptxas: str | None = option(metavar="VERSION|PATH", help="assemble the candidate with this ptxas")
    candidate_options: str | None = option(metavar="OPTIONS", help="further ptxas options for the candidate")
    rewrite: tuple[str, ...] = rewrite_option("rewrite the candidate")
    baseline: tuple[str, ...] = option(
        action="append", default=[], metavar="MODULE:FUNCTION", help="also time this launch"
    )
    args: str | None = option(metavar="RECORD", help="launch as recorded in this JSON file or capture")
    launch: str | None = option(metavar="KEY", help="which recorded launch, if there are several")
    tune: str | None = option(
        choices=("fixed", "each"),
        help="autotuned kernels: all sides take the reference's configuration (fixed, the default), or each is tuned",
    )
    rtol: float | None = option(
        type=float, metavar="R", help="outputs may differ by R of the largest value (default: 0)"
    )
    band: float | None = option(
        type=share(0.005),
        metavar="SHARE",
        help="smaller differences count as the same: 0.005 (the default) or 0.5%%",
    )
    processes: int | None = option(type=int, metavar="N", help="fresh processes to begin with (default: 5)")
    seconds: float | None = option(type=float, help="stop after about this time (default: 50)")
    fail_on: str | None = option(
        choices=("slower", "faster"), help="exit with 1 only if the candidate is slower (or faster)"
    )
    saved: str | None = option("--from", metavar="FILE", help="read a saved comparison instead; needs no GPU")


@dataclass(frozen=True, kw_only=True)
class Options(Group):
    target: tuple[str, ...] = place(
        nargs="*",
        help="MODULE:FUNCTION, SCRIPT.py [-- ARGUMENTS], capture folder, captured kernel or its id, PTX file, or two "
        "cubins",
    )
    rest: tuple[str, ...] | None = rest()
    rename: RenameOptions = part(RenameOptions)
    tool: ToolOptions = part(ToolOptions)
    timing: Timing = part(Timing)
    results: Results = part(Results)
