"""The ptxas of the published table: the one given, else the published version, else what is at hand."""

from __future__ import annotations

from tritonhook.cli._progress import working
from tritonhook.errors import ToolError
from tritonhook.lab.published_table import PTXAS
from tritonhook.ptxas.discovery import find_ptxas
from tritonhook.ptxas.install import add_ptxas
from tritonhook.ptxas.tool import Tool

HELP = f"assemble with this ptxas (default: {PTXAS}, as published; fetched if needed)"


def published_ptxas(given: str | None) -> tuple[Tool, tuple[str, ...]]:
    """Find the ptxas, and fetch the published version where it is missing; a note if another one has to do.

    Raises ToolError if there is none at all.
    """
    if given is not None:
        return find_ptxas(given), ()
    try:
        return find_ptxas(PTXAS), ()
    except ToolError:
        pass
    try:
        with working(f"fetching ptxas {PTXAS}, the version of the published table, once (30 MB)"):
            return add_ptxas(PTXAS), ()
    except ToolError as error:
        reason = str(error).splitlines()[0]
    tool = find_ptxas()
    return tool, (
        f"ptxas {PTXAS}, the version of the published table, could not be fetched; ptxas {tool.version} at hand is "
        f"used, whose code can differ ({reason})",
    )
