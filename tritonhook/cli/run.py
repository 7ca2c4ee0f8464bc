"""Run a script or a program, and capture the kernels that it and its child processes compile.

Options come before the script. The exit code is the script's; 128 + N if signal N ended it; 2 if it did not run.
The list of kernels is printed on standard error. With --json or --markdown it is printed on standard output, and the
output of the script goes to standard error.

  tritonhook run script.py arg ...
  tritonhook run --prefix cutlass_ --out captures -m package.module
  tritonhook run --rewrite tma-cta script.py
  tritonhook run --arch sm_90a train.py    # without a GPU
  tritonhook run -- torchrun --nproc-per-node 2 train.py
  tritonhook run --install-startup         # also capture in child processes that clear PYTHONPATH
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tritonhook._util.imports import check_numpy
from tritonhook._util.locks import changing
from tritonhook._util.text import say
from tritonhook.capture.dry_run.gpu import ALL, FIRST, NONE, PINNED, PTXAS_SECONDS, REAL, DryRun, Emulation
from tritonhook.capture.dry_run.process import assembled
from tritonhook.capture.dry_run.suppressions import Found, read_suppressions
from tritonhook.capture.launches.views import BOUNDS, STORAGE
from tritonhook.capture.model import Capture
from tritonhook.capture.policy.model import Pin, read_blocks, updated_pins, write_policy
from tritonhook.capture.policy.winners import winners
from tritonhook.capture.project import Project, read_project
from tritonhook.capture.ptxas_wrapper.script import troubles
from tritonhook.capture.session import seen_text
from tritonhook.capture.settings import DEFAULT_OUT, SHAPES, VALUES, default_out, make_settings
from tritonhook.capture.store import CaptureFolder
from tritonhook.children.environment import PTH, install_pth, run_environment, site_folder, uninstall_pth
from tritonhook.cli._parser import Group, argument, flag, option, option_names, part
from tritonhook.cli._programs import Ended, near, reading_ahead, run_to_end, script_command
from tritonhook.cli._progress import working
from tritonhook.cli._renames import RenameOptions, rewrite_option
from tritonhook.cli._results import Results, give
from tritonhook.cli._streams import complain, write_err
from tritonhook.device.cuda_driver import gpu_name
from tritonhook.errors import CaptureError, TritonHookError, UsageError, listed
from tritonhook.rename import Rename
from tritonhook.report.result import count

if TYPE_CHECKING:
    from tritonhook.report.result import Summary

_LISTED = 20
_NOT_REACHED = (
    "no captured process compiled a kernel, or loaded one from a cache. Processes under `python -E` or `-I`, or with "
    "PYTHONPATH cleared, are captured only after `tritonhook run --install-startup`"
)

_NO_GPU = "this machine has no GPU: `tritonhook run --arch sm_90a script.py` compiles the kernels and launches none"


def _startup_option(what: str) -> Any:
    """Declare an option that takes the path of a Python interpreter; without a value, it means this interpreter."""
    text = f"{what}, in the environment of this Python, or of PYTHON"
    return option(one_of="startup", nargs="?", const=sys.executable, metavar="PYTHON", help=text)


@dataclass(frozen=True, kw_only=True)
class Options(Group):
    out: str | None = option(metavar="DIR", help=f"folder for captures (default: $TRITONHOOK_OUT, else {DEFAULT_OUT})")
    only: str | None = option(metavar="REGEX", help="capture and rename only kernels whose name matches")
    rename: RenameOptions = part(RenameOptions)
    rewrite: tuple[str, ...] = rewrite_option("rewrite kernels")
    ptxas: str | None = option(metavar="VERSION|PATH", help="assemble Triton's kernels with this ptxas")
    ptxas_options: str | None = option(
        "--options", metavar="'...'", help="add these ptxas options for Triton's kernels: --options='-O1 -v'"
    )
    policy: str | None = option(
        metavar="FILE", help="apply this policy: the levers (names, ptxas, options) that `tritonhook tune` chose"
    )
    pin: str | None = option(
        metavar="FILE",
        help="write the winner of each autotuning to this policy: later runs with --policy FILE do not measure again",
    )
    launches: bool = flag(
        one_of="launches", help="record the launches of kernels, without the contents of buffers, for `tritonhook ab`"
    )
    launch_values: bool = flag(
        one_of="launches", help="record the launches of kernels, with the contents of all buffers"
    )
    arch: str | None = option(
        metavar="sm_XX", help="dry run, without a GPU: compile all kernels for this architecture, launch none"
    )
    gpu: str | None = option(metavar="NAME", help='dry run that reports this GPU to the program, e.g. "H100"')
    autotune: str | None = option(
        choices=(FIRST, ALL, PINNED),
        help="in a dry run: configurations of an autotuned kernel to compile: the first that fits (default), all, or "
        "the one that a policy pins",
    )
    emulate: bool = flag(help="in a dry run: execute each launch on the CPU, so that tensors have real results")
    count: bool = flag(help="with --emulate: at the end, compute Nsight Compute's counters for a launch of each kernel")
    sanitize: bool = flag(help="with --emulate: look for faults of the kernels; exit code 1 if there is one")
    suppress: str | None = option(metavar="FILE", help="with --sanitize: TOML file that lists findings to ignore")
    bounds: str | None = option(choices=BOUNDS, metavar="WHAT", help="with --sanitize: as in `tritonhook emulate`")
    memory: str | None = option(
        choices=(REAL, NONE), help="in a dry run: whether tensors have memory on the CPU (real, the default) or none"
    )
    ptxas_limit: float | None = option(
        type=float,
        metavar="SECONDS",
        help=f"in a dry run: leave out a kernel if ptxas takes longer (default: {PTXAS_SECONDS:.0f})",
    )
    launch_anyway: bool = flag(help="in a dry run: go on after a launch that the GPU would refuse, with a note")
    watch: bool = flag(help="run again when a source file of the program changes, and show what changed in the kernels")
    install_startup: str | None = _startup_option(
        "install a .pth file, so that processes that clear PYTHONPATH are captured, too"
    )
    remove_startup: str | None = _startup_option("remove the .pth file of --install-startup")
    module: bool = flag("-m", help="run a module instead of a script, as python -m does")
    command: tuple[str, ...] = argument(
        nargs=argparse.REMAINDER, help="script and its arguments, or -- program and arguments"
    )
    results: Results = part(Results)


def run(options: Options) -> int:
    if options.install_startup or options.remove_startup:
        return _change_startup(options)
    options = _completed(options, read_project(Path.cwd()))
    return _watch(options) if options.watch else _run_once(options).code


def _change_startup(options: Options) -> int:
    """Install or remove the .pth file in the environment of a Python."""
    from tritonhook.report.results.tools import Installed

    folder = site_folder(options.install_startup or options.remove_startup or sys.executable)
    if options.remove_startup:
        state, done = "not installed", "removed" if uninstall_pth(folder) else "was not installed"
    else:
        install_pth(folder)
        state = done = "installed"
    give(options.results, Installed("startup file", str(folder / PTH), state, done))
    return 0


def _watch(options: Options) -> int:
    """Run the program, and again after each change of a source, until a signal such as Ctrl-C. Errors of the first run
    are raised, later ones printed."""
    from tritonhook.cli._changes import give_folders

    out = Path(options.out or default_out())
    runs, times, sources = _runs(out), times_of(_sources(options, out)), list[Path]()
    while True:
        try:
            if (ended := _run_once(options)).signal is not None:
                return ended.status
            sources = _sources(options, out)
            times = {**times_of(sources), **times}  # times before the run: an edit during the run counts as a change
            if runs < (runs := _runs(out)):
                with suppress(CaptureError):  # the first run of a command has no previous run
                    before, latest = CaptureFolder.open(out).previous()
                    give_folders(options.results, (), f"{out}@{before}", f"{out}@{latest}")
        except (TritonHookError, OSError) as error:  # e.g. git checkout removes a source for a moment
            if not sources:
                raise
            complain("run", error)
        say(f"tritonhook: waiting for a change of {listed([str(near(path)) for path in sources])}; Ctrl-C ends")
        changed = await_change(sources, times)
        times = times_of(sources)
        say(f"tritonhook: {listed([str(near(path)) for path in changed])} changed")


def _runs(out: Path) -> int:
    return len(CaptureFolder.open(out).runs) if (out / "index").is_dir() else 0


def _sources(options: Options, out: Path) -> list[Path]:
    """List the script, and the source files that earlier runs into this folder have loaded."""
    script = [Path(word) for word in options.command[:1] if word.endswith(".py")]
    loaded = CaptureFolder.open(out).sources if (out / "index").is_dir() else ()
    return list(dict.fromkeys([*(path.absolute() for path in script), *map(Path, loaded)]))


def _run_once(options: Options) -> Ended:
    dry_run = _dry_run(options)
    command = script_command(options.command, options.module)
    rename = options.rename.wanted()
    settings = make_settings(
        options.out,
        rename,
        only=options.only,
        rewrites=options.rewrite,
        launches=VALUES if options.launch_values or options.count else SHAPES if options.launches or dry_run else None,
        ptxas=options.ptxas,
        options=options.ptxas_options,
        policy=options.policy,
        dry_run=dry_run,
    )
    started = time.time_ns()
    environment, log = run_environment(settings, command)
    found = None
    if options.sanitize:
        found = Found.in_file(read_suppressions(Path(options.suppress)) if options.suppress else ())
    if options.emulate:
        how = Emulation() if found is None else replace(found.emulation, bounds=options.bounds or STORAGE)
        environment |= how.to_environment()
    with reading_ahead(settings.out) if dry_run else nullcontext():
        ended = run_to_end(command, environment, options.results.is_printed)
    try:
        from tritonhook.report.results.captures import Captures

        folder = CaptureFolder.open(near(settings.out)).since(started)
        notes = [
            *(settings.policy.notes if settings.policy else ()),
            *folder.notes,
            *troubles(log, settings.out, started),
            *_unmatched(rename, folder),
            *_passed_by(command, folder),
            *_behind_script(options.command),
        ]
        if options.emulate:
            until = f", until the program ended with status {ended.code}" if ended.code else ""
            notes.append(f"emulated: each launch was executed on the CPU{until}")
        if found is not None:
            findings, further = found.take()
            faults = count(len(findings), "fault") if findings else "no fault"
            notes += [*(f"FAULT {text}" for text in findings), *further, f"sanitized: {faults} found{until}"]
            ended = ended._replace(code=1) if findings and not ended.code else ended
        if options.pin is not None:
            notes.append(keep_pins(Path(options.pin), folder))
        if ended.code and dry_run is None and not [*Path("/dev").glob("nvidia[0-9]*"), *Path("/dev").glob("dxg")]:
            notes.append(_NO_GPU)
        if not (ended.code or folder.records or folder.crashes or notes):
            notes.append(_NOT_REACHED)
        if options.count:
            from tritonhook.report.results.counters import Counting

            with working("counting kernels"):
                counting = Counting.of_captures(folder)
            give(options.results, counting)
        else:
            captures = Captures.of(folder).with_notes(notes)
            give(options.results, captures, show=lambda summary: _report(summary, folder, dry_run))
    except Exception as error:  # the script has run: its status is returned anyway
        complain("run, after the script", error)
    return ended


def _dry_run(options: Options) -> DryRun | None:
    """Make the settings of a dry run; None without --arch and --gpu. Raises UsageError, and ToolError if the ptxas of
    this Python's Triton does not support the architecture."""
    if options.arch is None and options.gpu is None:
        return None
    limit = PTXAS_SECONDS if options.ptxas_limit is None else options.ptxas_limit
    autotune, memory = options.autotune or FIRST, options.memory or REAL
    return assembled(DryRun.of(options.arch, options.gpu, autotune, memory, limit, options.launch_anyway))


def _completed(options: Options, project: Project) -> Options:
    """Check the combination of options, and add the settings of the project (pyproject.toml). The project's policy is
    not added if options change kernels. `out` is not added here: default_out reads it from the environment. Raises
    UsageError."""
    if options.count and not options.emulate:
        raise UsageError("--count: only with --emulate; `tritonhook emulate CAPTURES --count` counts recorded launches")
    if options.pin is not None and options.policy is not None:
        raise UsageError("--pin: not allowed with --policy: the policy's pins would prevent the measurement")
    if options.arch is None and options.gpu is None:
        for name in ("autotune", "memory", "ptxas_limit", "launch_anyway", "emulate", "sanitize", "suppress", "bounds"):
            if getattr(options, name):
                raise UsageError(f"--{name.replace('_', '-')} is for dry runs; give --arch too")
    elif options.pin is not None:
        raise UsageError("--pin: a dry run measures nothing; run on a GPU")
    elif options.launch_values:
        raise UsageError("--launch-values: a dry run has no values, as nothing is launched; use --launches")
    if options.emulate:
        check_numpy("--emulate")
        if options.memory == NONE:
            raise UsageError("--emulate needs the values of tensors; omit --memory none")
    elif options.sanitize:
        raise UsageError("--sanitize: only with --emulate, which executes launches")
    if name := next((name for name in ("suppress", "bounds") if getattr(options, name) and not options.sanitize), ""):
        raise UsageError(f"--{name}: only with --sanitize")
    if options.ptxas_limit is not None and options.ptxas_limit <= 0:
        raise UsageError(f"--ptxas-limit {options.ptxas_limit}: give a number above 0")
    changes = options.ptxas or options.ptxas_options or options.rewrite or options.rename.wanted()
    policy = options.policy if options.policy or changes or options.pin is not None else project.policy
    if options.autotune == PINNED and policy is None:
        raise UsageError("--autotune pinned: give --policy FILE, a policy that pins configurations")
    options = replace(options, policy=policy, only=project.only if options.only is None else options.only)
    if policy is not None:
        return options
    return replace(options, ptxas=options.ptxas or project.ptxas, rewrite=options.rewrite or project.rewrites)


def _unmatched(rename: Rename | None, folder: CaptureFolder) -> Iterator[str]:
    """Yield a note for each OLD of --to OLD=NEW that is the name of no kernel."""
    if rename is None or not rename.mapping:
        return
    captures = [folder.try_capture(record) for record in folder.records]
    names = {n for c in captures if isinstance(c, Capture) for n in (c.kernel, c.rewritten_from)}
    for old, new in rename.mapping:
        if old not in names:
            yield f"--to {old}={new}: no kernel of that name was seen"


def _behind_script(command: Sequence[str]) -> Iterator[str]:
    """Yield a note on options of `tritonhook run` that stand after the script, where they are the script's arguments.
    Options that occur in the script's text are left out, because they may be its own."""
    script, *words = command
    text = Path(script).read_text(errors="replace") if Path(script).is_file() else ""
    ours = option_names(Options)
    late = {name for word in words if (name := word.partition("=")[0]) in ours and name.startswith("--")}
    if script != "--" and (late := {name for name in late if name not in text}):
        yield f"{listed(sorted(late))}: passed to {script}; options of `tritonhook run` must come before it"


def _passed_by(command: Sequence[str], folder: CaptureFolder) -> Iterator[str]:
    """Yield a note on a compiler called by its full path: it bypasses our wrapper, which is found through PATH."""
    program = command[0]
    if not folder.records and "/" in program and Path(program).name in ("nvcc", "ptxas", "tileiras"):
        yield f"{program}: its full path bypasses the wrapper; put its folder on PATH and write {Path(program).name}"


def _report(summary: Summary, folder: CaptureFolder, dry_run: DryRun | None) -> None:
    """Print the list of kernels on standard error, as standard output belongs to the script."""
    from tritonhook.report.render.terminal import render_terminal

    records = folder.records
    hits = sum(all(s.cache_hit for s in folder.seen(record)) for record in records)  # False if any process compiled it
    if summary.tables:
        tables = tuple(replace(table, rows=table.rows[:_LISTED]) for table in summary.tables)
        write_err(render_terminal(replace(summary, tables=tables), sys.stderr))
    else:
        for note in summary.notes:
            print(f"  {note}", file=sys.stderr)
    if len(records) > _LISTED:
        print(f"... {len(records) - _LISTED} more; to list them all: tritonhook show {folder.path}", file=sys.stderr)
    dry = "" if dry_run is None else f"dry run for {dry_run.arch}, nothing was launched: "
    print(f"tritonhook: {dry}{seen_text(len(records), hits, folder.path)}", file=sys.stderr)


# --- --watch -------------------------------------------------------------------------------------

_POLL_S = 0.3
Times = Mapping[Path, int]  # modification time of each existing file, in ns


def times_of(paths: Iterable[Path]) -> Times:
    """Read when each file was last written. Missing files are left out."""
    times = {}
    for path in paths:
        try:
            times[path] = os.stat(path).st_mtime_ns  # noqa: PTH116  (many files, several times a second)
        except OSError:
            continue  # missing, e.g. while an editor replaces it
    return times


def await_change(paths: Iterable[Path], before: Times, sleep: Callable[[float], None] = time.sleep) -> list[Path]:
    """Wait until some files have changed since `before`, and have not changed for _POLL_S. Returns them. sleep: for
    tests."""
    paths = list(paths)
    last = dict(before)
    while True:
        sleep(_POLL_S)
        now = dict(times_of(paths))
        changed = [path for path in now if now[path] != before.get(path)]
        if changed and now == last:
            return changed
        last = now


# --- --pin ---------------------------------------------------------------------------------------


def pins_of(folder: CaptureFolder, gpu: str) -> list[Pin]:
    """Make a pin of the winner for each autotuned function and key. gpu: name of the GPU that measured; "" if
    unknown."""
    today = date.today().isoformat()
    return [Pin(won.function, won.arch, won.key, won.config, None, gpu, today, won.source) for won in winners(folder)]


def keep_pins(path: Path, folder: CaptureFolder) -> str:
    """Add the winners of autotunings to a policy file as pins. Pins of the same function, architecture, key and GPU are
    replaced; all else stays. Returns a note. Raises PolicyError."""
    won = pins_of(folder, gpu_name())
    if not won:
        return (
            f"{path} is unchanged: no autotuner measured; a winner that was read from an autotuning cache is not pinned"
        )
    with changing(path):
        entries, pins = read_blocks(path) if path.exists() else ((), ())
        kept = updated_pins(pins, won, entries, entries)
        write_policy(path, entries, kept)
    changed = sum(pinned.identity in {pin.identity for pin in pins} and pinned not in pins for pinned in won)
    again = f", {changed:,} of them changed" if changed else ""
    return f"wrote {path}: {count(len(won), 'winner')} of autotuning pinned{again}"
