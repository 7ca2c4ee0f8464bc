"""What the verbs that compare kernels before and after share: diff of two folders, lock, check."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from pathlib import Path

from tritonhook.capture.store import CaptureFolder
from tritonhook.cli._progress import working
from tritonhook.cli._results import give
from tritonhook.errors import CaptureError, listed
from tritonhook.snapshot.changes import RULES, Change, Rule, failures, rules
from tritonhook.snapshot.facts import KernelFacts
from tritonhook.snapshot.reading import Kernels, read_kernels


def add_fail_on(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--fail-on",
        type=rules,
        default=(),
        metavar="RULE,...",
        help=f"exit with 1 only if one of these grew or changed: {', '.join(RULES)}; also registers+10%%",
    )


def facts_at(path: str) -> Kernels:
    """The kernels of a capture folder, each with its facts. Raises CaptureError, CubinError or ToolError."""
    return all_facts_at(path)[0]


def all_facts_at(*paths: str) -> list[Kernels]:
    """As facts_at, of several folders at the same time."""
    folders = [CaptureFolder.open(path) for path in paths]
    with working(f"reading the kernels of {' and '.join(paths)}"):
        found = read_kernels(*folders)
    for path, kernels in zip(paths, found, strict=True):
        if not kernels:
            remedy = f"run a program that compiles some: `tritonhook run --out {path} script.py`"
            raise CaptureError(f"{path}: no kernels were captured; {remedy}")
    return found


def give_changes(
    arguments: argparse.Namespace, old: str, new: str, changes: Sequence[Change], notes: Sequence[str] = ()
) -> int:
    """Print the changes as asked for. Returns the exit code: 1 if a rule of --fail-on is broken, or, without rules, if
    a kernel has other code, is new or gone."""
    from tritonhook.report.documents.snapshot import changes_document

    notes = [*notes, *spills_note(facts for change in changes for facts in (change.old, change.new) if facts)]
    wanted: Sequence[Rule] = arguments.fail_on
    broken = failures(changes, wanted)
    give(arguments, lambda full: changes_document(old, new, changes, broken, notes))
    return int(bool(broken)) if wanted else int(any(change.is_different for change in changes))


def spills_note(kernels: Iterable[KernelFacts]) -> list[str]:
    """A note on kernels whose spills neither their code nor their PTX tells."""
    names = list(dict.fromkeys(f"{one.identity.kernel} {one.identity.arch}" for one in kernels if one.ran_again))
    return [f"spills as one more run of their ptxas tells them, with the same code: {listed(names)}"] if names else []


def is_folder(path: str) -> bool:
    """Whether this is a folder of captures, not of one kernel."""
    return (Path(path) / "index").is_dir()
