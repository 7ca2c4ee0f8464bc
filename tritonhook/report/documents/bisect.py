"""The document of a search for the ptxas that changed kernels first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tritonhook.report.documents.snapshot import facts_document
from tritonhook.snapshot.bisection import Search, Value, value_of

FORMAT = 1


def bisect_document(
    subject: str, searches: Sequence[Search], all_versions: bool, notes: Sequence[str]
) -> dict[str, Any]:
    """Searches over the same versions as JSON values. There is at least one."""
    first = searches[0]
    return {
        "format": FORMAT,
        "kind": "bisect",
        "subject": subject,
        "good": first.good,
        "bad": first.bad,
        "on": first.on,
        "versions": list(first.versions),
        "all_versions": all_versions,
        "kernels": [_kernel(search) for search in searches],
        "notes": list(notes),
    }


def _kernel(search: Search) -> dict[str, Any]:
    identity = search.identity
    return {
        "kernel": identity.kernel,
        "arch": identity.arch,
        "specialisation": list(identity.specialisation),
        "number": identity.number,
        "first": search.first,
        "before": search.before,
        "between": list(search.between),
        "returned": list(search.returned),
        "problem": search.problem,
        "tried": [_tried(search, version) for version in search.versions if version in search.tried],
    }


def _tried(search: Search, version: str) -> dict[str, Any]:
    tried = search.tried[version]
    values = [value for facts in tried.facts if (value := value_of(facts, search.on)) is not None]
    return {
        "version": version,
        "changed": search.is_changed(version),
        "reason": tried.failure,
        "values": sorted({_text(value) for value in values}),
        "made": [facts_document(facts) for facts in tried.facts],
    }


def _text(value: Value) -> str:
    return " + ".join(map(str, value)) if isinstance(value, tuple) else str(value)
