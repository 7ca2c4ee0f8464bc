"""Result of `verify` with --orders, --configs, --rows or --stages: whether a kernel stores the same bits in all
execution orders, configurations, batch sizes, or stages of its compilation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

from tritonhook._util.schema import Count, Fields, Number
from tritonhook.capture.dry_run.gpu import STAGES
from tritonhook.errors import listed
from tritonhook.report.result import Result, Summary, Table, Tone, count, number
from tritonhook.verify.same_bits import BitsVerdict, Judged, Member

_TONES = {
    BitsVerdict.NONDETERMINISTIC: Tone.BAD,
    BitsVerdict.WRONG: Tone.BAD,
    BitsVerdict.UNDEFINED: Tone.BAD,
    BitsVerdict.BATCH_VARIANT: Tone.BAD,
    BitsVerdict.OTHER_BITS: Tone.CHANGED,
    BitsVerdict.NOT_JUDGED: Tone.UNSURE,
    BitsVerdict.ROUNDING: Tone.GOOD,
    BitsVerdict.SAME: Tone.GOOD,
}
_RANK = list(_TONES)


class ComparedExecution(Fields):
    """One execution of a kernel. group: executions with equal bits have the same number; null: it was not executed, and
    `reason` is the cause. differs: where and by how much its bits differ from those of group 1, or, with --stages, from
    those of the stage before. ulps: this difference in units in the last place; null: not known, or not floating point.
    share: this difference as a share of the buffer's largest value; null: not known, or not floating point."""

    label: str
    group: Count | None
    reason: str
    differs: str
    ulps: Count | None
    share: Number | None

    @classmethod
    def of(cls, member: Member) -> ComparedExecution:
        known = member.difference
        ulps, share = (None, None) if known is None else (known.ulps, known.share)
        return cls(member.label, member.group, member.reason, member.text, ulps, share)


class ComparedKernel(Fields):
    """One kernel; with --rows a function. question: "orders", "configs", "rows" or "stages". why: what differs, or why
    nothing was judged; "" if all bits are the same. executions: the first one ran in program order, or in the first
    configuration."""

    kernel: str
    question: str
    launch: str
    verdict: BitsVerdict
    why: str
    executions: tuple[ComparedExecution, ...]

    @classmethod
    def of(cls, judged: Judged) -> ComparedKernel:
        executions = tuple(map(ComparedExecution.of, judged.members))
        return cls(judged.kernel, judged.question, judged.launch, judged.verdict, judged.why, executions)

    @property
    def row(self) -> tuple[str, ...]:
        executed = [one.group for one in self.executions if one.group is not None]
        tried = f"{len(executed)} of {len(self.executions)}" if len(executed) < len(self.executions) else len(executed)
        return self.kernel, self.question, self.verdict.value, str(tried), str(len(set(executed)) or ""), self.why

    def details(self) -> Iterator[Table]:
        if len({(one.group, one.reason) for one in self.executions}) > 1:
            rows = tuple(
                (one.label, number(one.group) if one.group is not None else "", one.differs or one.reason)
                for one in self.executions
            )
            which = "the stage before" if self.question == STAGES else "group 1"
            yield Table(f"{self.kernel}, {self.question}", ("", "group", f"differs from {which}"), rows, 1, words=(2,))


class SameBits(Result, tag="same bits"):
    """Whether kernels store the same bits when they run in another order, configuration or batch, or from another stage
    of their compilation. arch: the architecture of the dry run. counts: number of kernels with each verdict. notes:
    what was left out."""

    verbs: ClassVar = "verify --configs"

    target: str
    arch: str
    counts: dict[str, Count]
    kernels: tuple[ComparedKernel, ...]
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, target: str, arch: str, judged: Sequence[Judged], tuned: Sequence[str] = ()) -> SameBits:
        """Build from the judged kernels. tuned: autotuned kernels that were executed in one configuration only."""
        counts = {verdict.value: sum(each.verdict is verdict for each in judged) for verdict in BitsVerdict}
        kernels = tuple(map(ComparedKernel.of, judged))
        notes = (
            [f"autotuned, and executed only in the first configuration that fits the GPU: {listed(tuned)}"]
            if tuned
            else []
        )
        if any(kernel.question == STAGES for kernel in kernels):
            notes.append("stages were compared for the first launch of each compiled kernel only")
        return cls(target=target, arch=arch, counts=counts, kernels=kernels, notes=tuple(notes))

    @property
    def exit_code(self) -> int:
        """1 if bits differ; else 2 if a kernel was not judged; else 0."""
        verdicts = {kernel.verdict for kernel in self.kernels}
        if verdicts - {BitsVerdict.SAME, BitsVerdict.ROUNDING, BitsVerdict.NOT_JUDGED}:
            return 1
        return 2 if BitsVerdict.NOT_JUDGED in verdicts else 0

    def summary(self) -> Summary:
        kernels = sorted(self.kernels, key=lambda kernel: _RANK.index(kernel.verdict))
        rows, tones = tuple(kernel.row for kernel in kernels), tuple(_TONES[kernel.verdict] for kernel in kernels)
        counted = ", ".join(f"{self.counts[v.value]:,} {v.value}" for v in _RANK if self.counts.get(v.value))
        columns = "kernel", "compared", "verdict", "executed", "groups", "why"
        return Summary(
            "Same bits",
            self.target,
            f"{count(len(kernels), 'kernel')}: {counted}",
            tones[0] if tones else Tone.UNSURE,
            (),
            (
                Table("Kernels", columns, rows, 3, tones, (5,)),
                *(table for kernel in kernels for table in kernel.details()),
            ),
            (f"run on CPU (emulated), from the PTX for {self.arch}", *self.notes),
        )
