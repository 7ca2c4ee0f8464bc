"""Policies: `policy show`, `policy check`."""

from __future__ import annotations

from typing import Literal

from tritonhook._util.schema import Count, Fields, Number


class PolicyEntry(Fields):
    """One kernel of a policy.

    lever: as --levers takes it. gain_percent: by how much less time the kernel takes under it; interval_percent: its
    95% interval. gpu, date: where and when that was measured. ptxas: the compiler's own, whose code the lever beat.
    ptx: the hash of the normalised PTX. code: the hash of the machine code. reason: why the lever is not applied; "" if
    it is.
    """

    kernel: str
    arch: str
    front_end: str
    lever: str
    gain_percent: Number
    interval_percent: tuple[Number, Number]
    gpu: str
    date: str
    ptxas: str
    ptx: str
    code: str
    state: Literal["usable", "applies", "applied", "stale", "unusable", "not seen"]
    reason: str


class Policy(Fields):
    """A policy and what it does here.

    captures: the folder that it was compared with; null if with none. counts: kernels by state.
    """

    format: Literal[1]
    kind: Literal["policy"]
    path: str
    captures: str | None
    counts: dict[str, Count]
    kernels: list[PolicyEntry]
