"""Result of `tune`: which lever makes each kernel faster, and by how much. A lever is a change that makes ptxas give
other code for the same PTX: another name, version of ptxas, or option."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, TypeVar

from msgspec import UNSET, UnsetType

from tritonhook._util.schema import Count, Fields, Hash, Number, like
from tritonhook.capture.selection import Kernel, Skipped, titles
from tritonhook.cubin.resources import occupancy
from tritonhook.report.result import Result, Summary, Table, Tone, count, grouped, number, spills
from tritonhook.timing.statistics import SampleBlock
from tritonhook.tuning.candidates import Candidate, Dropped
from tritonhook.tuning.race import Race, Tuned, TuneRun, TuneVerdict

_TONES = {TuneVerdict.WIN: Tone.GOOD, TuneVerdict.LEAVE: Tone.NEUTRAL, TuneVerdict.ASSEMBLED: Tone.NEUTRAL}
_MOST_CODES = 100
_CODE_COLUMNS = ("kernel", "lever", "regs", "spills", "stack", "warps/SM")
_OWN = "none: as compiled"


class DroppedLever(Fields):
    """A lever that was not raced. reason: e.g. that it gives the same code as another lever, that ptxas failed, or that
    the kernel computed other outputs, crashed or hung.

    equal_to: the lever whose code it gives, "plain" for the compiler's own code; null: none. config: the configuration
    of an autotuned kernel; absent for the configuration that its autotuner chose.
    """

    lever: str
    reason: str
    equal_to: str | UnsetType | None = UNSET
    config: str | UnsetType = UNSET

    @classmethod
    def of(cls, dropped: Dropped, config: str | None = None) -> DroppedLever:
        return cls(dropped.lever.text, dropped.reason, dropped.equal_to, dropped.config or config or UNSET)


class TunedRace(Fields):
    """The race between the codes of a kernel. blocks: how many blocks were timed. left: for each code that stayed to
    the end, its time divided by that of the compiler's own code. dropped: for each other code, after which block it was
    dropped."""

    blocks: Count
    left: dict[str, Number]
    dropped: dict[str, Count]

    @classmethod
    def of(cls, race: Race) -> TunedRace:
        left = {name: math.exp(statistics.mean(values)) for name, values in race.log_ratios.items() if values}
        return cls(max([race.blocks, *race.dropped.values()]), left, dict(race.dropped))


class CodeFigures(Fields):
    """One code of a kernel. code: the hash of its instructions. stack, spill_stores, spill_loads: bytes. shared: static
    bytes, without those that a launch adds. warps_per_SM: how many an SM holds at a time. null: not known."""

    code: Hash
    registers: Count | None
    stack: Count | None
    spill_stores: Count | None
    spill_loads: Count | None
    shared: Count
    warps_per_SM: Count | UnsetType | None = UNSET

    @classmethod
    def of(cls: type[_Figures], candidate: Candidate, kernel: Kernel, **further: Any) -> _Figures:
        """Build from a code of the kernel. further: fields of a subclass."""
        r, launch = candidate.resources, kernel.launches[0]
        resident = occupancy(kernel.arch, r.registers, launch.threads, r.shared + launch.shared, launch.shared)
        warps = None if resident is None else resident.warps
        return like(r, cls, code=candidate.code_hash, warps_per_SM=warps, **further)

    def row(self, kernel: str, lever: str) -> tuple[str, ...]:
        spilled = spills(self.spill_stores, self.spill_loads)
        warps = "-" if self.warps_per_SM is UNSET else number(self.warps_per_SM)
        return kernel, lever, number(self.registers), spilled, number(self.stack), warps


_Figures = TypeVar("_Figures", bound=CodeFigures)


class CandidateCode(CodeFigures, kw_only=True):
    """A code from a lever, or from another configuration without a lever ("plain"). config: as in DroppedLever."""

    lever: str
    config: str | UnsetType = UNSET


class TunedKernel(Fields):
    """One kernel.

    title: its name, with the configuration if others share the name. share: its share of the GPU's time; null: not
    known. launch: the launch that was timed. reason: why there is no win. lever: the lever that led the race; null:
    none. config, base: for an autotuned kernel, the configuration of that lever's code, and of the best code without a
    lever; absent for the configuration that its autotuner chose. gain_percent: by how much less time the kernel takes
    than the best code without a lever, in fresh processes; null if nothing was confirmed. interval_percent: the 95%
    interval of the gain; null without a gain. p: how often chance gives such a gain; null without a gain. ptxas:
    version of the compiler's own ptxas. ptx: the hash of the normalised PTX. own: the code that the compiler itself
    makes. candidates: the other codes, with their levers. seconds: how long the GPU was used. samples: those of the
    measurement in fresh processes; null without --save.
    """

    kernel: str
    record: str
    arch: str
    front_end: str
    ptx: str
    ptxas: str
    share: float | None
    launch: str
    verdict: TuneVerdict
    reason: str
    lever: str | None
    gain_percent: Number | None
    interval_percent: tuple[Number, Number] | None
    p: float | None
    processes: Count
    own: CodeFigures
    candidates: tuple[CandidateCode, ...]
    dropped: tuple[DroppedLever, ...]
    race: TunedRace | None
    notes: tuple[str, ...]
    seconds: float
    samples: tuple[SampleBlock, ...] | None
    config: str | UnsetType = UNSET
    base: str | UnsetType = UNSET
    title: str | UnsetType = UNSET

    @classmethod
    def of(cls, row: Tuned, title: str, full: bool = False) -> TunedKernel:
        tried, certificate = row.tried, row.certificate
        kernel, choice, comparison = tried.kernel, tried.choice, tried.comparison
        interval = None if certificate is None else certificate.interval_percent
        return like(
            kernel,
            cls,
            kernel=kernel.name,
            title=title if title != kernel.name else UNSET,
            ptxas=choice.subject.ptxas.version,
            launch=kernel.launches[0].summary,
            verdict=row.verdict,
            reason=row.reason,
            lever=None if tried.winner is None else tried.winner.text,
            config=(None if tried.winner is None else tried.winner.config) or UNSET,
            base=tried.base or UNSET,
            gain_percent=None if certificate is None else certificate.gain_percent,
            interval_percent=interval if interval is not None and all(map(math.isfinite, interval)) else None,
            p=None if certificate is None else certificate.p,
            processes=0 if comparison is None else comparison.processes,
            own=CodeFigures.of(choice.plain, kernel),
            candidates=tuple(
                CandidateCode.of(code, kernel, lever=code.text, config=code.config or UNSET)
                for config in choice.configurations
                for code in (*([config.plain] if config is not choice else []), *config.others)
            ),
            dropped=tuple(
                [
                    DroppedLever.of(gone, config.plain.config)
                    for config in choice.configurations
                    for gone in config.dropped
                ]
                + [DroppedLever.of(gone) for gone in tried.failed]
            ),
            race=None if tried.race is None else TunedRace.of(tried.race),
            notes=tried.notes,
            seconds=round(tried.seconds, 3),
            samples=comparison.blocks if full and comparison is not None else None,
        )

    @property
    def called(self) -> str:
        return self.title or self.kernel

    @property
    def row(self) -> tuple[str, ...]:
        share = "" if self.share is None else f"{self.share:.1%}"
        if self.verdict is TuneVerdict.WIN:
            if self.interval_percent is None or self.gain_percent is None:
                raise ValueError(f"{self.kernel}: the verdict is a win, but the gain or its interval is missing")
            low, high = self.interval_percent
            gain, what = f"{self.gain_percent:.1f}% ({low:.1f}% to {high:.1f}%)", str(self.lever)
            what += f" with {self.config}" if self.config else ""
        else:
            gain, what = "", self.reason or count(len(self.candidates), "other code")
        return self.called, share, self.verdict.value, gain, what


class Tuning(Result, tag="tuning"):
    """Kernels tuned together. policy: the file with the wins. device: the GPU; null: none was used.

    stopped: why it ended early; "" if it did not. start_seconds: how long it took to start the processes that use the
    GPU. counts: number of kernels with each verdict.
    """

    verbs: ClassVar = "tune"

    target: str
    policy: str
    device: str | None
    stopped: str
    start_seconds: float
    counts: dict[str, Count]
    kernels: tuple[TunedKernel, ...]
    skipped: tuple[Skipped, ...]

    @classmethod
    def of(cls, target: str, policy: str, run: TuneRun, skipped: Sequence[Skipped], full: bool = False) -> Tuning:
        """Build from a run of `tune`. policy: its file. full: add all samples of the confirmations."""
        kernels = [row.tried.kernel for row in run.rows]
        called = titles({kernel.record: (kernel.name, kernel.arch, dict(kernel.settings)) for kernel in kernels})
        return cls(
            target=target,
            policy=policy,
            device=run.device or None,
            stopped=run.stopped,
            start_seconds=round(run.start_s, 3),
            counts={verdict.value: sum(row.verdict is verdict for row in run.rows) for verdict in TuneVerdict},
            kernels=tuple(TunedKernel.of(row, called[row.tried.kernel.record], full) for row in run.rows),
            skipped=tuple(skipped),
        )

    def summary(self) -> Summary:
        columns = ("kernel", "share", "verdict", "gain (95% interval)", "lever or reason")
        rows, tones = tuple(k.row for k in self.kernels), tuple(_TONES[k.verdict] for k in self.kernels)
        table = Table("Kernels", columns, rows, tones=tones, words=(2, 4))
        tables = (table, *self._codes()) if self.kernels else ()
        notes = tuple(dict.fromkeys(self._notes()))
        return Summary("Tuning", self.target, *self._verdict(), tuple(self._facts()), tables, notes)

    def _codes(self) -> Iterator[Table]:
        """Show the codes that were assembled but not timed, if there are few enough to read."""
        kernels = [k for k in self.kernels if k.verdict is TuneVerdict.ASSEMBLED and k.candidates]
        rows = [
            row
            for k in kernels
            for row in (k.own.row(k.called, _OWN), *(c.row(k.called, c.lever) for c in k.candidates))
        ]
        if 0 < len(rows) <= _MOST_CODES:
            yield Table("Codes (stack, spill stores/loads: bytes)", _CODE_COLUMNS, tuple(rows), 2)

    def _of(self, verdict: TuneVerdict) -> int:
        return self.counts.get(verdict.value, 0)

    @property
    def _tried(self) -> str:
        total = count(len(self.kernels) + len(self.skipped), "kernel")
        return f"{len(self.kernels):,} of {total}" if self.skipped else total

    def _verdict(self) -> tuple[str, Tone]:
        if self._of(TuneVerdict.ASSEMBLED):
            codes = sum(len(kernel.candidates) for kernel in self.kernels)
            text = f"{count(codes, 'code')} of {self._tried} to race; nothing was timed"
            return text, Tone.NEUTRAL
        if not self.kernels:
            return "no kernel was tuned", Tone.UNSURE
        wins = self._of(TuneVerdict.WIN)
        text = f"{count(wins, 'win')} of {self._tried}"
        return text, Tone.GOOD if wins else Tone.NEUTRAL

    def _facts(self) -> Iterator[str]:
        if self.stopped:
            yield f"{self.stopped}: the other kernels were not tuned"
        if self._of(TuneVerdict.ASSEMBLED):
            yield f"race them on a GPU: `tritonhook tune {self.target}`"
        if self._of(TuneVerdict.WIN):
            yield f"apply them with `tritonhook run --policy {self.policy}` or tritonhook.enable(policy=...)"

    def _notes(self) -> Iterator[str]:
        if self.device:
            seconds = sum(kernel.seconds for kernel in self.kernels)
            yield f"{seconds:.0f} s on {self.device}, and {self.start_seconds:.0f} s to start processes"
        dropped = (
            (k.called, f"{gone.lever}: {gone.reason}") for k in self.kernels for gone in k.dropped if not gone.equal_to
        )
        noted = ((k.called, note) for k in self.kernels for note in k.notes)
        for text, names in grouped((*dropped, *noted)).items():
            yield f"{names}: {text}"
        for reason, names in grouped((skipped.kernel, skipped.reason) for skipped in self.skipped).items():
            yield f"not tuned: {names}: {reason}"
