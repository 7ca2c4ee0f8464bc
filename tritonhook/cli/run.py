"""Run a script or a program, and capture the kernels that it and its child processes compile.

Options come before the script. The exit status is the script's; 128 + N if signal N ended it; 2 if it did not run.
The list of kernels goes to standard error. With --json or --markdown it goes to standard output, and what the script
prints to standard error.

  tritonhook run script.py arg ...
  tritonhook run --prefix cutlass_ --out captures -m package.module
  tritonhook run --rewrite tma-cta script.py
  tritonhook run --arch sm_90a train.py    # without a GPU
  tritonhook run -- torchrun --nproc-per-node 2 train.py
  tritonhook run --install-startup         # a .pth file, which reaches child processes that clear PYTHONPATH
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
from tritonhook.capture.policy.model import Pin, read_entries, read_pins, updated_pins, write_policy
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
    "no process that tritonhook reached compiled a kernel, or took one from a cache. Processes under `python -E` or "
    "`-I`, or with PYTHONPATH cleared, are reached after `tritonhook run --install-startup`"
)

_NO_GPU = "this machine has no GPU: `tritonhook run --arch sm_90a script.py` compiles the kernels and launches none"


def _startup_option(what: str) -> Any:
    """Declare a field for an option that may name a Python; without one it means this Python."""
    text = f"{what}, in the environment of this or another Python"
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
    policy: str | None = option(metavar="FILE", help="apply the levers of this policy, which `tritonhook tune` wrote")
    pin: str | None = option(
        metavar="FILE", help="pin the winner of each autotuning in this policy: later runs with it do not measure"
    )
    launches: bool = flag(one_of="launches", help="record how kernels are launched, for `tritonhook ab`")
    launch_values: bool = flag(one_of="launches", help="the same, with the contents of all buffers")
    arch: str | None = option(
        metavar="sm_XX", help="dry run, without a GPU: compile all kernels for this architecture, and launch none"
    )
    gpu: str | None = option(metavar="NAME", help='dry run as on this GPU, such as "H100": its figures and its name')
    autotune: str | None = option(
        choices=(FIRST, ALL, PINNED),
        help="of an autotuned kernel in a dry run, compile the first configuration that fits (default), all, or what "
        "the policy pins",
    )
    emulate: bool = flag(help="in a dry run, execute each launch on the CPU, so that its results are real")
    count: bool = flag(help="--emulate: then give Nsight Compute's counters of a launch of each kernel")
    sanitize: bool = flag(help="with --emulate, look for faults of the kernels; one that is found makes the status 1")
    suppress: str | None = option(metavar="FILE", help="with --sanitize, findings that do not count, in TOML")
    bounds: str | None = option(choices=BOUNDS, metavar="WHAT", help="with --sanitize, as in emulate")
    memory: str | None = option(
        choices=(REAL, NONE), help="tensors of a dry run are in the CPU's memory (default), or have no memory"
    )
    ptxas_limit: float | None = option(
        type=float,
        metavar="SECONDS",
        help=f"dry run: leave out a kernel for which ptxas takes longer (default: {PTXAS_SECONDS:.0f})",
    )
    launch_anyway: bool = flag(help="in a dry run, note what the GPU would refuse to launch, and go on")
    watch: bool = flag(help="run again when a source that the run loaded changes, and say what changed in the kernels")
    install_startup: str | None = _startup_option(
        "install a .pth file, which lets runs reach processes that clear PYTHONPATH"
    )
    remove_startup: str | None = _startup_option("remove that file")
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
    """Install or remove the .pth file in an environment."""
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
    """Run, and again after each change of a source, until a signal such as Ctrl-C. Only the first run may raise."""
    from tritonhook.cli._changes import give_folders

    out = near(Path(options.out or default_out()).absolute())
    runs, times, sources = _runs(out), times_of(_sources(options, out)), list[Path]()
    while True:
        try:
            if (ended := _run_once(options)).signal is not None:
                return ended.status
            sources = _sources(options, out)
            times = {**times_of(sources), **times}  # what was edited during the run counts
            if runs < (runs := _runs(out)):
                with suppress(CaptureError):  # the first run of its command
                    before, latest = CaptureFolder.open(out).previous()
                    give_folders(options.results, (), f"{out}@{before}", f"{out}@{latest}")
        except (TritonHookError, OSError) as error:  # a checkout removes a source for a moment
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
    """List the script and what the runs into this folder have loaded."""
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
    """Return the target of a dry run; None without --arch or --gpu. Raises UsageError, and ToolError if no ptxas of
    this Python's Triton knows the architecture."""
    if options.arch is None and options.gpu is None:
        return None
    limit = PTXAS_SECONDS if options.ptxas_limit is None else options.ptxas_limit
    autotune, memory = options.autotune or FIRST, options.memory or REAL
    return assembled(DryRun.of(options.arch, options.gpu, autotune, memory, limit, options.launch_anyway))


def _completed(options: Options, project: Project) -> Options:
    """Check options that need or exclude others, and add the settings of the project; `out` comes by the environment,
    to other verbs too. A policy does not go with options that say how kernels are changed. Raises UsageError."""
    if options.count and not options.emulate:
        raise UsageError("--count: only with --emulate; `tritonhook emulate CAPTURES --count` counts recorded launches")
    if options.pin is not None and options.policy is not None:
        raise UsageError("--pin measures again; leave out --policy, whose pins would decide")
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
            raise UsageError("--emulate needs the values of tensors; leave --memory none out")
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
    """Write a note for each OLD of --to that no kernel had."""
    if rename is None or not rename.mapping:
        return
    captures = [folder.try_capture(record) for record in folder.records]
    names = {n for c in captures if isinstance(c, Capture) for n in (c.kernel, c.rewritten_from)}
    for old, new in rename.mapping:
        if old not in names:
            yield f"--to {old}={new}: no kernel of that name was seen"


def _behind_script(command: Sequence[str]) -> Iterator[str]:
    """Write a note on options of ours behind the script. Options that its text has are its own."""
    script, *words = command
    text = Path(script).read_text(errors="replace") if Path(script).is_file() else ""
    ours = option_names(Options)
    late = {name for word in words if (name := word.partition("=")[0]) in ours and name.startswith("--")}
    if script != "--" and (late := {name for name in late if name not in text}):
        yield f"{listed(sorted(late))}: went to {script}; options of `tritonhook run` come before it"


def _passed_by(command: Sequence[str], folder: CaptureFolder) -> Iterator[str]:
    """Note a compiler that was called by its full path, and so not through the wrapper on PATH."""
    program = command[0]
    if not folder.records and "/" in program and Path(program).name in ("nvcc", "ptxas", "tileiras"):
        yield f"{program}: its full path bypasses the wrapper; put its folder on PATH and write {Path(program).name}"


def _report(summary: Summary, folder: CaptureFolder, dry_run: DryRun | None) -> None:
    """Print the kernels on standard error: standard output is the script's."""
    from tritonhook.report.render.terminal import render_terminal

    records = folder.records
    hits = sum(all(s.cache_hit for s in folder.seen(record)) for record in records)  # a worker may have compiled it
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
Times = Mapping[Path, int]  # when each file was written; files that are not there have no time


def times_of(paths: Iterable[Path]) -> Times:
    times = {}
    for path in paths:
        try:
            times[path] = os.stat(path).st_mtime_ns  # noqa: PTH116  (many, several times a second)
        except OSError:
            continue  # an editor replaces it
    return times


def await_change(paths: Iterable[Path], before: Times, sleep: Callable[[float], None] = time.sleep) -> list[Path]:
    """Wait until some of the files have been written since `before`, and are no longer being written. Returns them."""
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
    """Return a pin for each autotuned function and key. gpu: the name of the GPU that measured;
    "" where not known."""
    today = date.today().isoformat()
    return [Pin(won.function, won.arch, won.key, won.config, None, gpu, today, won.source) for won in winners(folder)]


def keep_pins(path: Path, folder: CaptureFolder) -> str:
    """Write the winners to a policy beside what it has; a pin of the same function, target, key and GPU is replaced.
    Returns a note. Raises PolicyError."""
    won = pins_of(folder, gpu_name())
    if not won:
        return f"{path} is unchanged: no autotuner measured; a winner from an autotuning cache is not seen"
    with changing(path):
        entries, pins = (read_entries(path), read_pins(path)) if path.exists() else ((), ())
        kept = updated_pins(pins, won, entries, entries)
        write_policy(path, entries, kept)
    changed = sum(pinned.identity in {pin.identity for pin in pins} and pinned not in pins for pinned in won)
    again = f", {changed:,} of them changed" if changed else ""
    return f"wrote {path}: {count(len(won), 'winner')} of autotuning pinned{again}"
