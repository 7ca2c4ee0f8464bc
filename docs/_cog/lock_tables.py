"""Write the Markdown tables about locks from the committed results of benchmarks/lock.py."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from results import markdown, result


def _seeded() -> list[Sequence[Any]]:
    """Return the deliberate changes of code, and of data that is loaded with it."""
    samples = result("lock")["samples"]
    return [*samples.get("seeded", ()), *samples.get("images", ())]


def counts() -> str:
    """Write how many deliberate changes were found, and how many false alarms there were."""
    document = result("lock")
    summary, rounds = document["summary"], document["samples"]["unchanged"]
    kernels, kinds = rounds[0]["kernels"], len({row[0] for row in _seeded()})
    beside = summary["unchanged_checks"] - sum(one["kernels"] for one in rounds)
    figures = (
        (f"deliberate changes, of {kinds} kinds", "seeded", ","),
        ("kernels that were changed", "seeded_kernels", ","),
        ("changes found", "seeded_found_ratio", ".1%"),
        ("changes with the right cause", "blame_right_ratio", ".1%"),
        (
            f"checks of unchanged kernels: {kernels} kernels {len(rounds)} times, and {beside} next to changed ones",
            "unchanged_checks",
            ",",
        ),
        ("of these, for sm_100a, where ptxas may choose among codes", "unchanged_checks_may_draw", ","),
        ("false alarms", "false_alarms", ","),
        ("seconds of `check --ptxas 13.5.37`, 500 kernels on two busy processors", "recheck_500_s", ".1f"),
        ("seconds of `diff` of two folders of 500 kernels, all changed", "diff_500_s", ".1f"),
    )
    rows = [
        (title, "not known" if summary[name] is None else format(summary[name], form)) for title, name, form in figures
    ]
    return markdown(("", ""), rows)


def who(story: str) -> str:
    """Count the changed kernels of a story (such as "triton"), by the cause of the change."""
    rows = result("lock")["samples"]["story"][story]
    by = Counter(row[4] or row[3] for row in rows)
    worse = Counter(row[4] or row[3] for row in rows if row[-1])
    counts = [("(not changed)" if one == "same" else one, str(n), str(worse[one])) for one, n in by.most_common()]
    return markdown(("changed by", "kernels", "of these worse"), counts)
