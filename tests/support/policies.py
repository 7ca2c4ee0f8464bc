"""Policies for tests: entries for captured kernels, as a tuning would write them, but for the gain."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from tritonhook.capture.model import Capture
from tritonhook.capture.policy.levers import lever
from tritonhook.capture.policy.model import Entry, write_policy
from tritonhook.cubin.summary import summarise_image
from tritonhook.ptx.normal_form import normal_sha256
from tritonhook.ptxas.pool import sweep
from tritonhook.tuning.candidates import Choice, Subject, choices
from tritonhook.tuning.wins import entry_of

GAIN, INTERVAL, GPU, DATE = 5.25, (4.5, 6.0), "NVIDIA H200", "2026-11-22"


def entry(capture: Capture, text: str, folder: Path = Path()) -> Entry:
    """The entry of a captured kernel for a lever, with the code that it has here."""
    subject = Subject.of(capture, trust=True)
    (found,) = choices([(subject, [lever(text)])], sweep, folder)
    assert isinstance(found, Choice), found
    won = found.others[0] if found.others else replace(found.plain, lever=lever(text))
    assert (won.lever is not None and not found.dropped) or found.dropped[0].reason == "the code of plain", (
        found.dropped
    )
    return entry_of(subject, won, GAIN, INTERVAL, GPU, DATE, folder)


def policy(path: Path, captures: Iterable[Capture], text: str) -> Path:
    """Write a policy that gives each captured kernel the lever. A kernel that was captured twice has one entry."""
    entries = [entry(capture, text, path.parent) for capture in captures]
    write_policy(path, {one.identity: one for one in entries}.values())
    return path


def entry_like(plain: Capture, text: str, like: Capture) -> Entry:
    """The entry of a CuTe kernel whose lever gives it the code of another capture: needs no ptxas."""
    return Entry(
        kernel=plain.kernel,
        arch=plain.arch,
        front_end="cute",
        ptx=normal_sha256(plain.ptx.text, plain.kernel),
        ptxas=str(plain.assembler.version),
        lever=lever(text),
        code=summarise_image(like.cubin, {}).code_hash(like.kernel),
        gain_percent=GAIN,
        interval_percent=INTERVAL,
        gpu=GPU,
        date=DATE,
    )
