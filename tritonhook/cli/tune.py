"""Find what makes each kernel faster on this GPU, and write the wins to a policy.

TARGET is a script or MODULE:FUNCTION, which runs once to record its launches, or a capture folder with launches. A
lever is another name, ptxas version or ptxas option for the same PTX. tune first assembles each kernel with every
lever. Then the codes that store the same as the compiler's own code race on the GPU. The fastest code of each kernel is
confirmed in fresh processes. Wins go to a policy: `tritonhook run --policy` or tritonhook.enable(policy=...) applies
it. Ctrl-C keeps the wins that are confirmed. tune needs torch and a GPU; --assemble-only needs neither.

  tritonhook tune train.py -o tritonhook.toml -- --steps 3
  tritonhook tune my_kernels:launch --levers name,pragma+ptxas=13.5.37,O1
  tritonhook tune captures --assemble-only      # on a machine without a GPU
  tritonhook tune captures -o tritonhook.toml   # then on the one with it
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from datetime import date
from pathlib import Path

from tritonhook._util.versions import version_key
from tritonhook.capture.policy.file import USUAL_NAME, read_entries, write_policy
from tritonhook.capture.policy.levers import AND, CONTROLS_VERSION, Lever, controls_levers, kept_controls, lever, levers
from tritonhook.capture.policy.model import Entry, unnumbered, updated
from tritonhook.capture.selection import Kernel, Skipped, kernels_in, that_matter, with_shares
from tritonhook.capture.store import CaptureFolder
from tritonhook.cli._files import check_new
from tritonhook.cli._inputs import add_trust
from tritonhook.cli._progress import working
from tritonhook.cli._recording import is_function, is_script, record_launches, why_not_timed
from tritonhook.cli._results import add_results, give
from tritonhook.cli._sweeps import add_sweep_options, positive, running, seconds, sweep_cache
from tritonhook.cli._tune_progress import tune_progress
from tritonhook.errors import INTERRUPTED, DeviceError, PolicyError, UsageError
from tritonhook.ptxas.discovery import available_ptxas
from tritonhook.timing.rough import rough_times
from tritonhook.tuning.candidates import Choice, Subject, choices, subject_of, usual_levers
from tritonhook.tuning.engine import Settings, tune
from tritonhook.tuning.gpu import LIMIT_S, GpuProcess
from tritonhook.tuning.prepared import keep_choice, kept_choice
from tritonhook.tuning.result import TuneRun, assembled, entries

_MIN_SHARE = 0.01


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "target", nargs="+", help="SCRIPT.py [-- ARGUMENTS], MODULE:FUNCTION, or a capture folder with launches"
    )
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        help=f"the policy to write (default: that of pyproject.toml, else {USUAL_NAME}); it keeps its entries of "
        "kernels that are not tuned now",
    )
    parser.add_argument(
        "--levers", metavar="LEVER,...", help="try these, and what won before (default: all that need no file of yours)"
    )
    parser.add_argument(
        "--controls",
        action="append",
        default=[],
        metavar="FILE",
        help="also try this file of ptxas's advanced controls, with ptxas 13.3 or newer",
    )
    parser.add_argument("--top", type=positive, metavar="N", help="tune at most the N kernels that take most time")
    parser.add_argument(
        "--min-share",
        type=_share,
        default=_MIN_SHARE,
        metavar="SHARE",
        help="leave out kernels that take less of the GPU's time (default: 1%%)",
    )
    parser.add_argument("--entry", metavar="NAME", help="only the kernel of this name")
    parser.add_argument(
        "--rtol", type=float, metavar="R", help="outputs may differ by R of the largest value (default: 0)"
    )
    parser.add_argument(
        "--limit",
        type=seconds,
        default=LIMIT_S,
        metavar="S",
        help=f"seconds after which a launch counts as hung (default: {LIMIT_S:g})",
    )
    parser.add_argument(
        "--assemble-only",
        action="store_true",
        help="assemble, and keep the codes in the capture folder, for a machine with a GPU",
    )
    add_trust(parser)
    add_sweep_options(parser)
    add_results(parser)


def run(arguments: argparse.Namespace) -> int:
    arguments.output = arguments.output or USUAL_NAME
    policy = Path(arguments.output)
    captures = _checked(arguments, policy)
    before = read_entries(policy) if policy.exists() else ()
    if arguments.assemble_only:
        assert captures is not None
        return _assemble_only(arguments, policy, captures, before)
    if (why := why_not_timed()) is not None:
        raise DeviceError(f"{why}: tuning needs torch and a GPU; --assemble-only needs neither")
    with tempfile.TemporaryDirectory(prefix="tritonhook-tune-") as folder:
        if captures is None:
            path = Path(folder) / "captures"
            record_launches([*arguments.target, *(arguments.rest or ())], path, "nothing was tuned")
            arguments.trust = True  # the capture was made just now, here
            captures = CaptureFolder.open(path)
        kernels, skipped = _kernels(arguments, captures)
        with working("timing the recorded launches"):
            shares = with_shares(captures, kernels, rough_times(captures.path))
        kernels, others = that_matter(shares, arguments.top, arguments.min_share)
        chosen, failed = _assembled(arguments, captures, kernels, before)
        with tune_progress(len(chosen)) as progress:
            ran = tune(chosen, Settings(rtol=arguments.rtol, limit_s=arguments.limit, start=_start), progress)
    try:
        _keep(policy, before, ran)
    finally:  # the result is shown also where the policy cannot be written
        code = _give(arguments, policy, ran, [*failed, *others, *skipped])
    return code


def _keep(policy: Path, before: Sequence[Entry], ran: TuneRun) -> None:
    """Write the wins to the policy. before: its entries at the start, in case it cannot be read any more. Raises
    PolicyError if it cannot be written."""
    judged = {one.kernel.identity: one.choice.levers for row in ran.rows if (one := row.tried).is_judged}
    if judged or not ran.stopped:
        with suppress(PolicyError):  # another tuning may have added to it meanwhile
            before = read_entries(policy)
        won = entries(ran, date.today().isoformat(), policy.absolute().parent)
        write_policy(policy, updated(before, won, judged))


def _start(limit_s: float) -> GpuProcess:
    return GpuProcess(limit_s)


def _checked(arguments: argparse.Namespace, policy: Path) -> CaptureFolder | None:
    """The captures to tune; None for a program, which is recorded first. Raises UsageError, before any work, for
    arguments that do not go together, and where nothing could be written; ToolError for a ptxas that is not here."""
    target = " ".join(arguments.target)
    recorded = is_function(arguments.target[0]) or is_script(arguments.target[0])
    if len(arguments.target) > 1 and not is_script(arguments.target[0]):
        raise UsageError(f"{target}: not understood; give one target, or a script with its arguments")
    if arguments.rest is not None and not is_script(arguments.target[0]):
        raise UsageError(f"-- {' '.join(arguments.rest)}: only a script takes arguments after --")
    captures = None if recorded else CaptureFolder.open(arguments.target[0])
    if recorded and arguments.assemble_only:
        raise UsageError(
            f"--assemble-only: not for {arguments.target[0]}, whose launches are recorded on a GPU; record them there "
            "with `tritonhook run --launch-values`, and give the capture folder"
        )
    for one in levers(arguments.levers) if arguments.levers is not None else ():
        one.assembling(policy.absolute().parent)
    for file in arguments.controls:
        kept_controls(Path(file))
    _controls(arguments, CONTROLS_VERSION)
    if arguments.rtol is not None and not arguments.rtol >= 0:
        raise UsageError(f"--rtol {arguments.rtol:g}: give 0 or more")
    if not arguments.assemble_only:
        check_new(policy, force=True)
    return captures


def _kernels(arguments: argparse.Namespace, captures: CaptureFolder) -> tuple[list[Kernel], list[Skipped]]:
    """The kernels that can be tuned, and the others. Raises UsageError where there is nothing to tune."""
    found = kernels_in(captures, arguments.entry)
    kernels = [one for one in found if isinstance(one, Kernel)]
    skipped = [one for one in found if isinstance(one, Skipped)]
    if not kernels:
        what = f"no kernel {arguments.entry!r}" if arguments.entry and not skipped else "no kernel that can be tuned"
        reasons = dict.fromkeys(one.reason for one in skipped)
        raise UsageError(f"{arguments.target[0]}: {what}{''.join(f'; {reason}' for reason in reasons)}")
    return kernels, skipped


def _give(arguments: argparse.Namespace, policy: Path, ran: TuneRun, skipped: Sequence[Skipped]) -> int:
    from tritonhook.report.results.tuning import Tuning

    target = " ".join([*arguments.target, *(["--", *arguments.rest] if arguments.rest else [])])
    give(arguments, lambda full: Tuning.of(target, str(policy), ran, skipped, full))
    return INTERRUPTED if ran.stopped else 0


# --- assembling ----------------------------------------------------------------------------------


def _assemble_only(
    arguments: argparse.Namespace, policy: Path, captures: CaptureFolder, before: Sequence[Entry]
) -> int:
    """Keep the candidates of every kernel that has launches in the capture folder."""
    kernels, skipped = _kernels(arguments, captures)
    chosen, failed = _assembled(arguments, captures, kernels, before)
    for kernel, choice in chosen:
        keep_choice(captures.path, kernel, choice)
    return _give(arguments, policy, assembled(chosen), [*failed, *skipped])


def _assembled(
    arguments: argparse.Namespace, captures: CaptureFolder, kernels: Sequence[Kernel], before: Sequence[Entry]
) -> tuple[list[tuple[Kernel, Choice]], list[Skipped]]:
    """The candidates of each kernel: those that the folder keeps, where no levers are named; else assembled here.

    before: entries of the policy, whose levers have to win again.
    """
    named = arguments.levers is not None or arguments.controls or arguments.assemble_only
    kept = {} if named else {one: kept_choice(captures, one) for one in kernels}
    made = {one: choice for one, choice in kept.items() if choice is not None}
    found = {one: subject_of(captures, one, arguments.trust) for one in kernels if one not in made}
    failed = [one for one in found.values() if isinstance(one, Skipped)]
    subjects = {one: subject for one, subject in found.items() if isinstance(subject, Subject)}
    asked = [(subject, _levers(arguments, subject, _earlier(one, before))) for one, subject in subjects.items()]
    if asked:
        folder = Path(arguments.output).absolute().parent
        with running(arguments, sweep_cache(arguments)) as (go, expect):
            expect(sum(1 + len(tried) for _, tried in asked))
            for one, choice in zip(subjects, choices(asked, go, folder), strict=True):
                if isinstance(choice, Choice):
                    made[one] = choice
                else:
                    failed.append(Skipped(one.name, one.record, str(choice), one.share))
    return [(one, made[one]) for one in kernels if one in made], failed


def _levers(arguments: argparse.Namespace, subject: Subject, earlier: Sequence[Lever]) -> tuple[Lever, ...]:
    """What is tried for a kernel. earlier: what won for it before."""
    own = subject.ptxas
    usual = () if arguments.levers is not None else usual_levers(own, subject.arch, subject.front_end)
    given = levers(arguments.levers) if arguments.levers is not None else usual
    return tuple(dict.fromkeys((*given, *_controls(arguments, own.version), *earlier)))


def _earlier(kernel: Kernel, before: Sequence[Entry]) -> tuple[Lever, ...]:
    """The levers that won for a kernel before."""
    own = unnumbered(kernel.identity)
    return tuple(entry.lever for entry in before if unnumbered(entry.identity) == own)


def _controls(arguments: argparse.Namespace, own: str) -> tuple[Lever, ...]:
    """A lever for each controls file, with the newest ptxas where the compiler's own is too old for it. Its path begins
    where the policy is."""
    folder = Path(arguments.output).absolute().parent
    files = controls_levers(os.path.relpath(file, folder) for file in arguments.controls)
    if version_key(own) >= version_key(CONTROLS_VERSION):
        return files
    newest = max((tool.version for tool in available_ptxas()), key=version_key, default=own)
    return tuple(lever(f"ptxas={newest}{AND}{one.text}") for one in files)


def _share(text: str) -> float:
    try:
        value = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: give a share such as 0.01 or 1%")
    return value
