"""Policies: `policy show`, `policy check`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

from msgspec import UNSET, UnsetType

from tritonhook._util.schema import Count, Fields, Number
from tritonhook.report.format import count, grouped
from tritonhook.report.result import Result
from tritonhook.report.summary import Summary, Table, Tone
from tritonhook.tuning.policy_check import Checked, State

_TONES = {
    State.USABLE: Tone.NEUTRAL,
    State.APPLIES: Tone.GOOD,
    State.APPLIED: Tone.GOOD,
    State.STALE: Tone.BAD,
    State.UNUSABLE: Tone.BAD,
    State.NOT_SEEN: Tone.UNSURE,
}


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
    state: State
    reason: str

    @classmethod
    def of(cls, checked: Checked) -> PolicyEntry:
        entry = checked.entry
        return cls(
            kernel=entry.kernel,
            arch=entry.arch,
            front_end=entry.front_end,
            lever=entry.lever.text,
            gain_percent=entry.gain_percent,
            interval_percent=entry.interval_percent,
            gpu=entry.gpu,
            date=entry.date,
            ptxas=entry.ptxas,
            ptx=entry.ptx,
            code=entry.code,
            state=checked.state,
            reason=checked.reason,
        )

    @property
    def row(self) -> tuple[str, ...]:
        low, high = self.interval_percent
        gain = f"{self.gain_percent:.1f}% ({low:.1f}% to {high:.1f}%)"
        return self.kernel, self.arch, self.lever, self.state.value, gain, f"{self.gpu}, {self.date}"


class PolicyResult(Result, tag="policy"):
    """A policy and what it does here.

    captures: the folder that it was compared with; null if with none. counts: kernels by state. notes: on captured
    kernels that are left out; not there without one.
    """

    verbs: ClassVar = "policy show`, `policy check"

    path: str
    captures: str | None
    counts: dict[str, Count]
    kernels: list[PolicyEntry]
    notes: list[str] | UnsetType = UNSET

    @classmethod
    def of(cls, path: str, captures: str | None, checked: Sequence[Checked], notes: Sequence[str] = ()) -> PolicyResult:
        return cls(
            path=path,
            captures=captures,
            counts={state.value: sum(one.state is state for one in checked) for state in State},
            kernels=[PolicyEntry.of(one) for one in checked],
            notes=list(notes) or UNSET,
        )

    def summary(self) -> Summary:
        columns = ("kernel", "arch", "lever", "state", "gain (95% interval)", "measured on")
        rows, tones = tuple(one.row for one in self.kernels), tuple(_TONES[one.state] for one in self.kernels)
        table = Table("Kernels", columns, rows, left=3, tones=tones, words=(3, 5), one_line=True)
        subject = self.path if self.captures is None else f"{self.path} beside {self.captures}"
        return Summary("Policy", subject, *self._verdict(), tuple(self._facts()), (table,) if self.kernels else ())

    def _facts(self) -> Iterator[str]:
        for state in _TONES:
            named = ((f"{k.kernel} {k.arch}", k.reason) for k in self.kernels if k.reason and k.state is state)
            for reason, names in grouped(named).items():
                yield f"{state.value}: {names}: {reason}"
        yield from self.notes or ()

    def _verdict(self) -> tuple[str, Tone]:
        if not self.kernels:
            return "no kernel has a lever", Tone.NEUTRAL
        states = [f"{self.counts[state.value]:,} {state.value}" for state in _TONES if self.counts.get(state.value)]
        trouble = any(self.counts.get(state.value) for state in _TONES if state.is_trouble)
        return f"{count(len(self.kernels), 'kernel')}: {', '.join(states)}", Tone.BAD if trouble else Tone.GOOD
