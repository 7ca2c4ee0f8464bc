"""Find faster machine code for each kernel on this GPU, and write the wins to a policy.

TARGET is a script or MODULE:FUNCTION, which runs once to record its launches, or a capture folder with launches. A
lever is another kernel name, ptxas version or ptxas option for the same PTX. tune assembles each kernel with every
lever. Codes that store the same values as the compiler's own code then race on the GPU. The fastest code of each kernel
is confirmed in fresh processes. For an autotuned kernel, the configurations that its autotuner tried race too: a lever
has to beat the best of them, and a win pins both configuration and lever. Wins are written to a policy file, which
`tritonhook run --policy` or tritonhook.enable(policy=...) applies. Ctrl-C keeps the wins confirmed so far. tune needs
torch and a GPU; --assemble-only and --check need neither.

Exit codes: 2 if a kernel could not be tuned. With --check: 1 if an entry is stale or does not apply on this machine, or
if an autotuning chose another configuration than the pinned one.

  tritonhook tune train.py -o tritonhook.toml -- --steps 3
  tritonhook tune my_kernels:launch --levers name,pragma+ptxas=13.5.37,O1
  tritonhook tune captures --assemble-only      # on a machine without a GPU
  tritonhook tune train.py --arch sm_90a --assemble-only        # the same for a script, which runs dry
  tritonhook tune captures -o tritonhook.toml   # then on the machine with the GPU
  tritonhook tune --check                       # list kernels, levers and gains of the policy
  tritonhook tune --check captures              # list entries that are stale
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tritonhook._util.imports import check_numpy
from tritonhook._util.text import say
from tritonhook.capture.dry_run.gpu import ALL, DryRun
from tritonhook.capture.dry_run.process import assembled
from tritonhook.capture.policy.levers import controls_levers, levers
from tritonhook.capture.policy.model import USUAL_NAME, read_blocks
from tritonhook.capture.policy.winners import winners
from tritonhook.capture.project import read_project
from tritonhook.capture.selection import Kernel, Skipped, kernels_in, that_matter, with_shares
from tritonhook.capture.settings import default_out
from tritonhook.cli._inputs import HUNG, OnlyKernel, Tolerance, captures_at, limit_option, outdated_note, trust_option
from tritonhook.cli._parser import Group, argument, flag, option, part, positive, rest, share
from tritonhook.cli._programs import is_function, is_script, record_launches, why_not_timed
from tritonhook.cli._progress import is_quiet, working
from tritonhook.cli._results import Results, check_new, give
from tritonhook.cli._sweeps import Sweep, running
from tritonhook.errors import INTERRUPTED, DeviceError, UsageError
from tritonhook.report.result import count
from tritonhook.timing.rough import rough_times
from tritonhook.tuning.candidates import Asked, Choice, all_choices, keep_choices
from tritonhook.tuning.engine import TuneProgress, TuneSettings, tune
from tritonhook.tuning.gpu import LIMIT_S, GpuProcess
from tritonhook.tuning.policy_check import against_captures, pins_against, policy_here
from tritonhook.tuning.race import TriedKernel, TuneRun, not_raced
from tritonhook.tuning.same_bits import held
from tritonhook.tuning.wins import write_wins

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
        help=f"policy file to write (default: the one in pyproject.toml, else {USUAL_NAME}); entries of kernels that "
        "are not tuned now stay in it",
    )
    check_policy: bool = flag(
        "--check", help="tune nothing: list the policy; with a capture folder, find stale entries"
    )
    levers: str | None = option(
        metavar="LEVER,...",
        help="levers to try, besides those that the policy already has (default: all except controls=FILE)",
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
        help=f"for an autotuned kernel, try levers with the N fastest configurations (default: {_CONFIGS}); all other "
        "configurations race without levers",
    )
    same_bits_as: str | None = option(
        metavar="CONFIG",
        help="of autotuned kernels, use only configurations that store the same bits as CONFIG, e.g. num_warps=4; they "
        "are executed on the CPU, and compared again on the GPU",
    )
    tolerance: Tolerance = part(Tolerance)
    limit: float = limit_option(HUNG, f"{LIMIT_S:g}", LIMIT_S)
    assemble_only: bool = flag(
        help="assemble only, and store the codes in the capture folder, for a later race on a GPU"
    )
    arch: str | None = option(
        metavar="SM", help="with --assemble-only: first run the script dry for this architecture, e.g. sm_90a"
    )
    trust: bool = trust_option()
    sweep: Sweep = part(Sweep)
    results: Results = part(Results)

    @property
    def policy(self) -> Path:
        """The policy file to write or check."""
        return Path(self.output or USUAL_NAME)

    @property
    def is_program(self) -> bool:
        """Whether the target is a program, which is run to record its launches."""
        return bool(self.target) and (is_function(self.target[0]) or is_script(self.target[0]))

    def check(self) -> None:
        if self.check_policy:
            if len(self.target) > 1 or self.rest is not None:
                raise UsageError("--check: give one capture folder, or no target to list the policy")
            return
        if not self.target:
            raise UsageError("nothing to tune; give a script, MODULE:FUNCTION or a capture folder with launches")
        first = self.target[0]
        if len(self.target) > 1 and not is_script(first):
            raise UsageError(
                f"{' '.join(self.target)}: too many targets; give one target, or a script with its arguments"
            )
        if self.rest is not None and not is_script(first):
            raise UsageError(f"-- {' '.join(self.rest)}: only a script takes arguments after --")
        if self.arch is not None and not (self.is_program and self.assemble_only):
            raise UsageError(f"--arch {self.arch}: only for a script or MODULE:FUNCTION with --assemble-only")
        if self.is_program and self.assemble_only and self.arch is None:
            raise UsageError(
                f"--assemble-only: {first} is run to record its launches; give --arch SM to run it dry, or the "
                "capture folder of `tritonhook run --launch-values` on a GPU"
            )


def run(options: Options) -> int:
    options = replace(options, output=options.output or read_project(Path.cwd()).policy)
    return _check_policy(options) if options.check_policy else _tune(options)


def _check_policy(options: Options) -> int:
    """List the policy's entries and pins, and whether they apply on this machine. With a capture folder, compare them
    with its kernels. Returns 1 if an entry or a pin is stale, or an entry does not apply here; 0 without a folder."""
    from tritonhook.report.results.policy import PolicyResult

    path, target, notes = options.policy, None, list[str]()
    checked, pinned = policy_here(path)
    if options.target:
        target = options.target[0]
        folder = captures_at(target)  # only its latest run: in an earlier run a kernel may have had a lever
        notes = outdated_note(folder)
        captures, won = [folder.capture(record) for record in folder.records], list(winners(folder))
        with running(options.sweep) as (go, _):
            pinned = pins_against(pinned, won)
            checked = against_captures(checked, captures, go, path.absolute().parent)
    give(options.results, PolicyResult.of(str(path), target, checked, notes, pinned), str(path))
    states = (*(one.state for one in checked), *(one.state for one in pinned))
    return int(target is not None and any(state.is_trouble for state in states))


def _tune(options: Options) -> int:
    """Record the launches of a program, choose kernels, assemble their candidates and race them; with --assemble-only,
    store the candidates in the capture folder instead. Returns the exit code."""
    from tritonhook.report.results.tuning import Tuning

    asked = _asked(options)
    words, races = [*options.target, *(options.rest or ())], not options.assemble_only
    others, unequal = list[Skipped](), list[Skipped]()
    with tempfile.TemporaryDirectory(prefix="tritonhook-tune-") as folder:
        made = Path(folder, "captures") if races else Path(default_out())
        if options.is_program:
            dry = None if options.arch is None else assembled(DryRun.of(options.arch, autotune=ALL))
            record_launches(words, made, f"nothing was {'tuned' if races else 'assembled'}", dry)
        captures = captures_at(made if options.is_program else options.target[0])
        entry = options.only.entry
        met = kernels_in(captures, entry, dry=options.assemble_only)
        kernels = [kernel for kernel in met if isinstance(kernel, Kernel)]
        skipped = [kernel for kernel in met if isinstance(kernel, Skipped)]
        if not kernels:
            what = f"no kernel {entry!r}" if entry and not skipped else "no kernel that can be tuned"
            raise UsageError("; ".join([f"{options.target[0]}: {what}", *dict.fromkeys(it.reason for it in skipped)]))
        if races:
            with working("timing the recorded launches"):
                configured = [launch for own in kernels for sibling in own.siblings for launch in sibling.launches]
                times = rough_times(captures.path, others=configured)
            kernels, others = that_matter(with_shares(captures, kernels, times), options.top, options.min_share)
        if options.same_bits_as is not None and kernels:
            with working(f"executing the configurations of {count(len(kernels), 'kernel')}"):
                same = list(held(captures, kernels, options.same_bits_as))
            kernels = [one for one in same if isinstance(one, Kernel)]
            unequal = [one for one in same if isinstance(one, Skipped)]
        with running(options.sweep) as (go, expect):
            chosen, failed = all_choices(captures, kernels, asked, go, expect)
        if options.assemble_only:
            for kernel, choice in chosen:
                keep_choices(captures.path, kernel, choice)
            ran = not_raced(chosen)
        else:
            ran = _raced(options, chosen)
    try:
        if races:
            write_wins(options.policy, asked.before, ran)
    finally:  # show the result even if the policy cannot be written
        target = " ".join([*options.target, *(["--", *options.rest] if options.rest else [])])
        left = [*unequal, *failed, *others, *skipped]
        give(options.results, lambda full: Tuning.of(target, str(options.policy), ran, left, full))
    if ran.stopped:
        return INTERRUPTED
    went_wrong = unequal or failed or skipped or (races and any(not row.tried.is_judged for row in ran.rows))
    return 2 if went_wrong else 0


def _asked(options: Options) -> Asked:
    """Return the levers and configurations to try. Before any work, check the options, that each ptxas is installed,
    and that the policy can be read and written. Raises UsageError, PolicyError, ToolError, or DeviceError without a
    GPU."""
    policy, folder = options.policy, options.policy.absolute().parent
    given = None if options.levers is None else levers(options.levers)
    controls = controls_levers(os.path.relpath(file, folder) for file in options.controls)
    for one in (*(given or ()), *controls):
        one.assembling(folder)
    if options.same_bits_as is not None:
        check_numpy()
    if not options.assemble_only:
        check_new(policy, force=True)
    before = read_blocks(policy).entries if policy.exists() else ()
    if not options.assemble_only and (why := why_not_timed()) is not None:
        raise DeviceError(f"{why}: tuning needs torch and a GPU; --assemble-only needs neither")
    trust = options.trust or (options.is_program and not options.assemble_only)  # this command makes the captures
    is_anew = given is not None or bool(controls) or options.assemble_only
    return Asked(given, controls, before, options.configs, trust, is_anew, folder)


def _raced(options: Options, chosen: Sequence[tuple[Kernel, Choice]]) -> TuneRun:
    """Race the candidates, and print a line for each finished kernel."""
    with working("tuning", len(chosen)) as work:

        def show(step: TuneProgress) -> None:
            work.text, work.done = step.text or "tuning", step.done
            if step.finished is not None and not is_quiet():
                say(f"tritonhook: {finished_line(step.finished)}")

        rtol, same = options.tolerance.rtol, options.same_bits_as is not None
        settings = TuneSettings(rtol=rtol, limit_s=options.limit, start=GpuProcess, same_bits=same)
        return tune(chosen, settings, show)


def finished_line(kernel: TriedKernel) -> str:
    """Write the line for a kernel that has just finished. Its verdict comes later: kernels are judged together."""
    effect = None if kernel.comparison is None else kernel.comparison.effect()
    if kernel.reason or kernel.winner is None or effect is None:
        return f"{kernel.kernel.name}: {kernel.reason}"
    return f"{kernel.kernel.name}: {kernel.winner.name} takes {100 * (1 - effect.ratio):.1f}% less time"
