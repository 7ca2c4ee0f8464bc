"""Write the Markdown table about other people's tests from the committed result of benchmarks/foreign_tests.py."""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby
from operator import itemgetter

from results import Columns, Document, markdown, result, table

_KINDS = "passed", "failed", "skipped", "dry", "not_run"


def projects() -> str:
    """Count the outcomes of the tests of each project."""

    def summed(value: Callable[[Document], int]) -> Callable[[list[Document]], str]:
        return lambda files: f"{sum(map(value, files)):,}"

    columns: Columns = {
        "project": lambda files: files[0]["project"].replace("_", "-"),
        "tests": summed(lambda one: sum(one[kind] for kind in _KINDS)),
        **{kind.replace("_", " "): summed(itemgetter(kind)) for kind in _KINDS},
        "failures explained": summed(lambda one: sum(bool(test["why"]) for test in one["failures"].values())),
        "judged on a GPU too": summed(lambda one: one["gpu"]["compared"]),
        "other verdict there": summed(lambda one: len(one["gpu"]["differ"])),
    }
    by_project = groupby(result("foreign_tests")["samples"], itemgetter("project"))
    return table((list(files) for _, files in by_project), columns)


def interpreted(*programs: str) -> str:
    """Write times of these programs under Triton's interpreter and the emulator, and the mean ratio of all programs."""
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
        if row["program"] in programs
    ]
    mean = f"{document['summary']['times_as_fast']:.1f}"
    all_of_them = f"geometric mean of {sum(row['ratio'] is not None for row in document['samples'])} programs"
    return markdown(("program", "interpreted, s", "emulated, s", "times as fast"), [*rows, (all_of_them, "", "", mean)])
