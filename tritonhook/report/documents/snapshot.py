"""The documents of a lock, and of kernels before and after: two capture folders, or a lock and what is there now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tritonhook.snapshot.changes import Change, Status
from tritonhook.snapshot.facts import FIGURES, Identity, KernelFacts

FORMAT = 1


def changes_document(
    old: str, new: str, changes: Sequence[Change], failures: Mapping[Identity, Sequence[str]], notes: Sequence[str] = ()
) -> dict[str, Any]:
    """Changes as JSON values. old, new: what was compared. failures: by kernel, the rules of --fail-on it breaks."""
    counts = {status.value: sum(change.status is status for change in changes) for status in Status}
    return {
        "format": FORMAT,
        "kind": "kernel changes",
        "old": old,
        "new": new,
        "counts": counts | {"worse": sum(bool(change.worse) for change in changes)},
        "kernels": [_kernel(change, failures.get(change.identity, ())) for change in changes],
        "notes": list(notes),
    }


def lock_document(path: str, kernels: Sequence[KernelFacts], tests: Sequence[str] | None) -> dict[str, Any]:
    """The kernels of a lock, in its order. tests: those that compile all of them; None if not known."""
    return {
        "format": FORMAT,
        "kind": "lock",
        "path": path,
        "tests": None if tests is None else list(tests),
        "kernels": [
            {
                "kernel": facts.identity.kernel,
                "arch": facts.identity.arch,
                "front_end": facts.identity.front_end,
                "specialisation": list(facts.identity.specialisation),
                "number": facts.identity.number,
                "rewrites": facts.rewrites,
                **facts_document(facts),
            }
            for facts in kernels
        ],
    }


def _kernel(change: Change, broken: Sequence[str]) -> dict[str, Any]:
    identity, blocks = change.identity, change.blocks
    return {
        "kernel": identity.kernel,
        "arch": identity.arch,
        "specialisation": list(identity.specialisation),
        "number": identity.number,
        "status": change.status.value,
        "code_changed": change.code_changed,
        "by": change.blame,
        "worse": list(change.worse),
        "fails": list(broken),
        "blocks_by_registers": None if blocks is None else list(blocks),
        "old": None if change.old is None else facts_document(change.old),
        "new": None if change.new is None else facts_document(change.new),
    }


def facts_document(facts: KernelFacts) -> dict[str, Any]:
    """Figures, ptxas, codes and launch bounds of a kernel as JSON values."""
    return {
        **{name: facts.figures.get(name) for name in FIGURES},
        "ptxas": facts.ptxas,
        "options": None if facts.options is None else list(facts.options),
        "ptx": facts.ptx_sha256,
        "codes": list(facts.codes),
        "classes": dict(facts.classes),
        "launch_bounds": list(facts.launch_bounds),
    }
