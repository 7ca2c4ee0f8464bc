"""Write the Markdown table about other people's tests from the committed result of benchmarks/foreign_tests.py."""

from __future__ import annotations

from results import markdown, result

_KINDS = "passed", "failed", "skipped", "dry", "not_run"


def projects() -> str:
    """What became of the tests of each project."""
    samples = result("foreign_tests")["samples"]
    rows = []
    for name in dict.fromkeys(row["project"] for row in samples):
        own = [row for row in samples if row["project"] == name]
        counts = [sum(row[kind] for row in own) for kind in _KINDS]
        explained = sum(bool(one["why"]) for row in own for one in row["failures"].values())
        rows.append(
            (
                name.replace("_", "-"),
                str(len(own)),
                *(f"{count:,}" for count in (sum(counts), *counts)),
                str(explained),
                f"{sum(row['gpu']['compared'] for row in own):,}",
                str(sum(len(row["gpu"]["differ"]) for row in own)),
            )
        )
    header = "project", "files", "tests", *(kind.replace("_", " ") for kind in _KINDS), "failures explained"
    return markdown((*header, "judged by a GPU, too", "otherwise"), rows)


def interpreted() -> str:
    """How long each program takes by both."""
    document = result("interpret")
    rows = [
        (
            row["program"],
            *(
                f"{row[side]['seconds']:.3f}" + (", wrong" if row[side]["why"] else "")
                for side in ("interpreted", "emulated")
            ),
            "" if row["ratio"] is None else f"{row['ratio']:.1f}",
        )
        for row in document["samples"]
    ]
    mean = f"{document['summary']['times_as_fast']:.1f}"
    return markdown(
        ("program", "interpreted, s", "emulated, s", "times as fast"), [*rows, ("geometric mean", "", "", mean)]
    )
