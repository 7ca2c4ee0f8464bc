"""The document of known miscompilations in PTX: each place, and whether the ptxas in use is wrong there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tritonhook.ptx.miscompiles import PAGE, Finding
from tritonhook.report.documents import FORMAT


@dataclass(frozen=True, slots=True)
class KnownModule:
    """A module of PTX that was read. name: its file, or the id of its first kernel. target: such as "sm_90a".

    unread: why it could not be read; None if it was.
    """

    name: str
    target: str | None
    ptxas: str | None
    found: Sequence[Finding] = ()
    unread: str | None = None


def known_document(path: str, modules: Sequence[KnownModule]) -> dict[str, Any]:
    """The places in all modules, in order."""
    return {
        "format": FORMAT,
        "kind": "known miscompilations",
        "path": path,
        "modules": len(modules),
        "places": [_place(module, finding) for module in modules for finding in module.found],
        "unread": [{"module": module.name, "reason": module.unread} for module in modules if module.unread is not None],
        "notes": [f"what each bug is: {PAGE}"] if any(module.found for module in modules) else [],
    }


def _place(module: KnownModule, finding: Finding) -> dict[str, Any]:
    bug = finding.place.bug
    return {
        "bug": bug.name,
        "module": module.name,
        "function": finding.place.function,
        "line": finding.place.line,
        "target": module.target,
        "ptxas": finding.ptxas,
        "verdict": finding.verdict.value,
        "does": bug.does,
        "remedy": bug.remedy,
        "sources": list(bug.sources),
    }
