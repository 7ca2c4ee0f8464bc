"""Show a policy (which lever won for each kernel), or compare it with captured kernels.

`tritonhook tune` writes a policy. It is applied by tritonhook.enable(policy="tritonhook.toml"), by
`tritonhook run --policy`, or by `policy` in [tool.tritonhook] of pyproject.toml. `check` exits with 1 if an entry is
stale, or cannot be applied here.

  tritonhook policy show
  tritonhook run script.py && tritonhook policy check tritonhook.toml tritonhook-captures
"""

from __future__ import annotations

import argparse
from pathlib import Path

from tritonhook.capture.policy.file import USUAL_NAME
from tritonhook.cli._results import add_results, give
from tritonhook.cli._sweeps import add_sweep_options, running, sweep_cache


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    showing = actions.add_parser("show", help="list the kernels, their levers and gains, and what can be applied here")
    showing.add_argument("policy", nargs="?", help=f"policy file (default: that of pyproject.toml, else {USUAL_NAME})")
    add_results(showing)
    checking = actions.add_parser("check", help="compare its entries with captured kernels: which are stale?")
    checking.add_argument("policy", help="policy file")
    checking.add_argument("captures", help="capture folder")
    add_sweep_options(checking)
    add_results(checking)


def run(arguments: argparse.Namespace) -> int:
    from tritonhook.report.results.policy import Policy
    from tritonhook.tuning.policy_check import entries_here

    if arguments.action == "check":
        return _check(arguments)
    path = arguments.policy or USUAL_NAME
    found = entries_here(Path(path))
    give(arguments, Policy.of(path, None, found), path)
    return 0


def _check(arguments: argparse.Namespace) -> int:
    from tritonhook.capture.store import CaptureFolder
    from tritonhook.cli._snapshots import outdated_note
    from tritonhook.report.results.policy import Policy
    from tritonhook.snapshot.captured import outdated
    from tritonhook.tuning.policy_check import against_captures

    folder = CaptureFolder.open(Path(arguments.captures))
    # What an earlier run left would count as having a lever, or as being for an entry.
    left_out = outdated(folder)
    captures = [folder.capture(record) for record in folder.records if record not in left_out]
    with running(arguments, sweep_cache(arguments)) as (go, _):
        found = against_captures(Path(arguments.policy), captures, go)
    notes = [f"{arguments.captures}: {note}" for note in outdated_note(left_out)]
    give(arguments, Policy.of(arguments.policy, arguments.captures, found, notes), arguments.policy)
    return int(any(one.state.is_trouble for one in found))
