"""Write the tables of the page of results (docs/_cog/pages.py), which are too long for the page of their topic."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import emulate_tables
import upgrade_tables
import verify_tables
from results import RESULTS, markdown, result


def coverage() -> str:
    """Write for each result how many cases were tried and judged, and why the others were left out."""
    rows = []
    for path in sorted(RESULTS.glob("*.json")):
        summary = result(path.stem).get("summary", {})
        if "left_out" in summary:
            left = "; ".join(f"{count:,}: {reason}" for reason, count in summary["left_out"].items())
            rows.append((f"`{path.name}`", f"{summary['tried']:,}", f"{summary['judged']:,}", left))
    return markdown(("result", "tried", "judged", "left out"), rows)


TABLES: dict[str, tuple[str, Callable[[], str]]] = {  # by title: a note, and a function that returns the table
    "All known bugs of ptxas": (
        "[Known miscompilations](../explanation/miscompilations.md), *executed* or *assembled* (`miscompiles.json`).",
        verify_tables.miscompilations,
    ),
    "What each bug does, and the remedy": (
        "`tritonhook verify --known` names the bugs that a kernel meets.",
        verify_tables.miscompilation_remedies,
    ),
    "Examples": ("PTX that the wrong versions of ptxas miscompile.", verify_tables.miscompiled_programs),
    "PTX that is understood": (
        "By the [emulator](../explanation/emulation.md). Any other form is NOT UNDERSTOOD when it is reached.",
        partial(emulate_tables.opcodes, "ptx"),
    ),
    "Machine code that is understood": (
        "Of sm_80 to sm_121a, with or without the `U` of the uniform datapath.",
        partial(emulate_tables.opcodes, "sass"),
    ),
    "What each ptxas does": (
        "*Assembled* ([upgrades](../explanation/upgrades.md)); time of ptxas is processor time of all kernels on two "
        "shared cores, over that of Triton's.",
        upgrade_tables.which,
    ),
    "Tried, judged, left out": ("Of each result that judges: how much its figures are of.", coverage),
}


def sections() -> str:
    """Write all tables, each below its title."""
    return "\n".join(f"## {title}\n\n{note}\n{table()}" for title, (note, table) in TABLES.items())
