"""Kernels run as several builds: `verify`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

from tritonhook._util.schema import Count, Fields, like
from tritonhook.report.format import count
from tritonhook.report.result import Result
from tritonhook.report.summary import Summary, Table, Tone
from tritonhook.verify.builds import NotBuilt
from tritonhook.verify.differential import Verified
from tritonhook.verify.judgement import Observation
from tritonhook.verify.model import Verdict
from tritonhook.verify.region import Region

_TONES = {
    Verdict.CRASH: Tone.BAD,
    Verdict.HANG: Tone.BAD,
    Verdict.DIFFERENT: Tone.BAD,
    Verdict.NONDETERMINISTIC: Tone.UNSURE,
    Verdict.ROUNDING: Tone.CHANGED,
    Verdict.NOT_UNDERSTOOD: Tone.UNSURE,
    Verdict.SAME: Tone.GOOD,
    Verdict.SKIPPED: Tone.NEUTRAL,
}
_RANK = list(_TONES)


class VerifiedBuild(Fields):
    """One cubin. ptxas: the version that made it; null: not known. options: as it was given them."""

    label: str
    ptxas: str | None
    options: tuple[str, ...]


class VerifiedKernel(Fields):
    """One kernel. reason, input: of the worst finding; "" where there is none.

    builds: those that ran, the reference first. same_code: a build, and what gave the same code again. groups: builds
    that stored the same on `input`. seconds: on the GPU, without assembling.
    """

    kernel: str
    launch: str
    verdict: Verdict
    reason: str
    input: str
    builds: tuple[VerifiedBuild, ...]
    same_code: tuple[tuple[str, str], ...]
    not_built: tuple[NotBuilt, ...]
    inputs: tuple[str, ...]
    findings: tuple[Observation, ...]
    groups: tuple[tuple[str, ...], ...]
    region: Region | None
    notes: tuple[str, ...]
    seconds: float

    @classmethod
    def of(cls, verified: Verified) -> VerifiedKernel:
        worst = verified.judgement.worst
        return like(
            verified,
            cls,
            reason=worst.text if worst is not None else "",
            input=worst.input if worst is not None else "",
            not_built=verified.failed,
            inputs=tuple(dict.fromkeys(ran.input for ran in verified.ran)),
            findings=verified.judgement.findings,
            seconds=round(verified.seconds, 3),
        )

    @property
    def is_bad(self) -> bool:
        return _TONES[self.verdict] is Tone.BAD

    @property
    def row(self) -> tuple[str, ...]:
        why = self.reason
        if self.verdict is Verdict.SKIPPED:
            why = "; ".join(self.notes) or "not known"
        elif self.verdict is Verdict.SAME:
            why = ""
        return self.kernel, self.verdict.value, str(len(self.builds) or ""), str(len(self.inputs) or ""), why

    def facts(self) -> Iterator[str]:
        yield f"{self.reason} (kernel {self.kernel}, input {self.input})"
        if self.groups:
            sides = "; ".join(" = ".join(group) for group in self.groups)
            yield f"builds of {self.kernel} that stored the same: {sides}"

    def details(self) -> Iterator[Table]:
        """The first elements that differ, and where the code parts."""
        for finding in self.findings:
            if finding.difference is not None and _TONES[finding.verdict] is Tone.BAD:
                rows = tuple((f"{e.index:,}", *e.values, *e.bits) for e in finding.difference.first)
                columns = ("element", self.builds[0].label, str(finding.build), "bits", "bits")
                yield Table(f"First elements of {self.kernel} that differ", columns, rows, 0)
                break
        if (region := self.region) is not None:
            sides = (("<", region.a_code), (">", region.b_code))
            code = tuple((f"{side}  {offset:04x}", text) for side, lines in sides for offset, text in lines)
            more = f", and {count(region.further, 'further region')}" if region.further else ""
            title = f"Where the code of {self.kernel} parts: < {region.a}, > {region.b}{more}"
            yield Table(title, ("offset", "instruction"), code, 2)


class Verification(Result, tag="verification"):
    """Kernels run as several builds. device: the GPU, or "CPU (emulated)"; null: none was used. counts: kernels by
    verdict."""

    verbs: ClassVar = "verify"

    target: str
    device: str | None
    counts: dict[str, Count]
    kernels: tuple[VerifiedKernel, ...]

    @classmethod
    def of(cls, target: str, device: str | None, results: Sequence[Verified]) -> Verification:
        counts = {verdict.value: sum(result.verdict is verdict for result in results) for verdict in Verdict}
        return cls(target=target, device=device, counts=counts, kernels=tuple(map(VerifiedKernel.of, results)))

    def summary(self) -> Summary:
        kernels = sorted(self.kernels, key=lambda kernel: _RANK.index(kernel.verdict))
        bad = [kernel for kernel in kernels if kernel.is_bad]
        rows, tones = tuple(kernel.row for kernel in kernels), tuple(_TONES[kernel.verdict] for kernel in kernels)
        table = Table("Kernels", ("kernel", "verdict", "codes", "inputs", "why"), rows, 2, tones, (4,))
        return Summary(
            "Verification",
            self.target,
            *self._verdict(),
            tuple(fact for kernel in bad for fact in kernel.facts()),
            (table, *(detail for kernel in bad for detail in kernel.details())),
            tuple(self._notes(kernels)),
        )

    def _verdict(self) -> tuple[str, Tone]:
        present = [verdict for verdict in _TONES if self.counts.get(verdict.value)]
        ran = len(self.kernels) - self.counts.get(Verdict.SKIPPED.value, 0)
        if not ran:
            return "nothing could be run", Tone.UNSURE
        counted = ", ".join(f"{self.counts[verdict.value]:,} {verdict.value}" for verdict in present)
        return f"{count(ran, 'kernel')}: {counted}", _TONES[present[0]]

    def _notes(self, kernels: Sequence[VerifiedKernel]) -> Iterator[str]:
        if self.device:
            yield f"run on {self.device}"
        for kernel in kernels:
            if kernel.verdict is not Verdict.SKIPPED:
                yield from (f"{kernel.kernel}: {note}" for note in kernel.notes)
        failed: dict[str, str] = {}
        for unbuilt in (unbuilt for kernel in kernels for unbuilt in kernel.not_built):
            failed.setdefault(unbuilt.label, unbuilt.reason)
        yield from (f"{label} made no build of some kernels: {reason}" for label, reason in failed.items())
