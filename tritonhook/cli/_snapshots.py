"""What the verbs that compare kernels before and after share: diff of two folders, lock, check."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from tritonhook.capture.store import CaptureFolder
from tritonhook.cli._captures import no_kernels
from tritonhook.cli._progress import working
from tritonhook.cli._results import give
from tritonhook.errors import listed
from tritonhook.report.format import count
from tritonhook.snapshot.captured import Kernels, read_folders
from tritonhook.snapshot.changes import RULES, Change, Rule, failures, nothing_compared, rules
from tritonhook.snapshot.facts import Identity, KernelFacts


def add_fail_on(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--fail-on",
        type=rules,
        default=(),
        metavar="RULE,...",
        help=f"exit with 1 only if one of these grew or changed: {', '.join(RULES)}; registers+10%% allows 10%% more",
    )


def kernels_at(*paths: str) -> tuple[list[Kernels], list[str]]:
    """The kernels of capture folders, each with its facts. Notes: what the processes that wrote them had to say, such
    as of kernels that could not be captured, and which kernels are out of date. Raises CaptureError, CubinError or
    ToolError."""
    folders = [CaptureFolder.open(path) for path in paths]
    with working(f"reading the kernels of {' and '.join(paths)}"):
        found = read_folders(*folders)
    notes: list[str] = []
    for path, read in zip(paths, found, strict=True):
        if not read.kernels:
            raise no_kernels(path)
        notes += (f"{path}: {note}" for note in (*read.notes, *outdated_note(read.outdated)))
    return [read.kernels for read in found], notes


def outdated_note(found: Mapping[str, Identity]) -> list[str]:
    """A note on the kernels that earlier runs left in a folder."""
    if not found:
        return []
    names = dict.fromkeys(f"{identity.kernel} {identity.arch}" for identity in found.values())
    what = f"{count(len(found), 'kernel')} of earlier runs of the same command"
    return [f"{what}, left out by lock, check and diff: {listed(names)}"]


def give_changes(
    arguments: argparse.Namespace,
    old: str,
    new: str,
    changes: Sequence[Change],
    notes: Sequence[str] = (),
    gate: bool = True,
) -> int:
    """Print the changes as asked for. Returns the exit code: 1 if a rule of --fail-on is broken, or nothing
    was compared; without rules, if a kernel has other code, is new or gone. gate: whether the verb ends with it."""
    from tritonhook.report.documents.snapshot import changes_document

    notes = [*notes, *spills_note(facts for change in changes for facts in (change.old, change.new) if facts)]
    wanted: Sequence[Rule] = arguments.fail_on
    broken = failures(changes, wanted)
    if blind := nothing_compared(changes):
        fails = ", so --fail-on fails" if wanted and gate else ""
        notes.append(f"no kernel is on both sides: nothing was compared{fails}")
    give(arguments, lambda full: changes_document(old, new, changes, broken, notes))
    return int(blind or bool(broken)) if wanted else int(any(change.is_different for change in changes))


def spills_note(kernels: Iterable[KernelFacts]) -> list[str]:
    """A note on kernels whose spills neither their code nor their PTX tells."""
    names = list(dict.fromkeys(f"{one.identity.kernel} {one.identity.arch}" for one in kernels if one.ran_again))
    return [f"spills as one more run of their ptxas tells them, with the same code: {listed(names)}"] if names else []


def is_folder(path: str) -> bool:
    """Whether this is a folder of captures, not of one kernel."""
    return (Path(path) / "index").is_dir()
