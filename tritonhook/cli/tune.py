"""Find what makes each kernel faster on this GPU, and write the wins to a policy.

TARGET is a script or MODULE:FUNCTION, which runs once to record its launches, or a capture folder with launches. A
lever is another name, ptxas version or ptxas option for the same PTX. tune first assembles each kernel with every
lever. Then the codes that store the same as the compiler's own code race on the GPU. The fastest code of each kernel
is confirmed in fresh processes. For an autotuned kernel the configurations that its tuner tried race too: a lever has
to beat the best of them, and a win pins configuration and lever. Wins go to a policy: `tritonhook run --policy` or
tritonhook.enable(policy=...) applies it. Ctrl-C keeps the wins that are confirmed. tune needs torch and a GPU;
--assemble-only and --check need neither. --check exits with 1 if an entry is stale, or does not apply on
this machine, or if another configuration than the pinned one won an autotuning. 2: a kernel could not be tuned.

  tritonhook tune train.py -o tritonhook.toml -- --steps 3
  tritonhook tune my_kernels:launch --levers name,pragma+ptxas=13.5.37,O1
  tritonhook tune captures --assemble-only      # on a machine without a GPU
  tritonhook tune train.py --arch sm_90a --assemble-only        # the same; it runs dry first
  tritonhook tune captures -o tritonhook.toml   # then on the one with it
  tritonhook tune --check                       # the kernels, levers and gains of the policy
  tritonhook tune --check captures              # which of its entries are stale?
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import date
from functools import partial
from pathlib import Path

from tritonhook._util.imports import check_numpy
from tritonhook._util.locks import changing
from tritonhook._util.text import say
from tritonhook._util.versions import version_key
from tritonhook.capture.policy.levers import AND, CONTROLS_VERSION, Lever, controls_levers, lever, levers
from tritonhook.capture.policy.model import (
    USUAL_NAME,
    Entry,
    Pin,
    read_entries,
    read_pins,
    unnumbered,
    updated,
    updated_pins,
    write_policy,
)
from tritonhook.capture.project import read_project
from tritonhook.capture.selection import Kernel, Skipped, kernels_in, that_matter, with_shares
from tritonhook.capture.settings import default_out
from tritonhook.capture.store import CaptureFolder
from tritonhook.cli._inputs import HUNG, OnlyKernel, Tolerance, captures_at, limit_option, outdated_note, trust_option
from tritonhook.cli._parser import Group, argument, flag, option, part, positive, rest, share
from tritonhook.cli._programs import is_function, is_script, record_launches, why_not_timed
from tritonhook.cli._progress import is_quiet, working
from tritonhook.cli._results import Results, check_new, give
from tritonhook.cli._sweeps import Sweep, running
from tritonhook.errors import INTERRUPTED, DeviceError, PolicyError, UsageError
from tritonhook.ptxas.tool import available_ptxas
from tritonhook.report.result import count
from tritonhook.timing.rough import rough_times
from tritonhook.tuning.candidates import Choice, Subject, all_choices, keep_choices, usual_levers
from tritonhook.tuning.engine import TuneProgress, TuneSettings, tune
from tritonhook.tuning.gpu import LIMIT_S, GpuProcess
from tritonhook.tuning.policy_check import against_captures, entries_here, pins_against, pins_here
from tritonhook.tuning.race import TriedKernel, TuneRun, assembled, entries, pins
from tritonhook.tuning.same_bits import held

_MIN_SHARE = 0.01
_CONFIGS = 3


@dataclass(frozen=True, kw_only=True)
class Options(Group):
    target: tuple[str, ...] = argument(
        nargs="*", help="SCRIPT.py [-- ARGUMENTS], MODULE:FUNCTION, or a capture folder with launches"
    )
    rest: tuple[str, ...] | None = rest()
    output: str | None = option(
        "-o",
        "--policy",
        metavar="FILE",
        help=f"the policy to write (default: that of pyproject.toml, else {USUAL_NAME}); it keeps entries of "
        "kernels that are not tuned now",
    )
    check_policy: bool = flag("--check", help="tune nothing: list the policy, or compare it with a capture folder")
    levers: str | None = option(
        metavar="LEVER,...", help="levers to try, besides those that won before (default: all except controls=FILE)"
    )
    controls: tuple[str, ...] = option(
        action="append",
        default=[],
        metavar="FILE",
        help="also try this file of ptxas's advanced controls, with ptxas 13.3 or newer",
    )
    top: int | None = option(type=positive, metavar="N", help="tune at most the N kernels that take most time")
    min_share: float = option(
        type=share(0.01, zero=True),
        default=_MIN_SHARE,
        metavar="SHARE",
        help="leave out kernels with a smaller share of the GPU's time (default: 1%%)",
    )
    only: OnlyKernel = part(OnlyKernel)
    configs: int = option(
        type=positive,
        default=_CONFIGS,
        metavar="N",
        help=f"for an autotuned kernel, try levers with the N fastest configurations (default: {_CONFIGS}); without "
        "levers all configurations race",
    )
    same_bits_as: str | None = option(
        metavar="CONFIG",
        help="of autotuned kernels, keep only configurations that store the same bits as this one, as num_warps=4: "
        "executed on the CPU, and compared on the GPU again",
    )
    tolerance: Tolerance = part(Tolerance)
    limit: float = limit_option(HUNG, f"{LIMIT_S:g}", LIMIT_S)
    assemble_only: bool = flag(help="assemble, and keep the codes in the capture folder, for a machine with a GPU")
    arch: str | None = option(metavar="SM", help="with --assemble-only: run the script dry for this architecture first")
    trust: bool = trust_option()
    sweep: Sweep = part(Sweep)
    results: Results = part(Results)

    @property
    def policy(self) -> Path:
        """The policy to write."""
        return Path(self.output or USUAL_NAME)


def run(options: Options) -> int:
    options = replace(options, output=options.output or read_project(Path.cwd()).policy)
    policy = options.policy
    if options.check_policy:
        return _check_policy(options)
    captures = _checked(options)
    if options.arch is not None:
        path = Path(default_out())
        record_launches([*options.target, *(options.rest or ())], path, "nothing was assembled", options.arch)
        captures = captures_at(path)
    before = read_entries(policy) if policy.exists() else ()
    if options.assemble_only:
        assert captures is not None
        return _assemble_only(options, captures, before)
    if (why := why_not_timed()) is not None:
        raise DeviceError(f"{why}: tuning needs torch and a GPU; --assemble-only needs neither")
    with tempfile.TemporaryDirectory(prefix="tritonhook-tune-") as folder:
        if captures is None:
            path = Path(folder) / "captures"
            record_launches([*options.target, *(options.rest or ())], path, "nothing was tuned")
            options = replace(options, trust=True)  # this command made the capture
            captures = captures_at(path)
        kernels, skipped = _kernels(options, captures)
        with working("timing the recorded launches"):
            configured = [launch for kernel in kernels for sibling in kernel.siblings for launch in sibling.launches]
            shares = with_shares(captures, kernels, rough_times(captures.path, others=configured))
        kernels, others = that_matter(shares, options.top, options.min_share)
        chosen, failed = _assembled(options, captures, kernels, before)
        with working("tuning", len(chosen)) as work:

            def show(step: TuneProgress) -> None:
                work.text, work.done = step.text or "tuning", step.done
                if step.finished is not None and not is_quiet():
                    say(f"tritonhook: {finished_line(step.finished)}")

            rtol, same = options.tolerance.rtol, options.same_bits_as is not None
            settings = TuneSettings(rtol=rtol, limit_s=options.limit, start=GpuProcess, same_bits=same)
            ran = tune(chosen, settings, show)
    try:
        _keep(policy, before, ran)
    finally:  # show the result even if the policy cannot be written
        code = _give(options, ran, [*failed, *others, *skipped])
    went_wrong = failed or skipped or any(not row.tried.is_judged for row in ran.rows)
    return code or (2 if went_wrong else 0)


def _check_policy(options: Options) -> int:
    """List the policy's kernels with levers and gains, and whether they apply on this machine; or compare it with the
    kernels of a capture folder: 1 if an entry is stale or does not apply on this machine, or another configuration than
    the pinned one won."""
    from tritonhook.report.results.policy import PolicyResult

    path, give_it = options.policy, partial(give, options.results)
    if len(options.target) > 1 or options.rest is not None:
        raise UsageError("--check: give a capture folder, or nothing to list the policy")
    if not options.target:
        give_it(PolicyResult.of(str(path), None, entries_here(path), pins=pins_here(path)), str(path))
        return 0
    folder = captures_at(options.target[0])  # an earlier run's leftovers would count as having a lever
    with running(options.sweep) as (go, _):
        entries = against_captures(path, [folder.capture(record) for record in folder.records], go)
    pins = pins_against(path, folder)
    give_it(PolicyResult.of(str(path), options.target[0], entries, outdated_note(folder), pins), str(path))
    return int(any(state.is_trouble for state in (*(one.state for one in entries), *(one.state for one in pins))))


def _keep(policy: Path, before: Sequence[Entry], ran: TuneRun) -> None:
    """Write the wins to the policy. before: its entries at the start, used if it can no longer be read. Raises
    PolicyError if it cannot be written."""
    judged = {
        (tried.kernel.name, *tried.kernel.identity[1:3], configuration.subject.ptx_sha256): configuration.levers
        for row in ran.rows
        if (tried := row.tried).is_judged
        for configuration in tried.choice.configurations
    }
    if judged or not ran.stopped:
        earlier: Sequence[Pin] = ()
        today = date.today().isoformat()
        won, pinned = entries(ran, today, policy.absolute().parent), pins(ran, today)
        with changing(policy):
            with suppress(PolicyError):  # another tuning may have added to it meanwhile
                before, earlier = read_entries(policy), read_pins(policy)
            after = updated(before, won, judged)
            write_policy(policy, after, updated_pins(earlier, pinned, before, after))


def _checked(options: Options) -> CaptureFolder | None:
    """Check the arguments before any work. Returns the captures to tune; None for a program, which is recorded first.
    Raises UsageError for arguments that exclude each other or files that cannot be written; ToolError for a ptxas that
    is not installed."""
    if not options.target:
        raise UsageError("nothing to tune; give a script, MODULE:FUNCTION or a capture folder with launches")
    target = " ".join(options.target)
    recorded = is_function(options.target[0]) or is_script(options.target[0])
    if len(options.target) > 1 and not is_script(options.target[0]):
        raise UsageError(f"{target}: not understood; give one target, or a script with its arguments")
    if options.rest is not None and not is_script(options.target[0]):
        raise UsageError(f"-- {' '.join(options.rest)}: only a script takes arguments after --")
    captures = None if recorded else captures_at(options.target[0])
    if options.arch is not None and not (recorded and options.assemble_only):
        raise UsageError(f"--arch {options.arch}: only for a script or MODULE:FUNCTION with --assemble-only")
    if recorded and options.assemble_only and options.arch is None:
        raise UsageError(
            f"--assemble-only: {options.target[0]} is run to record its launches; give --arch SM to run it dry, or the "
            "capture folder of `tritonhook run --launch-values` on a GPU"
        )
    given = levers(options.levers) if options.levers is not None else ()
    for wanted in (*given, *_controls(options, CONTROLS_VERSION)):
        wanted.assembling(options.policy.absolute().parent)
    if options.same_bits_as is not None:
        check_numpy()
    if not options.assemble_only:
        check_new(options.policy, force=True)
    return captures


def _kernels(options: Options, captures: CaptureFolder) -> tuple[list[Kernel], list[Skipped]]:
    """Find the kernels that can be tuned, and the others. Raises UsageError if there is nothing to tune."""
    met = kernels_in(captures, options.only.entry, dry=options.assemble_only)
    kernels = [kernel for kernel in met if isinstance(kernel, Kernel)]
    skipped = [kernel for kernel in met if isinstance(kernel, Skipped)]
    if not kernels:
        entry = options.only.entry
        what = f"no kernel {entry!r}" if entry and not skipped else "no kernel that can be tuned"
        reasons = dict.fromkeys(kernel.reason for kernel in skipped)
        raise UsageError(f"{options.target[0]}: {what}{''.join(f'; {reason}' for reason in reasons)}")
    return kernels, skipped


def _give(options: Options, ran: TuneRun, skipped: Sequence[Skipped]) -> int:
    from tritonhook.report.results.tuning import Tuning

    target = " ".join([*options.target, *(["--", *options.rest] if options.rest else [])])
    give(options.results, lambda full: Tuning.of(target, str(options.policy), ran, skipped, full))
    return INTERRUPTED if ran.stopped else 0


# --- assembling ----------------------------------------------------------------------------------


def _assemble_only(options: Options, captures: CaptureFolder, before: Sequence[Entry]) -> int:
    """Keep the candidates of every kernel with launches in the capture folder."""
    kernels, skipped = _kernels(options, captures)
    chosen, failed = _assembled(options, captures, kernels, before)
    for kernel, choice in chosen:
        keep_choices(captures.path, kernel, choice)
    return _give(options, assembled(chosen), [*failed, *skipped]) or (2 if failed or skipped else 0)


def _assembled(
    options: Options, captures: CaptureFolder, kernels: Sequence[Kernel], before: Sequence[Entry]
) -> tuple[list[tuple[Kernel, Choice]], list[Skipped]]:
    """Find the candidates of each kernel: those that the folder keeps if the options name no levers; else assemble
    them. before: entries of the policy, whose levers have to win again."""
    left: list[Skipped] = []
    if options.same_bits_as is not None and kernels:
        with working(f"executing the configurations of {count(len(kernels), 'kernel')}"):
            same = list(held(captures, kernels, options.same_bits_as))
        kernels = [one for one in same if isinstance(one, Kernel)]
        left = [one for one in same if isinstance(one, Skipped)]
    given = None if options.levers is None else levers(options.levers)

    def levers_of(kernel: Kernel, subject: Subject) -> tuple[Lever, ...]:
        own = subject.ptxas
        first = usual_levers(own, subject.arch, subject.front_end) if given is None else given
        earlier = (it.lever for it in before if unnumbered(it.identity) == unnumbered(kernel.identity))
        return tuple(dict.fromkeys((*first, *_controls(options, own.version), *earlier)))

    named = given is not None or bool(options.controls) or options.assemble_only
    folder, how = options.policy.absolute().parent, (options.configs, options.trust, named)
    with running(options.sweep) as (go, expect):
        chosen, failed = all_choices(captures, kernels, levers_of, *how, go, folder, expect)
    return chosen, [*left, *failed]


def _controls(options: Options, own: str) -> tuple[Lever, ...]:
    """Make a lever for each controls file; if the compiler's ptxas is too old for it, with the newest. Its path is
    relative to the policy."""
    folder = options.policy.absolute().parent
    files = controls_levers(os.path.relpath(file, folder) for file in options.controls)
    if version_key(own) >= version_key(CONTROLS_VERSION):
        return files
    newest = max((tool.version for tool in available_ptxas()), key=version_key, default=own)
    return tuple(lever(f"ptxas={newest}{AND}{controls.text}") for controls in files)


def finished_line(kernel: TriedKernel) -> str:
    """Report a kernel that has just finished. All are judged together later."""
    effect = None if kernel.comparison is None else kernel.comparison.effect()
    if kernel.reason or kernel.winner is None or effect is None:
        return f"{kernel.kernel.name}: {kernel.reason}"
    return f"{kernel.kernel.name}: {kernel.winner.name} takes {100 * (1 - effect.ratio):.1f}% less time"
