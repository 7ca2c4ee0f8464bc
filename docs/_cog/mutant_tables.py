"""Write the table about mutants from the committed result of benchmarks/mutants.py."""

from __future__ import annotations

from results import markdown, result


def packages() -> str:
    """How many mutants of each package were tried, and how many the tests noticed."""
    rows = [
        (f"`{name}`", f"{row['tried']:,}", f"{row['killed'] / row['tried']:.0%}", f"{row['untested']:,}")
        for name, row in result("mutants")["packages"].items()
        if row["tried"]
    ]
    return markdown(("package", "mutants tried", "killed", "not reached"), rows)


def total() -> str:
    """The sum, as one paragraph."""
    summary = result("mutants")["summary"]
    return (
        f"\nIn all {summary['killed']:,} of {summary['tried']:,} were killed, {summary['killed_ratio']:.1%}; "
        f"{summary['killed_of_reached_ratio']:.1%} of those that a test reaches.\n\n"
    )
