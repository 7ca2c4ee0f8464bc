"""`tritonhook ab MODULE:FUNCTION` and `ab --from FILE`: the timed half of the verb."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from tritonhook.ab_run import DEFAULT_SECONDS, Timed, load, run, search_path, to_document
from tritonhook.ab_worker import Plan
from tritonhook.cli._output import check_new, complain, to_json, write_new
from tritonhook.cli._report import give
from tritonhook.cli.rename import wanted_rename
from tritonhook.errors import UsageError
from tritonhook.measurement import DEFAULT_BAND, MIN_PROCESSES, Comparison, Verdict
from tritonhook.rename import PREFIX, Rename
from tritonhook.toolchain import find_ptxas

_CODES = {Verdict.SAME: 0, Verdict.FASTER: 1, Verdict.SLOWER: 1, Verdict.INCONCLUSIVE: 2}


def add_timing(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("timing (MODULE:FUNCTION on a GPU)")
    group.add_argument("--candidate", metavar="MODULE:FUNCTION", help="compare with this launch instead of a rename")
    group.add_argument("--candidate-ptxas", metavar="VERSION|PATH", help="assemble the candidate's kernels with it")
    group.add_argument("--baseline", action="append", default=[], metavar="MODULE:FUNCTION", help="time this beside")
    group.add_argument("--only", metavar="REGEX", help="rename only kernels whose name it matches")
    group.add_argument("--hot", action="store_true", help="leave the L2 cache as it is (default: empty it each time)")
    group.add_argument("--rtol", type=float, metavar="R", help="outputs may differ by R of the largest value")
    group.add_argument("--unchecked", action="store_true", help="do not compare the outputs")
    group.add_argument("--band", type=_share, metavar="SHARE", help="what is the same: 0.005, or what --from has")
    group.add_argument("--processes", type=int, default=MIN_PROCESSES, metavar="N", help="fresh processes: 3")
    group.add_argument("--seconds", type=float, default=DEFAULT_SECONDS, help="at most so long, about: 50")
    group.add_argument("--fail-on", choices=("slower", "faster"), help="exit with 1 only if the candidate is so")
    group.add_argument("--from", dest="saved", metavar="FILE", help="read a saved comparison instead; needs no GPU")
    group.add_argument("--save", metavar="FILE", help="keep all raw samples, or the code, there, as JSON")
    group.add_argument("--force", action="store_true", help="replace the files of --save and --html if they exist")


def is_timed(arguments: argparse.Namespace) -> bool:
    target = arguments.file
    return bool(arguments.saved) or (target is not None and ":" in target and not Path(target).exists())


def run_timed(arguments: argparse.Namespace) -> int:
    timed = _saved(arguments) if arguments.saved else _measure(arguments)
    from tritonhook.report.timing import render_timed

    verdict = {"verdict": timed.comparison.verdict.value, "reason": timed.comparison.reason}
    give(_saved_before(arguments), lambda full: to_document(timed) | verdict, lambda: render_timed(timed))
    return exit_code(timed, arguments.fail_on)


def _saved_before(arguments: argparse.Namespace) -> argparse.Namespace:
    """--save is done as soon as there are samples, whatever becomes of the report."""
    return argparse.Namespace(**{**vars(arguments), "save": None})


def refuse_timing(arguments: argparse.Namespace) -> None:
    """Raises UsageError for options that would have no effect, as nothing is timed."""
    given = {
        "--candidate": arguments.candidate,
        "--candidate-ptxas": arguments.candidate_ptxas,
        "--baseline": arguments.baseline,
        "--fail-on": arguments.fail_on,
    }
    if idle := [option for option, value in given.items() if value]:
        raise UsageError(f"{', '.join(idle)}: only for MODULE:FUNCTION, which is timed, not for PTX and captures")


def _saved(arguments: argparse.Namespace) -> Timed:
    """The saved comparison, with --band in place of the band it was judged by."""
    if arguments.file or arguments.save:
        raise UsageError("--from reads a saved comparison: give neither a target nor --save with it")
    timed = load(Path(arguments.saved))
    if arguments.band is None:
        return timed
    return replace(timed, comparison=replace(timed.comparison, band=arguments.band))


def exit_code(timed: Timed, fail_on: str | None) -> int:
    """0 same, 1 different, 2 cannot tell or wrong outputs; with --fail-on 1 is for that verdict alone."""
    if timed.wrong:
        return 2
    if timed.same_code and not timed.comparison.blocks:
        return 0
    verdict = timed.comparison.verdict
    if fail_on is not None and verdict is not Verdict.INCONCLUSIVE:
        return 1 if verdict.value == fail_on else 0
    return _CODES[verdict]


def _measure(arguments: argparse.Namespace) -> Timed:
    if arguments.processes < 1 or not arguments.seconds > 0:  # nan too
        raise UsageError("--processes and --seconds must be positive")
    if arguments.save:
        check_new(Path(arguments.save), arguments.force)
    rename = wanted_rename(arguments)
    if arguments.options or arguments.entry:
        raise UsageError("--options and --entry are for PTX and captures, not for a timed comparison")
    if rename is None and arguments.candidate is None and arguments.candidate_ptxas is None:
        rename = Rename(prefix=PREFIX)
    with tempfile.TemporaryDirectory(prefix="tritonhook-ab-") as folder:
        plan = Plan(
            arguments.file,
            Path(folder),
            rename,
            arguments.candidate,
            tuple(arguments.baseline),
            _ptxas(arguments.ptxas),
            _ptxas(arguments.candidate_ptxas),
            arguments.only,
            not arguments.hot,
            arguments.rtol,
            not arguments.unchecked,
            path=search_path(),
        )
        with _progress() as progress:
            timed = run(plan, arguments.band or DEFAULT_BAND, arguments.processes, arguments.seconds, progress)
    if arguments.save:
        try:
            write_new(Path(arguments.save), to_json(to_document(timed)), arguments.force)
        except OSError as error:  # the result is shown all the same
            complain("ab --save", error)
    return timed


def _ptxas(wanted: str | None) -> str | None:
    return None if wanted is None else str(find_ptxas(wanted).path.absolute())


@contextmanager
def _progress() -> Iterator[Callable[[Comparison], None] | None]:
    """Shows the estimate on a terminal, and takes it away at the end; None elsewhere."""
    if not sys.stderr.isatty():
        yield None
        return
    from tritonhook.report.timing import progress_line

    def write(line: str) -> None:
        sys.stderr.write(f"\r\x1b[2K{line}")
        sys.stderr.flush()

    try:
        yield lambda comparison: write(progress_line(comparison))
    finally:
        write("")


def _share(text: str) -> float:
    try:
        value = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        value = 0.0
    if not 0 < value < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: give a share such as 0.005 or 0.5%")
    return value
