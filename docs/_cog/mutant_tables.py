"""Write the table about mutants from the committed result of benchmarks/mutants.py."""

from __future__ import annotations

from pathlib import Path

from results import markdown, result

ROOT = Path(__file__).resolve().parents[2]


def modules() -> str:
    """How many mutants of each module were tried, and how many the tests noticed."""
    rows = [
        (
            f"`{name}`" if (ROOT / name).exists() else f"{name}, now in another module",
            f"{row['tried']:,}",
            f"{row['killed']:,}",
            f"{row['killed'] / row['tried']:.0%}",
        )
        for name, row in result("mutants")["modules"].items()
        if row["tried"]
    ]
    return markdown(("module", "mutants tried", "killed", "share"), rows)


def total() -> str:
    """The sum, as one paragraph."""
    summary = result("mutants")["summary"]
    return (
        f"\nIn all {summary['killed']:,} of {summary['tried']:,} were killed, {summary['killed_ratio']:.1%}; "
        f"{summary['mutants'] - summary['tried']:,} more were not tried.\n\n"
    )
