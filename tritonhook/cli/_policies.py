"""A policy that `tritonhook tune` wrote, for `tune --check`: its entries, alone or beside captured kernels."""

from __future__ import annotations

from pathlib import Path

from tritonhook.cli._inputs import captures_at, outdated_note
from tritonhook.cli._streams import Results, give
from tritonhook.cli._sweeps import Sweep, running
from tritonhook.tuning.policy_check import against_captures, entries_here, pins_against, pins_here


def give_policy(path: Path, results: Results) -> int:
    """List the kernels, their levers and gains, and what can be applied here."""
    from tritonhook.report.results.policy import PolicyResult

    give(results, PolicyResult.of(str(path), None, entries_here(path), pins=pins_here(path)), str(path))
    return 0


def compare_policy(path: Path, place: str, sweep: Sweep, results: Results) -> int:
    """Compare a policy with the kernels of a capture folder; 1 where an entry is stale or cannot be applied here, or
    another configuration than the pinned one won."""
    from tritonhook.report.results.policy import PolicyResult

    folder = captures_at(place)  # what an earlier run left would count as having a lever
    captures = [folder.capture(record) for record in folder.records]
    with running(sweep, sweep.cache()) as (go, _):
        entries = against_captures(path, captures, go)
    pins = pins_against(path, folder)
    give(results, PolicyResult.of(str(path), place, entries, outdated_note(folder), pins), str(path))
    return int(any(state.is_trouble for state in (*(entry.state for entry in entries), *(pin.state for pin in pins))))
