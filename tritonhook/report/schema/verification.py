"""Kernels run as several builds: `verify`."""

from __future__ import annotations

from typing import Literal

from tritonhook._util.schema import Count, Fields, Whole

_Verdict = Literal["CRASH", "HANG", "DIFFERENT", "NONDETERMINISTIC", "ROUNDING", "SAME", "SKIPPED"]


class VerifiedBuild(Fields):
    """One cubin. ptxas: the version that made it; null: not known. options: as it was given them."""

    label: str
    ptxas: str | None
    options: list[str]


class NotBuilt(Fields):
    """A ptxas that made no cubin."""

    label: str
    reason: str


class DifferingElement(Fields):
    """One element. bits: hexadecimal, the reference's first. values: the same as numbers."""

    index: Count
    bits: tuple[str, str]
    values: tuple[str, str]


class BufferDifference(Fields):
    """How one buffer differs from the reference's. digest: equal for equal contents.

    only_nans: all that differs are payloads of NaNs. ulps: units in the last place, the largest distance; share: the
    same as a share of the buffer's largest magnitude. Both null for integers, and where a number stands against a NaN
    or an infinity. measured: how many elements these two were taken of.
    """

    buffer: Count
    dtype: str
    elements: Count
    differing: Count
    digest: str
    first: list[DifferingElement]
    only_nans: bool
    ulps: Count | None
    share: float | None
    measured: Count


class VerificationFinding(Fields):
    """One thing that was found. build: null where it holds for every build. input: what the buffers held."""

    verdict: _Verdict
    text: str
    input: str
    build: str | None
    difference: BufferDifference | None


class CodeRegion(Fields):
    """The first region where the code of two builds parts: (offset in bytes, instruction). further: regions behind it.
    places: rows that differ, in all."""

    a: str
    b: str
    a_code: list[tuple[Whole, str]]
    b_code: list[tuple[Whole, str]]
    further: Count
    places: Count


class VerifiedKernel(Fields):
    """One kernel. reason, input: of the worst finding; "" where there is none.

    builds: those that ran, the reference first. same_code: a build, and what gave the same code again. groups: builds
    that stored the same on `input`. seconds: on the GPU, without assembling.
    """

    kernel: str
    launch: str
    verdict: _Verdict
    reason: str
    input: str
    builds: list[VerifiedBuild]
    same_code: list[tuple[str, str]]
    not_built: list[NotBuilt]
    inputs: list[str]
    findings: list[VerificationFinding]
    groups: list[list[str]]
    region: CodeRegion | None
    notes: list[str]
    seconds: float


class Verification(Fields):
    """Kernels run as several builds. device: the GPU; null: none was used. counts: kernels by verdict."""

    format: Literal[1]
    kind: Literal["verification"]
    target: str
    device: str | None
    counts: dict[str, Count]
    kernels: list[VerifiedKernel]
