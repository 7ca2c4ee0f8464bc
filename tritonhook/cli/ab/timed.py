"""`tritonhook ab` where something is timed, and `tritonhook ab --from FILE`."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from tritonhook.cli._files import check_new, write_new
from tritonhook.cli._progress import working
from tritonhook.cli._renames import add_rewrite
from tritonhook.cli._results import give
from tritonhook.cli._streams import complain, to_json
from tritonhook.cli.ab.progress import progress_bar
from tritonhook.cli.ab.targets import refuse_without_gpu, target_of
from tritonhook.errors import TritonHookError, UsageError
from tritonhook.ptxas.toolchain import find_toolchain
from tritonhook.timing.coordinator import DEFAULT_SECONDS, run
from tritonhook.timing.images import describe_captures, describe_images
from tritonhook.timing.plan import Plan
from tritonhook.timing.result import Timed, load, to_document
from tritonhook.timing.statistics import CANDIDATE, DEFAULT_BAND, MIN_PROCESSES, REFERENCE, TimingVerdict

_CODES = {TimingVerdict.SAME: 0, TimingVerdict.FASTER: 1, TimingVerdict.SLOWER: 1, TimingVerdict.INCONCLUSIVE: 2}


_TIMED_ONLY = (
    *(
        "--candidate",
        "--candidate-ptxas",
        "--candidate-options",
        "--rewrite",
        "--baseline",
        "--baseline-rtol",
        "--only",
    ),
    *("--args", "--launch", "--hot", "--rtol", "--unchecked", "--band", "--processes", "--seconds", "--fail-on"),
    *("--tune", "--nvbench"),
)
_CODE = (
    "--prefix",
    "--strip",
    "--strip-word",
    "--to",
    "--entry",
    "--ptxas",
    "--trust",
    "--options",
    "--code",
)  # what is compared
_OF_SAVED = {"--band", "--fail-on", "--nvbench"}  # of these what --from takes


def add_timing(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("timing, on a GPU")
    group.add_argument("--candidate", metavar="MODULE:FUNCTION", help="compare with this launch instead of a rename")
    group.add_argument("--candidate-ptxas", metavar="VERSION|PATH", help="assemble the candidate with this ptxas")
    group.add_argument("--candidate-options", metavar="OPTIONS", help="further ptxas options for the candidate")
    add_rewrite(group, "rewrite the candidate")
    group.add_argument(
        "--baseline", action="append", default=[], metavar="MODULE:FUNCTION", help="also time this launch"
    )
    group.add_argument(
        "--baseline-rtol",
        type=float,
        metavar="R",
        help="a baseline's outputs may differ by R of the largest value (default: 0.02)",
    )
    group.add_argument("--args", metavar="RECORD", help="launch as recorded in this JSON file or capture")
    group.add_argument("--launch", metavar="KEY", help="which recorded launch, if there are several")
    group.add_argument("--code", action="store_true", help="compare only the code, even if a launch is recorded")
    group.add_argument(
        "--tune",
        choices=("fixed", "each"),
        help="autotuned kernels: all sides take the reference's configuration (fixed, the default), or each is tuned",
    )
    group.add_argument("--only", metavar="REGEX", help="rename only kernels whose name it matches")
    group.add_argument("--hot", action="store_true", help="do not empty the L2 cache before each launch")
    group.add_argument(
        "--rtol", type=float, metavar="R", help="outputs may differ by R of the largest value (default: 0)"
    )
    group.add_argument("--unchecked", action="store_true", help="do not compare the outputs")
    group.add_argument(
        "--band",
        type=_share,
        metavar="SHARE",
        help="smaller differences count as the same: 0.005 (the default) or 0.5%%",
    )
    group.add_argument("--processes", type=int, metavar="N", help="fresh processes to begin with (default: 5)")
    group.add_argument("--seconds", type=float, help="stop after about this time (default: 50)")
    group.add_argument(
        "--fail-on", choices=("slower", "faster"), help="exit with 1 only if the candidate is slower (or faster)"
    )
    group.add_argument("--from", dest="saved", metavar="FILE", help="read a saved comparison instead; needs no GPU")
    group.add_argument(
        "--nvbench",
        metavar="FILE",
        help="write times for nvbench_compare.py: the candidate's to FILE, the reference's to a file beside it",
    )


def run_timed(arguments: argparse.Namespace) -> int:
    if arguments.save:
        check_new(Path(arguments.save), arguments.force)
    for path in _exports(arguments):
        check_new(path, arguments.force)
    timed = _saved(arguments) if arguments.saved else _measure(arguments)
    verdict = {"verdict": timed.comparison.verdict.value, "reason": timed.comparison.reason}
    give(_saved_before(arguments), lambda full: to_document(timed) | verdict)
    if arguments.nvbench:
        _export(_exports(arguments), timed, arguments.force)
    return exit_code(timed, arguments.fail_on)


def _saved_before(arguments: argparse.Namespace) -> argparse.Namespace:
    """The arguments without --save: the samples were saved before the report, which may fail."""
    return argparse.Namespace(**{**vars(arguments), "save": None})


def refuse_timing(arguments: argparse.Namespace) -> None:
    """Raises UsageError for options of timing: nothing is timed."""
    if idle := _given(arguments, _TIMED_ONLY):
        raise UsageError(f"{', '.join(idle)}: only for timed comparisons; this compares only code")


def _given(arguments: argparse.Namespace, options: Collection[str]) -> list[str]:
    """Return the options that were given, in the order of the help text. options: the ones to look for."""
    values = vars(arguments)
    given = [(option, values[option.strip("-").replace("-", "_")]) for option in (*_CODE, *_TIMED_ONLY)]
    return [o for o, value in given if o in options and not (value is None or value is False or value == [])]


def _saved(arguments: argparse.Namespace) -> Timed:
    """Read the saved comparison; --band replaces the band that it was judged by."""
    if arguments.target or arguments.save:
        raise UsageError("--from reads a saved comparison: give neither a target nor --save with it")
    if idle := _given(arguments, set(_TIMED_ONLY + _CODE) - _OF_SAVED):
        raise UsageError(f"{', '.join(idle)}: not allowed with --from: nothing is timed again")
    timed = load(Path(arguments.saved))
    if arguments.band is None:
        return timed
    return replace(timed, comparison=replace(timed.comparison, band=arguments.band))


def exit_code(timed: Timed, fail_on: str | None) -> int:
    """0 same, 1 different, 2 inconclusive or wrong outputs; with --fail-on 1 is for that verdict only."""
    if timed.wrong:
        return 2
    if timed.same_code and not timed.comparison.blocks:
        return 0
    verdict = timed.comparison.verdict
    if fail_on is not None and verdict is not TimingVerdict.INCONCLUSIVE:
        return 1 if verdict.value == fail_on else 0
    return _CODES[verdict]


def _measure(arguments: argparse.Namespace) -> Timed:
    processes = MIN_PROCESSES if arguments.processes is None else arguments.processes
    seconds = DEFAULT_SECONDS if arguments.seconds is None else arguments.seconds
    if processes < 1 or not seconds > 0:  # nan too
        raise UsageError("--processes and --seconds must be positive")
    with tempfile.TemporaryDirectory(prefix="tritonhook-ab-") as folder:
        with working("preparing the sides"):
            prepared = target_of(arguments).prepare(Path(folder))
        refuse_without_gpu("nothing was timed")
        with progress_bar(seconds) as progress:
            timed = run(prepared.plan, arguments.band or DEFAULT_BAND, processes, seconds, progress)
        timed = replace(timed, notes=(*prepared.notes, *timed.notes), code=_code(prepared.plan, timed))
    if arguments.save:
        _try("--save", lambda: write_new(Path(arguments.save), to_json(to_document(timed)), arguments.force))
    return timed


def _try(option: str, write: Callable[[], None]) -> None:
    try:
        write()
    except (OSError, UsageError) as error:  # the result is still shown
        complain(f"ab {option}", error)


def _code(plan: Plan, timed: Timed) -> dict[str, str]:
    """What differs in the code, by kernel. An error becomes the text: the times are there, and are shown."""
    if not timed.changed_kernels:
        return {}
    try:
        toolchain = find_toolchain()
        if plan.images:
            return describe_images(plan.images, plan.launch, toolchain)
        return describe_captures(plan.out / "0", timed.changed_kernels, toolchain)
    except TritonHookError as error:
        return dict.fromkeys(timed.changed_kernels[:1], f"not known: {error}")


def _exports(arguments: argparse.Namespace) -> dict[Path, str]:
    """The two files that nvbench_compare.py compares, and the side in each."""
    if not arguments.nvbench:
        return {}
    path = Path(arguments.nvbench)
    return {path: CANDIDATE, path.with_suffix(f".reference{path.suffix}"): REFERENCE}


def _export(sides: Mapping[Path, str], timed: Timed, force: bool) -> None:
    from tritonhook.report.export.nvbench import nvbench_document

    if not timed.comparison.usable:
        complain("ab --nvbench", UsageError("nothing was timed: there is nothing to export"))
        return
    for file, side in sides.items():
        _try("--nvbench", partial(write_new, file, to_json(nvbench_document(timed, side)), force))


def _share(text: str) -> float:
    try:
        value = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        value = 0.0
    if not 0 < value < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: give a share such as 0.005 or 0.5%")
    return value
