"""Results of `verify` (kernels run as several builds) and of `verify --known` (known miscompilations in PTX)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

from tritonhook._util.schema import Count, Fields, like
from tritonhook.ptx.miscompiles import PAGE, Hit, KnownModule
from tritonhook.ptx.miscompiles.record import PtxasVerdict
from tritonhook.report.result import Result, Summary, Table, Tone, count, number, sentence, short
from tritonhook.verify.cpu import PTX_LABEL
from tritonhook.verify.differential import NotBuilt, Region, Verified
from tritonhook.verify.judgement import Observation
from tritonhook.verify.model import Verdict

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
    """One cubin. ptxas: the version that made it; null: not known. options: those with which ptxas ran."""

    label: str
    ptxas: str | None
    options: tuple[str, ...]


class VerifiedKernel(Fields):
    """One kernel. reason, input: those of the worst finding; "" if there is none.

    builds: the builds that ran, the reference first. same_code: pairs of a build that ran and one that was not run,
    because its code is the same. groups: builds that stored the same values on `input`. seconds: how long the
    verification took, without assembling.
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
        if self.stage:
            yield f"{self.kernel}: {self.stage}"

    @property
    def stage(self) -> str:
        """The step of ptxas that changed the result first; "" if not known. It can be known only for a kernel that was
        also executed from its PTX."""
        own = next((group for group in self.groups if PTX_LABEL in group), None)
        version = self.builds[1].ptxas if own is not None and len(self.builds) > 1 else None
        plain, fast = f"{version} -O0", f"{version} -O3"
        there = {label for group in self.groups for label in group}
        if own is None or version is None or not {plain, fast} <= there or fast in own:
            return ""
        if plain in own:
            return f"the optimiser of ptxas {version} changes the result: -O0 stores what the PTX says, -O3 does not"
        return f"ptxas {version} changes the result at -O0 already, before its optimiser"

    def details(self) -> Iterator[Table]:
        """Show the first elements that differ, and where the codes begin to differ."""
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
            title = f"Where the codes of {self.kernel} begin to differ: < {region.a}, > {region.b}{more}"
            yield Table(title, ("offset", "instruction"), code, 2)


class Verification(Result, tag="verification"):
    """Kernels run as several builds. device: the GPU, or "CPU (emulated)"; null: none was used. counts: number of
    kernels with each verdict."""

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
        if present in ([], [Verdict.SKIPPED]):
            return "nothing could be run", Tone.UNSURE
        unseen = sum(self.counts.get(verdict.value, 0) for verdict in (Verdict.SKIPPED, Verdict.NOT_UNDERSTOOD))
        counted = ", ".join(f"{self.counts[verdict.value]:,} {verdict.value}" for verdict in present)
        total, tone = count(len(self.kernels), "kernel"), _TONES[present[0]]
        if not unseen:
            return f"{total}: {counted}", tone
        ran = f"{len(self.kernels) - unseen:,} of {total} verified"
        return f"{ran}: {counted}", tone if tone is Tone.BAD else Tone.UNSURE

    def _notes(self, kernels: Sequence[VerifiedKernel]) -> Iterator[str]:
        if self.device:
            yield f"run on {self.device}"
        for kernel in kernels:
            if kernel.verdict is not Verdict.SKIPPED:
                yield from (f"{kernel.kernel}: {note}" for note in kernel.notes)
        failed: dict[str, str] = {}
        for unbuilt in (unbuilt for kernel in kernels for unbuilt in kernel.not_built):
            failed.setdefault(unbuilt.label, unbuilt.reason)
        yield from (f"{label} did not assemble some kernels: {reason}" for label, reason in failed.items())


# --- known miscompilations ------------------------------------------------------------------------

_KNOWN_TONES = {PtxasVerdict.WRONG: Tone.BAD, PtxasVerdict.NOT_KNOWN: Tone.UNSURE, PtxasVerdict.RIGHT: Tone.GOOD}


class KnownPlace(Fields):
    """A statement that some versions of ptxas assemble wrongly.

    module: the file, or the id of its first kernel. line: in the module's PTX. ptxas: the version in use; null: not
    known. verdict: whether that version has the bug. does: what a version with the bug does. sources: publications of
    the bug.
    """

    bug: str
    module: str
    function: str
    line: Count
    target: str | None
    ptxas: str | None
    verdict: PtxasVerdict
    does: str
    remedy: str
    sources: tuple[str, ...]

    @classmethod
    def of(cls, module: KnownModule, finding: Hit) -> KnownPlace:
        place, bug = finding.place, finding.place.bug
        where = {"module": module.name, "target": module.target, "function": place.function, "line": place.line}
        return like(bug, cls, bug=bug.name, **where, ptxas=finding.ptxas, verdict=finding.verdict)

    @property
    def row(self) -> tuple[str, ...]:
        places = short(self.module), short(self.function), number(self.line)
        return (self.bug, *places, self.target or "not known", number(self.ptxas), self.verdict.value)


class KnownUnread(Fields):
    """A module that could not be read."""

    module: str
    reason: str


class Known(Result, tag="known miscompilations"):
    """Known miscompilations in PTX. modules: how many were read."""

    verbs: ClassVar = "verify --known"

    path: str
    modules: Count
    places: tuple[KnownPlace, ...]
    unread: tuple[KnownUnread, ...]
    notes: tuple[str, ...]

    @classmethod
    def of(cls, path: str, modules: Sequence[KnownModule]) -> Known:
        places = tuple(KnownPlace.of(module, finding) for module in modules for finding in module.found)
        return cls(
            path=path,
            modules=len(modules),
            places=places,
            unread=tuple(KnownUnread(module.name, module.unread) for module in modules if module.unread is not None),
            notes=(f"{PAGE} describes the bugs; `tritonhook verify --cpu` tests this code",) * bool(places),
        )

    def summary(self) -> Summary:
        """Summarise where known bugs are, and what to do about them."""
        verdicts = {place.verdict for place in self.places}
        unsure = PtxasVerdict.NOT_KNOWN in verdicts or self.unread
        unread = (f"{module.module}: not read: {module.reason}" for module in self.unread)
        return Summary(
            "Known miscompilations",
            self.path,
            self._verdict(),
            Tone.BAD if PtxasVerdict.WRONG in verdicts else Tone.UNSURE if unsure else Tone.GOOD,
            tuple(self._facts()),
            (self._table(),) if self.places else (),
            (*unread, *self.notes),
        )

    @property
    def _sorted(self) -> list[KnownPlace]:
        return sorted(self.places, key=lambda place: list(_KNOWN_TONES).index(place.verdict))

    def _verdict(self) -> str:
        read = count(self.modules - len(self.unread), "module") + (f" of {self.modules:,}" if self.unread else "")
        if not self.places:
            return f"no pattern of a known bug of ptxas in {read}"
        said = {PtxasVerdict.WRONG: "the ptxas in use has the bug at", PtxasVerdict.NOT_KNOWN: "not known at"}
        counts = {verdict: sum(place.verdict is verdict for place in self.places) for verdict in said}
        parts = [f"{said[verdict]} {times:,}" for verdict, times in counts.items() if times]
        text = f"{count(len(self.places), 'place')} in {read} with the pattern of a known bug"
        return f"{text}: {', '.join(parts) or 'the ptxas in use does not have it'}"

    def _facts(self) -> Iterator[str]:
        """Yield for each bug what it does, and its remedy."""
        told: set[str] = set()
        for place in self._sorted:
            if place.bug not in told:
                yield f"{place.bug}: ptxas {place.does}. {sentence(place.remedy)}."
            told.add(place.bug)

    def _table(self) -> Table:
        columns = ("bug", "module", "function", "line", "target", "ptxas", "this ptxas is")
        places = self._sorted
        rows, tones = tuple(place.row for place in places), tuple(_KNOWN_TONES[place.verdict] for place in places)
        return Table("Places", columns, rows, 3, tones, words=(4, 5, 6))
