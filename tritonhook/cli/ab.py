"""Time a kernel on a GPU in turns with a second form of it, which has a new name or is changed by options.

It can time MODULE:FUNCTION (a function that launches kernels, or returns such a function), the launch of SCRIPT.py that
takes most time, a capture with recorded launches (`tritonhook run --launches`), or two cubins or PTX files with a
recorded launch (`--args`). Both forms run in turn; the same code under a control name shows the noise. Without a GPU,
`tritonhook diff KERNEL --rename` compares the codes. Exit codes: 0 same, 1 faster or slower, 2 inconclusive, wrong
outputs or an error; with --fail-on slower: 1 if slower, else 0.

  tritonhook ab my_kernels:launch --save result.json
  tritonhook ab train.py -- --steps 3
  tritonhook ab captures/kernels/softmax-0123 --strip
  tritonhook ab a.cubin b.cubin --args launch.json
  tritonhook ab --from result.json
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tritonhook.capture.selection import DRY_LAUNCH, Launched, Selected, Skipped, selected, titles_of, with_times
from tritonhook.capture.store import CaptureFolder
from tritonhook.cli._inputs import (
    Input,
    RecordedLaunch,
    Tolerance,
    captures_at,
    check_entry,
    chosen_assembler,
    cubin_of,
    load_input,
    load_pair,
    place,
)
from tritonhook.cli._pair import ToolOptions
from tritonhook.cli._parser import Group, given_options, option, part, rest, share
from tritonhook.cli._programs import is_function, is_script, record_launches, script_command, why_not_timed
from tritonhook.cli._progress import working
from tritonhook.cli._renames import RenameOptions, rewrite_option
from tritonhook.cli._results import Results, as_json, check_new, give, write_new
from tritonhook.cli._streams import complain
from tritonhook.cubin.image import Cubin
from tritonhook.errors import DeviceError, TritonHookError, UsageError
from tritonhook.ptxas.tool import find_ptxas
from tritonhook.ptxas.toolchain import find_toolchain, toolchain_of
from tritonhook.rename import PREFIX, Rename
from tritonhook.timing.coordinator import DEFAULT_SECONDS, search_path
from tritonhook.timing.coordinator import run as time_plan
from tritonhook.timing.images import (
    CandidateChange,
    KernelImage,
    Sides,
    change_names,
    describe_captures,
    describe_images,
    sides_of_cubins,
    sides_of_ptx,
)
from tritonhook.timing.plan import Plan, Timed
from tritonhook.timing.rough import rough_times
from tritonhook.timing.statistics import DEFAULT_BAND, MIN_PROCESSES, Comparison, TimingVerdict, percent

_CODES = {TimingVerdict.SAME: 0, TimingVerdict.FASTER: 1, TimingVerdict.SLOWER: 1, TimingVerdict.INCONCLUSIVE: 2}
_LISTED = 5  # how many other launches of a script a note names
_OF_SAVED = {"--from", "--band", "--fail-on"}  # timing options that work with --from
Planned = tuple[Plan, tuple[str, ...]]  # a plan, and notes on how it was made


@dataclass(frozen=True, kw_only=True)
class Timing(Group):
    """Options for the candidate and its timing."""

    TITLE = "timing, on a GPU"
    candidate: str | None = option(metavar="MODULE:FUNCTION", help="the candidate: this launch, not a renamed kernel")
    candidate_ptxas: str | None = option(metavar="VERSION|PATH", help="assemble the candidate with this ptxas")
    candidate_options: str | None = option(metavar="OPTIONS", help="further ptxas options for the candidate")
    rewrite: tuple[str, ...] = rewrite_option("rewrite the candidate")
    baseline: tuple[str, ...] = option(
        action="append", default=[], metavar="MODULE:FUNCTION", help="also time this launch, as a baseline"
    )
    recorded: RecordedLaunch = part(RecordedLaunch)
    tune: str | None = option(
        choices=("fixed", "each"),
        help="configuration of autotuned kernels: the reference's for all sides (fixed, default), or each side's own",
    )
    tolerance: Tolerance = part(Tolerance)
    band: float | None = option(
        type=share(0.005), metavar="SHARE", help="smaller differences count as the same: 0.005 (the default) or 0.5%%"
    )
    processes: int | None = option(type=int, metavar="N", help="start with N fresh processes (default: 5)")
    seconds: float | None = option(type=float, help="stop after about this many seconds (default: 50)")
    fail_on: str | None = option(
        choices=("slower", "faster"), help="exit with 1 only if the candidate is slower (or faster)"
    )
    saved: str | None = option("--from", metavar="FILE", help="do not time; read this file of --save")


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


def run(options: Options) -> int:
    if not (options.target or options.timing.saved):
        raise UsageError("nothing to time; give MODULE:FUNCTION, a script, a capture with launches, or --from FILE")
    if options.results.save:
        check_new(Path(options.results.save), options.results.force)
    timed = _saved(options, Path(options.timing.saved)) if options.timing.saved else _measure(options)
    from tritonhook.report.results.ab import TimedComparison

    # --save was done right after the measurement, because the report may fail
    give(replace(options.results, save=None), TimedComparison.of(timed, judged=True))
    return exit_code(timed, options.timing.fail_on)


def _saved(options: Options, path: Path) -> Timed:
    """Read the saved comparison; --band replaces its band."""
    if options.target or options.results.save:
        raise UsageError("--from reads a saved comparison: omit the target and --save")
    timing = options.timing
    groups = (options.rename, options.tool, timing, timing.recorded, timing.tolerance)
    if idle := [name for name in given_options(*groups) if name not in _OF_SAVED]:
        raise UsageError(f"{', '.join(idle)}: not allowed with --from: nothing is timed again")
    from tritonhook.report.results.ab import load

    timed = load(path)
    return timed if options.timing.band is None else timed.but(band=options.timing.band)


def exit_code(timed: Timed, fail_on: str | None) -> int:
    """Return 0 for the same, 1 for different, 2 for inconclusive or for wrong outputs. With --fail-on VERDICT, return 1
    only for this verdict, and 0 for the other conclusive verdicts."""
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
            plan, notes = planned(options, Path(folder))
        refuse_without_gpu("nothing was timed")
        with working(what := f"timing for up to {seconds:.0f} s") as work:

            def show(comparison: Comparison | None) -> None:
                work.text = f"{what}: {progress_line(comparison)}"

            timed = time_plan(plan, options.timing.band or DEFAULT_BAND, processes, seconds, show)
        timed = timed.but(notes=(*notes, *timed.notes), code=_code(plan, timed))
    if options.results.save:
        from tritonhook.report.results.ab import TimedComparison

        path, text = Path(options.results.save), as_json(TimedComparison.of(timed))
        try:
            write_new(path, text, options.results.force)
        except (OSError, UsageError) as error:  # the result is still shown
            complain("ab --save", error)
    return timed


def _code(plan: Plan, timed: Timed) -> dict[str, str]:
    """Describe what differs in the code, by kernel. If that fails, the error is the text, so that the times are still
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


def progress_line(comparison: Comparison | None) -> str:
    """Format the current estimate in one line."""
    if comparison is None:
        return "preparing: compiling, comparing outputs, warming up"
    effect, control = comparison.effect(), comparison.control
    if effect is None:
        return "no usable block yet"
    span = f"{percent(effect.ratio)} ({percent(effect.low)} to {percent(effect.high)})"
    floor = "" if control is None else f", control {percent(control.ratio)}"
    return f"{effect.blocks} blocks: {span}{floor}"


def refuse_without_gpu(undone: str) -> None:
    """Raise DeviceError with a remedy if this machine cannot time kernels. undone: such as "nothing was timed"."""
    if (why := why_not_timed()) is not None:
        raise DeviceError(
            f"{undone}: a timed comparison needs torch and a GPU; {why}. "
            "`tritonhook diff PTX|CAPTURE --rename` compares only the code, and needs neither"
        )


# --- the kinds of target -------------------------------------------------------------------------


def planned(options: Options, folder: Path) -> Planned:
    """Make the plan for the target. folder: folder for files that the comparison reads. Raises TritonHookError, and
    UsageError for options that the target would ignore."""
    first, *rest = options.target
    is_single = is_function(first) or not is_script(first)
    if is_single and options.rest is not None:
        raise UsageError(f"-- {' '.join(options.rest)}: only a script takes arguments after --")
    if is_function(first):
        _refuse(options, rest, ("--options", "--entry", "--args", "--launch"), f"{first} launches itself")
        changes: dict[str, Any] = {"candidate_options": options.timing.candidate_options}
        changes["rewrites"] = tuple(options.timing.rewrite)
        return Plan(first, folder, _rename(options), **changes, **_common(options)), ()
    never, why = ("--candidate", "--tune"), "the target is launched as recorded"
    if is_script(first):
        _refuse(options, (), never, why)
        _refuse(options, (), ("--args",), "a script's launches are recorded by running it")
        return _of_script(options, (first, *rest, *(options.rest or ())), folder)
    _refuse(options, rest[1:], never, why)
    if rest:
        return _of_cubins(options, first, rest[0], folder)
    path = Path(first)
    if path.is_dir() and not (path / "capture.json").exists() and not options.timing.recorded.args:
        return _of_folder(options, path, first, folder)
    return _of_kernel(options, first, folder, options.timing.recorded.of([first]))


def _refuse(options: Options, rest: Sequence[str], names: Sequence[str], why: str) -> None:
    """Raise UsageError if there are further targets (`rest`), or options of `names`: they would be ignored. why: the
    reason, for the message."""
    if rest:
        raise UsageError(
            f"{' '.join(rest)}: not understood; give one target, two cubins, or a script with its arguments"
        )
    if idle := [name for name in given_options(options.tool, options.timing, options.timing.recorded) if name in names]:
        raise UsageError(f"{', '.join(idle)}: not allowed here: {why}")


def _of_script(options: Options, words: Sequence[str], folder: Path) -> Planned:
    """Plan for a script: run it once to record its launches, and time one of them."""
    script_command(list(words), False)  # raises if the script does not exist
    refuse_without_gpu(f"{words[0]} was not run")
    record_launches(words, folder / "captures", "nothing was timed")
    trusted = replace(options, tool=replace(options.tool, trust=True))  # this command has just made the capture
    return _of_folder(trusted, folder / "captures", " ".join(words), folder)


def _of_folder(options: Options, path: Path, label: str, folder: Path) -> Planned:
    """Plan for a capture folder: time the launch that the options name, else the one that takes the most GPU time in
    total."""
    captures = captures_at(path)
    choices = list(selected(captures, options.tool.entry, options.timing.recorded.launch))
    kernels = {choice.record: choice for choice in choices if isinstance(choice, Selected) and choice.launches}
    damaged = tuple(f"{choice.kernel}: {choice.reason}" for choice in choices if isinstance(choice, Skipped))
    if not kernels:
        raise UsageError(f"{label}: {'; '.join((_why_none(options.tool.entry, captures), *damaged))}")
    called = titles_of({record: kernel.capture for record, kernel in kernels.items()})
    chosen, notes = _longest([launch for it in kernels.values() for launch in it.launches], path, label, called)
    plan, further = _of_kernel(options, str(path / "kernels" / chosen.record), folder, chosen.path)
    named = replace(plan, target=f"{label}: {called[chosen.record]}")
    return named, (*notes, *damaged, f"launched as recorded: {chosen.summary}", *further)


def _longest(
    launches: Sequence[Launched], path: Path, label: str, called: Mapping[str, str]
) -> tuple[Launched, tuple[str, ...]]:
    """Time every launch roughly. Returns the launch with the most time in total, and notes with the shares of others.

    A single launch is not timed. Raises UsageError if none can be repeated, DeviceError without a GPU.
    """
    if len(launches) == 1:
        return launches[0], ()
    refuse_without_gpu("nothing was timed")
    timed = with_times(launches, rough_times(path))
    usable = [launch for launch in timed if launch.us is not None]
    if not usable:
        raise UsageError(f"{label}: none of its launches can be repeated: {timed[0].why}")
    total = sum(launch.total for launch in usable)
    lines = [
        f"{called[one.record]} {one.total / total:.0%} ({one.count} x {one.us:.1f} us, --launch {one.key})"
        for one in usable[: _LISTED + 1]
    ]
    more = f", and {len(usable) - len(lines)} more" if len(usable) > len(lines) else ""
    failed = f"{len(timed) - len(usable)} launches could not be repeated"
    shares = f"shares of the recorded launches' time: {'; '.join(lines)}{more}"
    return usable[0], (shares, failed) if len(usable) < len(timed) else (shares,)


def _why_none(entry: str | None, captures: CaptureFolder) -> str:
    why = "".join(f"; {note}" for note in captures.notes)
    known = [captures.capture(record) for record in captures.records]
    if foreign := sorted({capture.front_end for capture in known} - {"Triton", "cute"}):
        why += f"; launches of {', '.join(foreign)} kernels are not recorded: time them as MODULE:FUNCTION"
    elif any(capture.dry_run for capture in known):
        why += f"; {DRY_LAUNCH}"
    elif known:
        why += "; its kernels were compiled but not launched: is there a GPU?"
    what = f"no launch{f' of {entry}' if entry else ''} was recorded"
    return f"{what}{why}; `tritonhook diff CAPTURE --rename` compares only the code"


def _of_kernel(options: Options, path: str, folder: Path, launch: Path) -> Planned:
    """Plan for one capture or PTX file: time the kernel unchanged and as the options change it, both launched as
    recorded."""
    given = load_input(path, options.tool.entry)
    check_entry(options.tool.entry, [given])
    if given.ptx is None:
        raise UsageError(f"{path}: no PTX to make a candidate of; give a second cubin, or a capture with PTX")
    timing, rename = options.timing, _rename(options)
    if rename is not None:
        rename.other_name(given.entry)  # raises an error if the rename changes nothing
    other = None if timing.candidate_ptxas is None else find_toolchain(timing.candidate_ptxas)
    further = tuple((timing.candidate_options or "").split())
    change = CandidateChange(rename, tuple(timing.rewrite), other, further)
    tool, arguments = chosen_assembler(options.tool.ptxas, options.tool.ptxas_options, options.tool.trust, [given])
    sides = sides_of_ptx(given.ptx, given.entry, change, toolchain_of(tool), arguments)
    notes = [f"assembled by ptxas {tool.version} with {' '.join(arguments) or 'no options'}"]
    code = Cubin.from_bytes(sides.reference.image).text(sides.reference.entry)
    if given.cubin is not None and given.cubin.text(given.entry) != code:
        notes.append("the assembled code differs from the captured cubin")
    names = change_names([given.entry], path, rename, change.rewrites, timing.candidate_options)
    return _launched(options, path, folder, sides, launch, names), tuple(notes)


def _of_cubins(options: Options, reference: str, candidate: str, folder: Path) -> Planned:
    """Plan for two cubins, captures or PTX files: time them unchanged."""
    timing = options.timing
    if options.rename.wanted() or timing.rewrite or timing.candidate_ptxas or timing.candidate_options:
        raise UsageError(
            "two targets are compared as they are; a change (a rename, --rewrite, ...) needs a single target"
        )
    launch = timing.recorded.of([reference, candidate])
    first, second = (_image(options, given) for given in load_pair(reference, candidate, options.tool.entry))
    label, names = f"{candidate} against {reference}", (reference, candidate)
    return _launched(options, label, folder, sides_of_cubins(first, second), launch, names), ()


def _image(options: Options, given: Input) -> KernelImage:
    cubin, version = cubin_of(given, options.tool.ptxas, options.tool.ptxas_options, options.tool.trust)
    return KernelImage(cubin.data, given.entry, version)


def _launched(options: Options, label: str, folder: Path, sides: Sides, launch: Path, names: tuple[str, str]) -> Plan:
    """Make the plan for cubins with a recorded launch. The changes of the options are already in the cubins."""
    images = sides.write(folder / "images")
    return Plan(target=label, out=folder, images=images, launch=launch, names=names, **_common(options))


def _common(options: Options) -> dict[str, Any]:
    """Return the fields of a Plan that do not depend on the target."""
    ptxas, other = (
        None if wanted is None else str(find_ptxas(wanted).path.absolute())
        for wanted in (options.tool.ptxas, options.timing.candidate_ptxas)
    )
    return {
        "candidate": options.timing.candidate,
        "baselines": tuple(options.timing.baseline),
        "ptxas": ptxas,
        "candidate_ptxas": other,
        "rtol": options.timing.tolerance.rtol,
        "path": search_path(),
        "tune_each": options.timing.tune == "each",
    }


def _rename(options: Options) -> Rename | None:
    """Return the rename of the options; if the options change nothing, the rename with the default prefix."""
    wanted, timing = options.rename.wanted(), options.timing
    others = (timing.candidate, timing.candidate_ptxas, timing.candidate_options, *timing.rewrite)
    return Rename(prefix=PREFIX) if wanted is None and not any(others) else wanted
