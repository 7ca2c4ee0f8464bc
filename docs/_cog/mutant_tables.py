"""Write the sentence about mutants from the committed result of benchmarks/mutants.py."""

from __future__ import annotations

from results import result


def total() -> str:
    """State how many mutants were tried and killed."""
    document = result("mutants")
    summary = document["summary"]
    counted = document.get("counted") or "chosen by an earlier rule, which includes text, `strict=` and defaults"
    return (
        f"\nIn all {summary['killed']:,} of {summary['tried']:,} mutants ({counted}) were killed, "
        f"{summary['killed_ratio']:.1%}; {summary['killed_of_reached_ratio']:.1%} of those that a test reaches.\n\n"
    )
