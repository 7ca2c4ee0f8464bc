"""Find what makes each kernel faster on this GPU, and write what is certain to a policy.

TARGET is a script or MODULE:FUNCTION, which is run once to record its launches, or a folder of captures with launches.
Every lever gives ptxas the same PTX, under another name, version or option. tune assembles all of them first. Those
that store the same as the compiler's own code race on the GPU, and the fastest of each kernel is confirmed in fresh
processes. The wins go to a policy: `tritonhook run --policy` or tritonhook.enable(policy=...) applies it. Ctrl-C keeps
what is certified. tune needs torch and a GPU; --assemble-only needs neither.

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
from datetime import date
from pathlib import Path

from tritonhook._util.versions import version_key
from tritonhook.capture.levers import AND, CONTROLS_VERSION, Lever, controls_levers, kept_controls, lever, levers
from tritonhook.capture.policy.file import USUAL_NAME, read_entries, write_policy
from tritonhook.capture.policy.model import updated
from tritonhook.capture.store import CaptureFolder
from tritonhook.cli._files import check_new
from tritonhook.cli._inputs import add_trust
from tritonhook.cli._progress import working
from tritonhook.cli._recording import is_function, is_script, record_launches, why_not_timed
from tritonhook.cli._results import add_results, give
from tritonhook.cli._sweeps import add_sweep_options, positive, running, seconds, sweep_cache
from tritonhook.cli._tune_progress import tune_progress
from tritonhook.errors import INTERRUPTED, DeviceError, UsageError
from tritonhook.ptxas.discovery import available_ptxas
from tritonhook.timing.coordinator import rough_times
from tritonhook.tuning.candidates import Choice, Subject, choices, usual_levers
from tritonhook.tuning.engine import Settings, tune
from tritonhook.tuning.gpu import LIMIT_S, GpuProcess
from tritonhook.tuning.prepared import keep_choice, kept_choice
from tritonhook.tuning.result import TuneRun, assembled, entries
from tritonhook.tuning.targets import Kernel, Skipped, kernels_in, subject_of, that_matter, with_shares

_MIN_SHARE = 0.01


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "target", nargs="+", help="SCRIPT.py [-- ARGUMENTS], MODULE:FUNCTION, or a capture folder with launches"
    )
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        help=f"the policy (default: that of pyproject.toml, else {USUAL_NAME}); entries of kernels that are not tuned "
        "now stay in it",
    )
    parser.add_argument("--levers", metavar="LEVER,...", help="try these (default: all that need no file of yours)")
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
        help="leave kernels that take less of the GPU's time (default: 1%%)",
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
        help=f"a launch that takes longer hangs (default: {LIMIT_S:g})",
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
    recorded = is_function(arguments.target[0]) or is_script(arguments.target[0])
    _check(arguments, policy, recorded)
    if arguments.assemble_only:
        return _assemble_only(arguments, policy)
    if (why := why_not_timed()) is not None:
        raise DeviceError(f"{why}: tuning needs torch and a GPU; --assemble-only needs neither")
    before = read_entries(policy) if policy.exists() else ()
    with tempfile.TemporaryDirectory(prefix="tritonhook-tune-") as folder:
        path = Path(arguments.target[0])
        if recorded:
            path = Path(folder) / "captures"
            record_launches([*arguments.target, *(arguments.rest or ())], path, "nothing was tuned")
            arguments.trust = True  # the capture was made just now, here
        captures = CaptureFolder.open(path)
        kernels, skipped = _kernels(arguments, captures)
        with working("timing the recorded launches"):
            shares = with_shares(kernels, rough_times(path))
        kernels, others = that_matter(shares, arguments.top, arguments.min_share)
        chosen, failed = _assembled(arguments, captures, kernels)
        with tune_progress(len(chosen)) as progress:
            ran = tune(chosen, Settings(rtol=arguments.rtol, limit_s=arguments.limit, start=_start), progress)
    judged = [row.kernel.identity for row in ran.rows if row.tried.is_judged]
    if judged or not ran.stopped:
        won = entries(ran, date.today().isoformat(), policy.absolute().parent)
        write_policy(policy, updated(before, won, judged))
    return _give(arguments, policy, ran, [*failed, *others, *skipped])


def _start(limit_s: float) -> GpuProcess:
    return GpuProcess(limit_s)


def _check(arguments: argparse.Namespace, policy: Path, recorded: bool) -> None:
    """Raises UsageError, before any work, for arguments that do not go together, and where nothing could be written."""
    target = " ".join(arguments.target)
    if len(arguments.target) > 1 and not is_script(arguments.target[0]):
        raise UsageError(f"{target}: not understood; give one target, or a script with its arguments")
    if arguments.rest is not None and not is_script(arguments.target[0]):
        raise UsageError(f"-- {' '.join(arguments.rest)}: only a script takes arguments after --")
    if not recorded:
        CaptureFolder.open(arguments.target[0])
    if recorded and arguments.assemble_only:
        raise UsageError(
            f"--assemble-only: not for {arguments.target[0]}, whose launches are recorded on a GPU; record them there "
            "with `tritonhook run --launch-values`, and give the capture folder"
        )
    if arguments.levers is not None:
        levers(arguments.levers)
    for file in arguments.controls:
        kept_controls(Path(file))
    _controls(arguments, CONTROLS_VERSION)
    if arguments.rtol is not None and not arguments.rtol >= 0:
        raise UsageError(f"--rtol {arguments.rtol:g}: give 0 or more")
    if not arguments.assemble_only:
        check_new(policy, force=True)


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
    from tritonhook.report.documents.tuning import tuning_document

    target = " ".join([*arguments.target, *(["--", *arguments.rest] if arguments.rest else [])])
    give(arguments, lambda full: tuning_document(target, str(policy), ran, skipped, full))
    return INTERRUPTED if ran.stopped else 0


# --- assembling ----------------------------------------------------------------------------------


def _assemble_only(arguments: argparse.Namespace, policy: Path) -> int:
    """Keep the candidates of every kernel that has launches in the capture folder."""
    captures = CaptureFolder.open(arguments.target[0])
    kernels, skipped = _kernels(arguments, captures)
    chosen, failed = _assembled(arguments, captures, kernels)
    for kernel, choice in chosen:
        keep_choice(captures.path, kernel, choice)
    return _give(arguments, policy, assembled(chosen), [*failed, *skipped])


def _assembled(
    arguments: argparse.Namespace, captures: CaptureFolder, kernels: Sequence[Kernel]
) -> tuple[list[tuple[Kernel, Choice]], list[Skipped]]:
    """The candidates of each kernel: those that the folder keeps, where no levers are named; else assembled here."""
    named = arguments.levers is not None or arguments.controls or arguments.assemble_only
    kept = {} if named else {one: kept_choice(captures, one) for one in kernels}
    made = {one: choice for one, choice in kept.items() if choice is not None}
    found = {one: subject_of(captures, one, arguments.trust) for one in kernels if one not in made}
    failed = [one for one in found.values() if isinstance(one, Skipped)]
    subjects = {one: subject for one, subject in found.items() if isinstance(subject, Subject)}
    asked = [(subject, _levers(arguments, subject)) for subject in subjects.values()]
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


def _levers(arguments: argparse.Namespace, subject: Subject) -> tuple[Lever, ...]:
    """What is tried for a kernel."""
    own = subject.ptxas
    usual = () if arguments.levers is not None else usual_levers(own, subject.arch, subject.front_end)
    given = levers(arguments.levers) if arguments.levers is not None else usual
    return tuple(dict.fromkeys((*given, *_controls(arguments, own.version))))


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
