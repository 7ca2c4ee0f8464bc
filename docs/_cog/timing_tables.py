"""Write the tables about the reliability of verdicts on times."""

from __future__ import annotations

from collections.abc import Callable

from results import Columns, Document, markdown, result, table


def calibration() -> str:
    """Write how often `ab` was right about kernels whose difference is known."""
    summary = result("ab_calibration")["summary"]
    equal, one, two = summary["aa_runs"], summary["runs_1pct"], summary["runs_2pct"]
    false = round(summary["aa_false_positive_ratio"] * equal)
    false_today = summary["aa_faster_today"] + summary["aa_slower_today"]
    rows = [
        ("equal code called a difference", f"{false} of {equal}", f"{false_today}", _at_most(false_today, equal)),
        (
            "equal code called same",
            f"{round(summary['aa_same_ratio'] * equal)} of {equal}",
            f"{summary['aa_same_today']}",
            "",
        ),
        *(
            (
                f"kernels with {share} more work called slower",
                f"{round(power * runs)} of {runs}",
                f"{found}",
                "",
            )
            for share, power, runs, found in (
                ("1%", summary["power_1pct"], one, summary["slower1_slower_today"]),
                ("2%", summary["power_2pct"], two, summary["slower2_slower_today"]),
            )
        ),
    ]
    return markdown(("calibration on an H100", "as judged then", "by today's interval", "with 95% confidence"), rows)


def _at_most(found: int, runs: int) -> str:
    """Format the upper 95% confidence limit of a share of which none were found; else an empty text."""
    return f"at most {1 - 0.05 ** (1 / runs):.1%}" if found == 0 else ""


def simulation(*scenarios: str) -> str:
    """Write the verdicts of `ab` on simulated kernels whose difference is known."""

    def counted(verdict: str) -> Callable[[Document], str]:
        return lambda row: str(row["verdicts"].get(verdict, 0))

    columns: Columns = {
        "scenario": "{scenario}",
        **{verdict: counted(verdict) for verdict in ("same", "faster", "slower", "inconclusive")},
        "interval covers": lambda row: "-" if row["carries_over"] else f"{row['coverage']:.1%}",
        "processes": "{processes_mean:.1f}",
        "blocks": "{blocks_mean:.0f}",
    }
    return table((row for row in result("ab_simulation")["rows"] if row["scenario"] in scenarios), columns)
