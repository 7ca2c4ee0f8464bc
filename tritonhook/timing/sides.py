"""What a timed comparison compares: a name for each side, the names under which its kernels ran, and its ptxas."""

from __future__ import annotations

from collections.abc import Sequence

from tritonhook.rename import Rename
from tritonhook.timing.messages import Prepared
from tritonhook.timing.plan import Plan
from tritonhook.timing.result import Compared
from tritonhook.timing.statistics import CANDIDATE, CONTROL, REFERENCE


def compared_sides(plan: Plan, report: Prepared) -> dict[str, Compared]:
    """What each side is. report: what a timing process prepared."""
    compiled = report.compiled
    names = plan.names
    if names is None and plan.candidate is not None:
        names = (plan.target, plan.candidate)
    if names is None:
        own = list(report.kernels[REFERENCE])
        names = change_names(own, plan.target, plan.rename, plan.rewrites, plan.candidate_options)
    versions = [", ".join(compiled[side].ptxas) for side in (REFERENCE, CANDIDATE)]
    if all(versions) and versions[0] != versions[1]:
        names = (f"{names[0]} by ptxas {versions[0]}", f"{names[1]} by ptxas {versions[1]}")
    elif plan.candidate_ptxas is not None and not all(versions):
        names = (names[0], f"{names[1]} by another ptxas")
    control = ", ".join(compiled[CONTROL].kernels) or names[0]
    by_side = {REFERENCE: names[0], CANDIDATE: names[1], CONTROL: control}
    return {side: Compared(compiled[side].kernels, compiled[side].ptxas, name) for side, name in by_side.items()}


def change_names(
    kernels: Sequence[str], target: str, rename: Rename | None, rewrites: Sequence[str], options: str | None
) -> tuple[str, str]:
    """Names of reference and candidate, where the candidate is the same launch with its kernels changed."""
    if len(kernels) == 1:
        before = kernels[0]
        after = before if rename is None else rename.new_name(before)
    else:
        before = f"{len(kernels):,} kernels of {target}"
        after = before if rename is None else f"{before} {_described(rename)}"
    changes = [*rewrites, *([options] if options else [])]
    return before, f"{after} with {' and '.join(changes)}" if changes else after


def _described(rename: Rename) -> str:
    """How a rename changes several kernels."""
    parts = [f"without {rename.strip!r} in their names"] if rename.strip else []
    parts += [f"with the prefix {rename.prefix}"] if rename.prefix else []
    return " and ".join(parts) or "under other names"
