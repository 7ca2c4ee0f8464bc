"""What the verbs that compare kernels before and after share: diff of two folders, lock, check."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from pathlib import Path

from tritonhook.capture.store import CaptureFolder
from tritonhook.cli._captures import no_kernels
from tritonhook.cli._progress import working
from tritonhook.cli._results import give
from tritonhook.errors import listed
from tritonhook.report.format import count
from tritonhook.snapshot.changes import RULES, Change, Rule, failures, nothing_compared, rules
from tritonhook.snapshot.facts import KernelFacts
from tritonhook.snapshot.reading import Kernels, outdated, read_kernels


def add_fail_on(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--fail-on",
        type=rules,
        default=(),
        metavar="RULE,...",
        help=f"exit with 1 only if one of these grew or changed: {', '.join(RULES)}; registers+10%% allows 10%% more",
    )


def facts_at(path: str) -> Kernels:
    """The kernels of a capture folder, each with its facts. Raises CaptureError, CubinError or ToolError."""
    return all_facts_at(path)[0]


def all_facts_at(*paths: str) -> list[Kernels]:
    """Like facts_at, for several folders at the same time."""
    folders = [CaptureFolder.open(path) for path in paths]
    with working(f"reading the kernels of {' and '.join(paths)}"):
        found = read_kernels(*folders)
    for path, kernels in zip(paths, found, strict=True):
        if not kernels:
            raise no_kernels(path)
    return found


def folder_notes(*paths: str) -> list[str]:
    """What the processes that wrote these capture folders had to say, such as of kernels that could not be captured,
    and which of their kernels are out of date."""
    folders = {path: CaptureFolder.open(path) for path in paths}
    return [f"{path}: {note}" for path, folder in folders.items() for note in (*folder.notes, *outdated_note(folder))]


def outdated_note(folder: CaptureFolder) -> list[str]:
    """A note on the kernels that earlier runs left in a folder. Raises CaptureError where a capture is damaged."""
    if not (found := outdated(folder).values()):
        return []
    names = dict.fromkeys(f"{identity.kernel} {identity.arch}" for identity in found)
    what = f"{count(len(found), 'kernel')} of earlier runs of the same command"
    return [f"{what}, left out by lock, check and diff: {listed(names)}"]


def give_changes(
    arguments: argparse.Namespace, old: str, new: str, changes: Sequence[Change], notes: Sequence[str] = ()
) -> int:
    """Print the changes as asked for. Returns the exit code: 1 if a rule of --fail-on is broken, or nothing
    was compared; without rules, if a kernel has other code, is new or gone."""
    from tritonhook.report.documents.snapshot import changes_document

    notes = [*notes, *spills_note(facts for change in changes for facts in (change.old, change.new) if facts)]
    wanted: Sequence[Rule] = arguments.fail_on
    broken = failures(changes, wanted)
    if blind := nothing_compared(changes):
        notes.append(f"no kernel is on both sides: nothing was compared{', so --fail-on fails' if wanted else ''}")
    give(arguments, lambda full: changes_document(old, new, changes, broken, notes))
    return int(blind or bool(broken)) if wanted else int(any(change.is_different for change in changes))


def spills_note(kernels: Iterable[KernelFacts]) -> list[str]:
    """A note on kernels whose spills neither their code nor their PTX tells."""
    names = list(dict.fromkeys(f"{one.identity.kernel} {one.identity.arch}" for one in kernels if one.ran_again))
    return [f"spills as one more run of their ptxas tells them, with the same code: {listed(names)}"] if names else []


def is_folder(path: str) -> bool:
    """Whether this is a folder of captures, not of one kernel."""
    return (Path(path) / "index").is_dir()
