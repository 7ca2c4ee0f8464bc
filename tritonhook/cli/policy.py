"""Show a policy (the levers that won, the configurations that are pinned), or compare it with captured kernels.

`tritonhook tune` writes a policy. It is applied by tritonhook.enable(policy="tritonhook.toml"), by
`tritonhook run --policy`, or by `policy` in [tool.tritonhook] of pyproject.toml. `check` exits with 1 if an entry is
stale, or cannot be applied here, or if another configuration than the pinned one won an autotuning.

  tritonhook policy show
  tritonhook run script.py && tritonhook policy check tritonhook.toml tritonhook-captures
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tritonhook.capture.policy.file import USUAL_NAME
from tritonhook.capture.project import read_project
from tritonhook.cli._inputs import captures_at, outdated_note
from tritonhook.cli._parser import Group, Verb, argument, part
from tritonhook.cli._streams import Results, give
from tritonhook.cli._sweeps import Sweep, running


@dataclass(frozen=True, kw_only=True)
class Show(Group):
    policy: str | None = argument(nargs="?", help=f"policy file (default: that of pyproject.toml, else {USUAL_NAME})")
    results: Results = part(Results)


def _show(options: Show) -> int:
    from tritonhook.report.results.policy import PolicyResult
    from tritonhook.tuning.policy_check import entries_here, pins_here

    path = options.policy or read_project(Path.cwd()).policy or USUAL_NAME
    entries = entries_here(Path(path))
    give(options.results, PolicyResult.of(path, None, entries, pins=pins_here(Path(path))), path)
    return 0


@dataclass(frozen=True, kw_only=True)
class Check(Group):
    policy: str = argument(help="policy file")
    captures: str = argument(help="capture folder")
    sweep: Sweep = part(Sweep)
    results: Results = part(Results)


def _check(options: Check) -> int:
    from tritonhook.report.results.policy import PolicyResult
    from tritonhook.tuning.policy_check import against_captures, pins_against

    folder = captures_at(options.captures)  # what an earlier run left would count as having a lever
    captures = [folder.capture(record) for record in folder.records]
    with running(options.sweep, options.sweep.cache()) as (go, _):
        entries = against_captures(Path(options.policy), captures, go)
    pins = pins_against(Path(options.policy), folder)
    result = PolicyResult.of(options.policy, options.captures, entries, outdated_note(folder), pins)
    give(options.results, result, options.policy)
    return int(any(state.is_trouble for state in (*(entry.state for entry in entries), *(pin.state for pin in pins))))


ACTIONS = (
    Verb("show", "list the kernels, their levers and gains, and what can be applied here", Show, _show),
    Verb("check", "compare its entries with captured kernels: which are stale?", Check, _check),
)
