"""Result of `tune --check`: a policy, and what it does on this machine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

from msgspec import UNSET, UnsetType

from tritonhook._util.schema import Count, Fields, Number, like
from tritonhook.report.result import Result, Summary, Table, Tone, count, grouped
from tritonhook.tuning.policy_check import Checked, CheckedPin, State

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

    lever: what makes ptxas give faster code, in the form that --levers accepts. gain_percent: by how much less time the
    kernel takes with it; interval_percent: the 95% interval of the gain. gpu, date: where and when the gain was
    measured. ptxas: version of the compiler's own ptxas, whose code was slower. ptx: the hash of the normalised PTX.
    code: the hash of the machine code. reason: why the lever is not applied; "" if it is. title: the kernel's name,
    with the configuration if other captured kernels share it.
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
    title: str | UnsetType = UNSET

    @classmethod
    def of(cls, checked: Checked) -> PolicyEntry:
        entry, title = checked.entry, checked.title or UNSET
        return like(entry, cls, lever=entry.lever.text, state=checked.state, reason=checked.reason, title=title)

    def row(self, called: str) -> tuple[str, ...]:
        low, high = self.interval_percent
        gain = f"{self.gain_percent:.1f}% ({low:.1f}% to {high:.1f}%)"
        return called, self.arch, self.lever, self.state.value, gain, f"{self.gpu}, {self.date}"


class PinnedConfiguration(Fields):
    """A configuration that an autotuned function uses for one key, i.e. for certain arguments. reason: what has changed
    since it was measured; "" if nothing has, or if that is unknown. gpu, date: where and when it was measured; "" if
    unknown."""

    function: str
    arch: str
    key: tuple[str, ...]
    config: str
    gpu: str
    date: str
    state: State
    reason: str

    @classmethod
    def of(cls, checked: CheckedPin) -> PinnedConfiguration:
        return like(checked.pin, cls, state=checked.state, reason=checked.reason)

    @property
    def row(self) -> tuple[str, ...]:
        where = ", ".join(filter(None, (self.gpu, self.date)))
        return self.function, self.arch, " ".join(self.key), self.config, self.state.value, where


class PolicyResult(Result, tag="policy"):
    """A policy and its effect on this machine.

    captures: the folder that it was compared with; null: none. counts: number of kernels in each state. notes: captured
    kernels that are left out; absent without a folder. pins: configurations of autotuned functions; absent if there are
    none.
    """

    verbs: ClassVar = "tune --check"

    path: str
    captures: str | None
    counts: dict[str, Count]
    kernels: list[PolicyEntry]
    notes: list[str] | UnsetType = UNSET
    pins: list[PinnedConfiguration] | UnsetType = UNSET

    @classmethod
    def of(
        cls,
        path: str,
        captures: str | None,
        checked: Sequence[Checked],
        notes: Sequence[str] = (),
        pins: Sequence[CheckedPin] = (),
    ) -> PolicyResult:
        return cls(
            path=path,
            captures=captures,
            counts={state.value: sum(entry.state is state for entry in checked) for state in State},
            kernels=[PolicyEntry.of(entry) for entry in checked],
            notes=list(notes) or UNSET,
            pins=[PinnedConfiguration.of(entry) for entry in pins] or UNSET,
        )

    def summary(self) -> Summary:
        columns = ("kernel", "arch", "lever", "state", "gain (95% interval)", "measured on")
        rows = tuple(entry.row(self._called(entry)) for entry in self.kernels)
        tones = tuple(_TONES[entry.state] for entry in self.kernels)
        table = Table("Kernels", columns, rows, left=3, tones=tones, words=(3, 5), one_line=True)
        subject = self.path if self.captures is None else f"{self.path} beside {self.captures}"
        return Summary(
            "Policy",
            subject,
            *self._verdict(),
            tuple(self._facts()),
            (*((table,) if self.kernels else ()), *self._pinned()),
        )

    def _called(self, entry: PolicyEntry) -> str:
        """Return the title or name of a kernel. Add the hash of its PTX if several untitled kernels share the name."""
        alike = [it for it in self.kernels if (it.kernel, it.arch) == (entry.kernel, entry.arch)]
        return entry.title or (entry.kernel if len(alike) == 1 else f"{entry.kernel} (PTX {entry.ptx[:8]})")

    def _pinned(self) -> Iterator[Table]:
        if pins := self.pins or ():
            columns = ("function", "arch", "key", "configuration", "state", "measured on")
            tones = tuple(_TONES[pin.state] for pin in pins)
            rows = tuple(pin.row for pin in pins)
            yield Table("Pinned configurations", columns, rows, left=4, tones=tones, words=(4, 5), one_line=True)

    def _facts(self) -> Iterator[str]:
        for state in _TONES:
            named = ((f"{self._called(k)} {k.arch}", k.reason) for k in self.kernels if k.reason and k.state is state)
            for reason, names in grouped(named).items():
                yield f"{state.value}: {names}: {reason}"
        for pin in self.pins or ():
            if pin.reason:
                yield f"{pin.state.value}: {pin.function} {pin.arch} {' '.join(pin.key)}: {pin.reason}"
        yield from self.notes or ()

    def _verdict(self) -> tuple[str, Tone]:
        stale = sum(pin.state.is_trouble for pin in self.pins or ())
        pinned = f"{count(len(self.pins or ()), 'configuration')} pinned{f', {stale:,} changed' if stale else ''}"
        if not self.kernels:
            tone = Tone.BAD if stale else Tone.NEUTRAL
            return (pinned, tone) if self.pins else ("no kernel has a lever", tone)
        states = [f"{self.counts[state.value]:,} {state.value}" for state in _TONES if self.counts.get(state.value)]
        trouble = any(self.counts.get(state.value) for state in _TONES if state.is_trouble)
        more = f"; {pinned}" if self.pins else ""
        return (
            f"{count(len(self.kernels), 'kernel')}: {', '.join(states)}{more}",
            Tone.BAD if trouble or stale else Tone.GOOD,
        )
