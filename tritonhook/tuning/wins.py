"""Write the wins of a tuning, i.e. the kernels that it made faster, to a policy, as entries and pins."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import date
from pathlib import Path

from tritonhook._util.locks import changing
from tritonhook.capture.policy.levers import kept_controls
from tritonhook.capture.policy.model import Entry, Pin, read_blocks, updated, updated_pins, write_policy
from tritonhook.errors import PolicyError
from tritonhook.tuning.candidates import Candidate, Subject
from tritonhook.tuning.race import TuneRun


def write_wins(policy: Path, before: Sequence[Entry], ran: TuneRun) -> None:
    """Write the wins of a run to the policy file. An earlier entry stays unless its lever was tried again, or its
    kernel has a new entry. before: the policy's entries at the start of the run, used if the file can no longer be
    read. Raises PolicyError if it cannot be written."""
    judged = {
        (tried.kernel.name, *tried.kernel.identity[1:3], configuration.subject.ptx_sha256): configuration.levers
        for row in ran.rows
        if (tried := row.tried).is_judged
        for configuration in tried.choice.configurations
    }
    if not judged and ran.stopped:
        return
    today, earlier = date.today().isoformat(), tuple[Pin, ...]()
    pinned, won = pins(ran, today), entries(ran, today, policy.absolute().parent)
    with changing(policy):
        with suppress(PolicyError):  # read it again: another tuning may have changed it meanwhile
            before, earlier = read_blocks(policy)
        after = updated(before, won, judged)
        pinned = updated_pins(earlier, pinned, before, after)
        write_policy(policy, after, pinned)


def entries(run: TuneRun, today: str, folder: Path = Path()) -> list[Entry]:
    """Make the policy entries for the wins of a run. today, folder: as in entry_of."""
    won = []
    for row in run.wins:
        tried = row.tried
        assert tried.winner is not None and row.certificate is not None
        gain, interval = row.certificate.gain_percent, row.certificate.interval_percent
        assert gain is not None and interval is not None
        subject = tried.choice.of(tried.winner).subject
        won.append(entry_of(subject, tried.winner, gain, interval, run.device, today, folder))
    return won


def entry_of(
    subject: Subject,
    won: Candidate,
    gain_percent: float,
    interval_percent: tuple[float, float],
    gpu: str,
    today: str,
    folder: Path = Path(),
) -> Entry:
    """Make the policy entry for a candidate with a lever. today: a date, e.g. "2026-11-22". folder: the policy's
    folder. The other arguments: as in Entry."""
    assert won.lever is not None
    controls = won.lever.controls
    return Entry(
        kernel=subject.kernel,
        arch=subject.arch,
        front_end=subject.front_end,
        ptx=subject.ptx_sha256,
        ptxas=subject.ptxas.version,
        lever=won.lever,
        code=won.code_hash,
        gain_percent=gain_percent,
        interval_percent=interval_percent,
        gpu=gpu,
        date=today,
        controls=None if controls is None else kept_controls(folder, controls).name,
    )


def pins(run: TuneRun, today: str) -> list[Pin]:
    """Make a pin for each win of a run and each autotuning key that chose its configuration. The pin fixes this
    configuration, because a lever that wins in one configuration may lose in others."""
    pinned = []
    for row in run.wins:
        kernel, winner = row.tried.kernel, row.tried.winner
        if kernel.function is not None and kernel.config is not None and winner is not None:
            subject = row.tried.choice.of(winner).subject
            how = winner.config or kernel.config, subject.ptx_sha256, run.device, today
            pinned += [Pin(kernel.function, kernel.arch, key, *how) for key in kernel.keys]
    return pinned
