"""What `tritonhook ab` does: time, save, and show; or read a saved comparison."""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from tritonhook.cli._files import check_new, write_new
from tritonhook.cli._parser import given_options
from tritonhook.cli._progress import working
from tritonhook.cli._results import give
from tritonhook.cli._streams import complain, to_json, write_err
from tritonhook.cli.ab.targets import OF_SAVED, Options, refuse_without_gpu, target_of
from tritonhook.errors import TritonHookError, UsageError
from tritonhook.ptxas.toolchain import find_toolchain
from tritonhook.timing.coordinator import DEFAULT_SECONDS
from tritonhook.timing.coordinator import run as time_plan
from tritonhook.timing.images import describe_captures, describe_images
from tritonhook.timing.plan import Plan, Timed
from tritonhook.timing.statistics import (
    DEFAULT_BAND,
    MIN_PROCESSES,
    Comparison,
    TimingVerdict,
    percent,
)

_CODES = {TimingVerdict.SAME: 0, TimingVerdict.FASTER: 1, TimingVerdict.SLOWER: 1, TimingVerdict.INCONCLUSIVE: 2}


def run(options: Options) -> int:
    if not (options.target or options.timing.saved):
        raise UsageError("nothing to time; give MODULE:FUNCTION, a script, a capture with launches, or --from FILE")
    if options.results.save:
        check_new(Path(options.results.save), options.results.force)
    timed = _saved(options, Path(options.timing.saved)) if options.timing.saved else _measure(options)
    from tritonhook.report.results.ab import TimedComparison

    # the samples were saved before the report, which may fail
    give(replace(options.results, save=None), TimedComparison.of(timed, judged=True))
    return exit_code(timed, options.timing.fail_on)


def _saved(options: Options, path: Path) -> Timed:
    """Read the saved comparison; --band replaces its band."""
    if options.target or options.results.save:
        raise UsageError("--from reads a saved comparison: omit the target and --save")
    timing = options.timing
    groups = (options.rename, options.tool, timing, timing.recorded, timing.tolerance)
    if idle := [name for name in given_options(*groups) if name not in OF_SAVED]:
        raise UsageError(f"{', '.join(idle)}: not allowed with --from: nothing is timed again")
    from tritonhook.report.results.ab import load

    timed = load(path)
    return timed if options.timing.band is None else timed.but(band=options.timing.band)


def exit_code(timed: Timed, fail_on: str | None) -> int:
    """Return 0 same, 1 different, 2 inconclusive or wrong outputs; with --fail-on 1 means that verdict only."""
    if timed.wrong:
        return 2
    if timed.same_code and not timed.comparison.blocks:
        return 0
    verdict = timed.comparison.verdict
    if fail_on is not None and verdict is not TimingVerdict.INCONCLUSIVE:
        return 1 if verdict.value == fail_on else 0
    return _CODES[verdict]


def _measure(options: Options) -> Timed:
    processes = MIN_PROCESSES if options.timing.processes is None else options.timing.processes
    seconds = DEFAULT_SECONDS if options.timing.seconds is None else options.timing.seconds
    if processes < 1 or not seconds > 0:  # also rejects nan
        raise UsageError("--processes and --seconds must be positive")
    with tempfile.TemporaryDirectory(prefix="tritonhook-ab-") as folder:
        with working("preparing the sides"):
            prepared = target_of(options).prepare(Path(folder))
        refuse_without_gpu("nothing was timed")
        with progress_bar(seconds) as progress:
            timed = time_plan(prepared.plan, options.timing.band or DEFAULT_BAND, processes, seconds, progress)
        timed = timed.but(notes=(*prepared.notes, *timed.notes), code=_code(prepared.plan, timed))
    if options.results.save:
        from tritonhook.report.results.ab import TimedComparison

        path, text = Path(options.results.save), to_json(TimedComparison.of(timed).document())
        _try("--save", lambda: write_new(path, text, options.results.force))
    return timed


def _try(option: str, write: Callable[[], None]) -> None:
    try:
        write()
    except (OSError, UsageError) as error:  # the result is still shown
        complain(f"ab {option}", error)


def _code(plan: Plan, timed: Timed) -> dict[str, str]:
    """Describe what differs in the code, by kernel. An error becomes the text, so that the measured times are still
    shown."""
    if not timed.changed_kernels:
        return {}
    try:
        toolchain = find_toolchain()
        if plan.images:
            return describe_images(plan.images, plan.launch, toolchain)
        return describe_captures(plan.out / "0", timed.changed_kernels, toolchain)
    except TritonHookError as error:
        return dict.fromkeys(timed.changed_kernels[:1], f"not known: {error}")


# --- progress -------------------------------------------------------------------------------------


_WIDTH = 20  # of the bar, in characters


@contextmanager
def progress_bar(seconds: float) -> Iterator[Callable[[Comparison | None], None] | None]:
    """Show a bar on standard error, and remove it at the end. Without a terminal print a line and yield None.

    seconds: how long the whole comparison may take.
    """
    if not sys.stderr.isatty():
        with working(f"timing for up to {seconds:.0f} s"):
            yield None
        return
    started = time.monotonic()
    columns = shutil.get_terminal_size().columns - 1

    def write(line: str) -> None:
        write_err(f"\r\x1b[2K{line[:columns]}")

    try:
        yield lambda comparison: write(progress_line(comparison, (time.monotonic() - started) / seconds))
    finally:
        write("")


def progress_line(comparison: Comparison | None, share: float = 0.0) -> str:
    """Format the bar for the share of time passed, with the current estimate, in one line."""
    done = min(max(round(share * _WIDTH), 0), _WIDTH)
    bar = f"[{'#' * done}{'.' * (_WIDTH - done)}] "
    if comparison is None:
        return f"{bar}preparing: compiling, comparing outputs, warming up"
    effect, control = comparison.effect(), comparison.control
    if effect is None:
        return f"{bar}no usable block yet"
    span = f"{percent(effect.ratio)} ({percent(effect.low)} to {percent(effect.high)})"
    floor = "" if control is None else f", control {percent(control.ratio)}"
    return f"{bar}{effect.blocks} blocks: {span}{floor}"
