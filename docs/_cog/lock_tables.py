"""Write the Markdown tables about locks from the committed results of benchmarks/lock.py."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from results import markdown, result

_FIRST_FIGURE = 5  # of a row of a story: kernel, arch, constants, status, by, then the figures
_SHOWN = ("spill_stores", "stack", "registers", "shared", "instructions", "loop_instructions")
_TITLES = ("spill stores", "stack", "registers", "shared", "instructions", "in loops")


def found() -> str:
    """Seeded changes by kind: how many, found, and blamed right."""
    groups: dict[str, list[Sequence[Any]]] = {}
    for row in _seeded():
        groups.setdefault(row[0], []).append(row)
    rows = [
        (kind, str(len(rows)), str(sum(bool(row[3]) for row in rows)), str(sum(bool(row[4]) for row in rows)))
        for kind, rows in groups.items()
    ]
    return markdown(("change", "changes", "found", "blamed right"), rows)


def _seeded() -> list[Sequence[Any]]:
    """Changes of the code, and of what is loaded beside it."""
    samples = result("lock")["samples"]
    return [*samples.get("seeded", ()), *samples.get("images", ())]


def counts() -> str:
    """The figures of the summary."""
    document = result("lock")
    summary, rounds = document["summary"], document["samples"]["unchanged"]
    kernels, kinds = rounds[0]["kernels"], len({row[0] for row in _seeded()})
    beside = summary["unchanged_checks"] - sum(one["kernels"] for one in rounds)
    figures = (
        (f"seeded changes, of {kinds} kinds", "seeded", ","),
        ("kernels that were changed", "seeded_kernels", ","),
        ("changes found", "seeded_found_ratio", ".1%"),
        ("changes blamed right", "blame_right_ratio", ".1%"),
        (
            f"re-checks without a change: {kernels} kernels {len(rounds)} times, {beside} beside changed ones",
            "unchanged_checks",
            ",",
        ),
        ("of these, for sm_100a, where ptxas gives several codes", "unchanged_checks_may_draw", ","),
        ("false alarms", "false_alarms", ","),
    )
    rows = [
        (title, "not known" if summary[name] is None else format(summary[name], form)) for title, name, form in figures
    ]
    return markdown(("", ""), rows)


def speed() -> str:
    """Seconds of 500 kernels."""
    timed = result("lock")["samples"].get("timed", {})
    titles = {
        "recheck_500": "`check --ptxas 13.5.37`, without a cache",
        "diff_500": "`diff` of two folders, all changed",
    }
    rows = [
        (titles[name], f"{one['wall_s']:.1f} s", f"{one['cpu_s']:.1f} s", f"{one['load']:.1f}")
        for name, one in timed.items()
    ]
    return markdown(("500 kernels on two processors", "time", "processor time", "load of the machine"), rows)


def who(story: str) -> str:
    """How many kernels changed, by whom."""
    rows = result("lock")["samples"]["story"][story]
    by = Counter(row[4] or row[3] for row in rows)
    worse = Counter(row[4] or row[3] for row in rows if row[-1])
    return markdown(
        ("changed by", "kernels", "of these worse"), [(one, str(n), str(worse[one])) for one, n in by.most_common()]
    )


_MOST = 15  # rows of a table


def worst(story: str) -> str:
    """The kernels that got worse, the worst first."""
    document = result("lock")
    columns = document["columns"]["story"]
    places = [columns.index(name) for name in _SHOWN]
    rows: list[tuple[str, ...]] = []
    for row in document["samples"]["story"][story]:
        if row[-1] and len(rows) < _MOST:
            kernel = f"`{row[0]}` {row[2]}".strip()
            rows.append((kernel, row[1], *[_change(row[place]) for place in places], _change(row[-2]), row[4]))
    return markdown(("kernel", "target", *_TITLES, "blocks/SM", "changed by"), rows)


def _change(pair: Sequence[int | None] | None) -> str:
    """ "60 to 136", one number where both are equal, "not known" where one is missing."""
    if pair is None or pair[0] is None or pair[1] is None:
        return "not known"
    return f"{pair[0]:,}" if pair[0] == pair[1] else f"{pair[0]:,} to {pair[1]:,}"


def registers() -> str:
    """The kernel that a newer ptxas gives 32 registers: each form, and its time over that of Triton's own ptxas."""
    found = result("upgrade_registers")
    own = found["own"]
    first = found["samples"][0]["timed"]["us"]["reference"]
    rows = [(f"ptxas {own['ptxas']}, as compiled", *_sizes(own), f"{first:,.0f}", "1")]
    for sample in found["samples"]:
        timed = sample["timed"]
        rows.append(
            (f"`{sample['form']}`", *_sizes(sample), f"{timed['us']['candidate']:,.0f}", f"{timed['ratio']:.2f}")
        )
    return markdown(("form", "registers", "stack", "spill stores", "us", "times the first"), rows)


def _sizes(figures: Any) -> tuple[str, str, str]:
    return f"{figures['registers']:,}", f"{figures['stack']:,}", f"{figures['spill_stores']:,}"
