"""Candidates: the machine code of a kernel under each lever, assembled in parallel.

A lever is a change to try: another kernel name, a pragma, another ptxas or one of its options. Levers that give equal
code share one candidate. A lever that ptxas rejects is dropped, with the reason. Nothing runs on a GPU here. A capture
folder can keep candidates, so that one machine assembles them and another races them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tritonhook._util.files import read_regular, write_whole
from tritonhook._util.schema import MOST_JSON, DocumentError, Fields, FileName, Hash, Sha256, Version, read_json
from tritonhook._util.text import to_json
from tritonhook._util.versions import version_key
from tritonhook.capture.model import Assembler, Capture
from tritonhook.capture.policy.levers import AND, CONTROLS_VERSION, Lever, lever
from tritonhook.capture.policy.model import Entry, unnumbered
from tritonhook.capture.selection import Kernel, Launched, Skipped
from tritonhook.capture.store import CaptureFolder
from tritonhook.cubin.summary import KernelSummary, summarise_image
from tritonhook.errors import CaptureError, ToolError, TritonHookError, UsageError
from tritonhook.ptx.module import Ptx
from tritonhook.ptx.normal_form import normal_sha256
from tritonhook.ptxas.pool import Job, Run
from tritonhook.ptxas.result_cache import Outcome, OutcomeKind
from tritonhook.ptxas.tool import Tool, available_ptxas, find_recorded

PLAIN = "plain"  # label of the compiler's own code, which has no lever
_OPTIONS = ("O1", "O2", *(f"regalloc={n}" for n in (0, 1, 2, 4)), *(f"regusage={n}" for n in (0, 3, 7, 10)))
_LIMITS = tuple(f"maxnreg={n}" for n in (64, 80, 96, 112, 128, 168))
_WHY = {
    OutcomeKind.TIMEOUT: "ptxas did not finish in time",
    OutcomeKind.MEMORY: "ptxas needs more memory than it may have",
    OutcomeKind.CRASHED: "ptxas crashed",
    OutcomeKind.REJECTED: "ptxas rejects it",
    OutcomeKind.UNSUPPORTED: "this ptxas does not know the target or the PTX version",
}


@dataclass(frozen=True, slots=True)
class Subject:
    """A kernel to tune: its PTX, and the ptxas and options with which the compiler assembles it.

    kernel: its name in the PTX. options: include the target. front_end: as in Capture.
    """

    kernel: str
    ptx: Ptx
    ptxas: Tool
    options: tuple[str, ...]
    arch: str
    front_end: str = "Triton"

    @classmethod
    def of(cls, capture: Capture, trust: bool = False) -> Subject:
        """Make a subject from a capture. trust: as in find_recorded. Raises CaptureError if the capture has no PTX, or
        its kernel is rewritten; ToolError if its ptxas is not installed."""
        if capture.rewritten_from is not None or capture.lever is not None:
            raise CaptureError(f"{capture.kernel}: it is rewritten already; capture the program without rewrites")
        own = capture.assembler
        tool = find_recorded(own.path, own.version, trust)
        if tool is None or own.arguments is None:
            raise CaptureError(f"{capture.kernel}: the capture does not say which ptxas made its code")
        return cls(capture.kernel, capture.ptx, tool, own.arguments, capture.arch, capture.front_end)

    @property
    def ptx_sha256(self) -> str:
        """Hash of the normalised PTX, by which a policy identifies the kernel."""
        return normal_sha256(self.ptx.text, self.kernel)


def subject_of(captures: CaptureFolder, kernel: Kernel, trust: bool = False) -> Subject | Skipped:
    """Make the subject of a captured kernel; or Skipped with the reason, e.g. its ptxas is not installed. trust: as in
    find_recorded."""
    try:
        return Subject.of(captures.capture(kernel.record), trust)
    except TritonHookError as error:
        return Skipped(kernel.name, kernel.record, str(error), kernel.share)


@dataclass(frozen=True, slots=True)
class Candidate:
    """Machine code of a kernel under one lever.

    lever: None for the compiler's own code. config: the configuration of an autotuned kernel, in Triton's notation;
    None for the configuration that the autotuner chose, and for a kernel without autotuning. kernel: its name in the
    cubin. ptxas: the version that assembled it. code_hash: hash of the machine code alone, as in locks.
    """

    lever: Lever | None
    kernel: str
    cubin: bytes
    code_hash: str
    resources: KernelSummary
    ptxas: str
    config: str | None = None

    @property
    def name(self) -> str:
        """Name of this candidate, unique among the kernel's candidates."""
        if self.config is None:
            return self.text
        return self.config if self.lever is None else f"{self.config}: {self.text}"

    @property
    def text(self) -> str:
        return PLAIN if self.lever is None else self.lever.text

    @property
    def form(self) -> tuple[object, ...]:
        """Properties that decide how long the code runs: candidates with equal values take equal times."""
        resources = self.resources
        return self.code_hash, resources.registers, resources.stack, resources.shared


@dataclass(frozen=True, slots=True)
class Dropped:
    """A lever that gives a kernel no new code, and the reason. equal_to: the lever that gives the same code, or PLAIN
    if the compiler's own code is the same; None if ptxas made no code. config: as in Candidate."""

    lever: Lever
    reason: str
    equal_to: str | None = None
    config: str | None = None


@dataclass(frozen=True, slots=True)
class Choice:
    """All candidates of a kernel. plain: the compiler's own code. others: candidates with a lever, whose codes differ
    from plain and from each other.

    siblings: the candidates of the kernel's other autotuning configurations; `others` is empty in those on which no
    lever was tried. launches: only in a sibling: the recorded launches of its configuration.
    """

    subject: Subject
    plain: Candidate
    others: tuple[Candidate, ...]
    dropped: tuple[Dropped, ...]
    siblings: tuple[Choice, ...] = ()
    launches: tuple[Launched, ...] = ()

    @property
    def configurations(self) -> tuple[Choice, ...]:
        """This choice, then its siblings."""
        return (self, *self.siblings)

    @property
    def levered(self) -> tuple[Candidate, ...]:
        """Candidates with a lever, of all configurations. Only these can win."""
        return tuple(other for choice in self.configurations for other in choice.others)

    def of(self, candidate: Candidate) -> Choice:
        """Find the configuration that a candidate belongs to."""
        return next(config for config in self.configurations if candidate in (config.plain, *config.others))

    def as_config(self, config: str, launches: tuple[Launched, ...]) -> Choice:
        """Copy as another configuration of an autotuned kernel."""
        plain, others = replace(self.plain, config=config), (replace(other, config=config) for other in self.others)
        return replace(self, plain=plain, others=tuple(others), launches=launches)

    @property
    def levers(self) -> frozenset[str]:
        """Texts of the levers whose code is one of these candidates."""
        equal = (drop.lever.text for drop in self.dropped if drop.equal_to is not None)
        return frozenset((*(other.text for other in self.others), *equal))


def plain_choice(captures: CaptureFolder, kernel: Kernel, trust: bool = False) -> Choice | None:
    """Make a choice with the captured code alone, without running ptxas; None if the capture is incomplete."""
    subject = subject_of(captures, kernel, trust)
    if isinstance(subject, Skipped):
        return None
    try:
        capture = captures.capture(kernel.record)
        image = summarise_image(capture.cubin, {})
        name = capture.kernel
        code = image.code_hash(name), image.kernel(name)
        plain = Candidate(None, name, capture.cubin, *code, subject.ptxas.version)
    except TritonHookError:
        return None
    return Choice(subject, plain, (), ())


def usual_levers(own: Tool, arch: str, front_end: str = "Triton") -> tuple[Lever, ...]:
    """List the default levers that fit this ptxas and architecture: renaming, the pragma, TMA loads; every other
    installed ptxas, the newest also combined with renaming; ptxas options and register limits."""
    others = {tool.version for tool in available_ptxas()} - {own.version}
    ordered = sorted(others, key=version_key, reverse=True)
    texts = ["name", "strip", "pragma", "tma-cta", *(f"ptxas={version}" for version in ordered)]
    texts += [f"name+ptxas={version}" for version in ordered[:1]]
    usual = map(lever, (*texts, *_OPTIONS, *_LIMITS))
    return tuple(candidate for candidate in usual if candidate.why_not(own.version, arch, front_end) is None)


@dataclass(frozen=True, slots=True)
class _Build:
    """One run of ptxas: a subject with a lever applied. kernel: its name in the assembled PTX."""

    subject: Subject
    lever: Lever | None
    kernel: str
    job: Job


def choices(
    wanted: Iterable[tuple[Subject, Sequence[Lever]]], run: Run, folder: Path = Path()
) -> Iterator[Choice | TritonHookError]:
    """Assemble kernels with their levers in one sweep. Yields, in order, the candidates of each kernel; or the error of
    its own ptxas, if this does not assemble it.

    run: ptxas.pool.sweep with executor, cache and limits bound. folder: paths of controls files are relative to it.
    """
    planned = [_planned(subject, tried, folder) for subject, tried in wanted]
    jobs = [build.job for _, builds, _ in planned for build in builds]
    outcomes = {job.key: outcome for job, outcome in run(jobs)}
    for subject, builds, dropped in planned:
        yield _choice(subject, [(build, outcomes[build.job.key]) for build in builds], dropped)


@dataclass(frozen=True, slots=True)
class Asked:
    """The levers and configurations to try on each kernel.

    levers: None for usual_levers. controls: a lever for each file of ptxas's advanced controls. before: entries of the
    existing policy; their levers are tried again. configs: number of configurations of an autotuned kernel on which
    levers are tried; further configurations race with their captured code. trust: as in find_recorded. is_anew:
    assemble again, even if the capture folder keeps candidates. folder: as in `choices`."""

    levers: tuple[Lever, ...] | None
    controls: tuple[Lever, ...]
    before: tuple[Entry, ...]
    configs: int
    trust: bool
    is_anew: bool
    folder: Path

    def levers_of(self, kernel: Kernel, subject: Subject) -> tuple[Lever, ...]:
        """List the levers to try on a kernel. If its own ptxas is too old for controls files, these are tried with the
        newest installed ptxas."""
        own, identity, controls = subject.ptxas, unnumbered(kernel.identity), self.controls
        first = usual_levers(own, subject.arch, subject.front_end) if self.levers is None else self.levers
        if controls and version_key(own.version) < version_key(CONTROLS_VERSION):
            newest = max((tool.version for tool in available_ptxas()), key=version_key, default=own.version)
            controls = tuple(lever(f"ptxas={newest}{AND}{one.text}") for one in controls)
        earlier = (entry.lever for entry in self.before if unnumbered(entry.identity) == identity)
        return tuple(dict.fromkeys((*first, *controls, *earlier)))


def all_choices(
    captures: CaptureFolder, kernels: Sequence[Kernel], asked: Asked, run: Run, expect: Callable[[int], None]
) -> tuple[list[tuple[Kernel, Choice]], list[Skipped]]:
    """Return the candidates of each kernel and of its other configurations: read those that the capture folder keeps,
    and assemble the rest. Also return the kernels that have none, with the reason. run: as in `choices`. expect: called
    with the number of ptxas runs."""
    kept = {} if asked.is_anew else {own: kept_choices(captures, own, asked.trust) for own in kernels}
    whole = {own: choice for own, choice in kept.items() if choice is not None}
    wanted = [one for own in kernels if own not in whole for one in (own, *own.siblings[: asked.configs - 1])]
    opened = {own: subject_of(captures, own, asked.trust) for own in wanted}
    failed = [own for own in opened.values() if isinstance(own, Skipped)]
    subjects = {own: subject for own, subject in opened.items() if isinstance(subject, Subject)}
    tried = [(subject, asked.levers_of(own, subject)) for own, subject in subjects.items()]
    expect(sum(1 + len(each) for _, each in tried))
    made: dict[Kernel, Choice] = {}
    for own, outcome in zip(subjects, choices(tried, run, asked.folder) if tried else (), strict=True):
        if isinstance(outcome, Choice):
            made[own] = outcome
        else:
            failed.append(Skipped(own.name, own.record, str(outcome), own.share))
    whole |= {own: _with_siblings(captures, own, made, asked.trust) for own in kernels if own in made}
    return [(own, whole[own]) for own in kernels if own in whole], failed


def _with_siblings(
    captures: CaptureFolder, kernel: Kernel, made: Mapping[Kernel, Choice], trust: bool = False
) -> Choice:
    """Add a kernel's other configurations to its choice. made: candidates of configurations on which levers were
    tried; all other configurations get their captured code."""
    siblings = ((s, made.get(s) or plain_choice(captures, s, trust)) for s in kernel.siblings)
    configured = (choice.as_config(str(s.config), s.launches) for s, choice in siblings if choice is not None)
    return replace(made[kernel], siblings=tuple(configured))


def _planned(subject: Subject, tried: Sequence[Lever], folder: Path) -> tuple[Subject, list[_Build], list[Dropped]]:
    """Plan the ptxas runs of a kernel: first for its own code, then for each lever."""
    own = Job(subject.ptx.text, subject.ptxas, subject.options, keep_cubin=True)
    builds, dropped = [_Build(subject, None, subject.kernel, own)], list[Dropped]()
    for candidate in tried:
        if reason := candidate.why_not(subject.ptxas.version, subject.arch, subject.front_end):
            dropped.append(Dropped(candidate, reason))
            continue
        try:
            builds.append(_build(subject, candidate, folder))
        except TritonHookError as error:
            dropped.append(Dropped(candidate, str(error)))
    return subject, builds, dropped


def _build(subject: Subject, wanted: Lever, folder: Path) -> _Build:
    """Plan the ptxas run for one lever. Raises TritonHookError if its ptxas is not installed, or a rewrite does not fit
    the module."""
    ptx, tool, options = wanted.rewrites.apply(subject.ptx), subject.ptxas, subject.options
    if (assembling := wanted.assembling(folder)) is not None:
        ptx = assembling.readable(ptx)
        own = assembling.instead_of(Assembler(str(tool.path), tool.version, options))
        tool, options = Tool(Path(str(own.path)), str(own.version), tool.source), tuple(own.arguments or ())
    position = subject.ptx.entries.index(subject.kernel)
    return _Build(subject, wanted, ptx.entries[position], Job(ptx.text, tool, options, keep_cubin=True))


def _choice(
    subject: Subject, built: Sequence[tuple[_Build, Outcome]], dropped: Sequence[Dropped]
) -> Choice | TritonHookError:
    first, outcome = built[0]
    plain = _candidate(first, outcome)
    if plain is None:
        return ToolError(f"{subject.kernel}: {_why(outcome)}")
    by_form = {plain.form: plain}
    left_out = list(dropped)
    for build, outcome in built[1:]:
        assert build.lever is not None
        candidate = _candidate(build, outcome)
        if candidate is None:
            left_out.append(Dropped(build.lever, _why(outcome)))
            continue
        same = by_form.setdefault(candidate.form, candidate)
        if same is not candidate:
            left_out.append(Dropped(build.lever, f"the code of {same.text}", same.text))
    return Choice(subject, plain, tuple(by_form.values())[1:], tuple(left_out))


def _candidate(build: _Build, outcome: Outcome) -> Candidate | None:
    """Make the candidate from a run's outcome; None if ptxas made no code."""
    image = outcome.image
    if image is None or outcome.cubin is None:
        return None
    hash, resources = image.code_hash(build.kernel), image.kernel(build.kernel)
    return Candidate(build.lever, build.kernel, outcome.cubin, hash, resources, build.job.ptxas.version)


def _why(outcome: Outcome) -> str:
    """Explain why ptxas made no code."""
    what = _WHY[outcome.kind]
    return f"{what}: {outcome.message}" if outcome.message else what


# --- candidates kept in a capture folder ----------------------------------------------------------


_FOLDER = "tuning"
_FORMAT = 1


class KeptCode(Fields):
    """A candidate in the JSON document. lever: None for the compiler's own code. cubin: name of its file. code: hash of
    the machine code."""

    lever: str | None
    kernel: str
    cubin: FileName
    code: Hash
    ptxas: Version
    resources: KernelSummary

    @classmethod
    def of(cls, code: Candidate) -> KeptCode:
        text = None if code.lever is None else code.lever.text
        file = f"{hashlib.sha256(code.cubin).hexdigest()[:32]}.cubin"
        return cls(text, code.kernel, file, code.code_hash, code.ptxas, code.resources)


class KeptDropped(Fields):
    lever: str
    reason: str
    equal_to: str | None = None


class KeptChoice(Fields):
    """The JSON document of a captured kernel's candidates. ptx: hash of its normalised PTX. ptxas: version of the
    compiler's own ptxas."""

    format: int
    ptx: Sha256
    ptxas: Version
    options: list[str]
    plain: KeptCode
    others: list[KeptCode]
    dropped: list[KeptDropped]


def keep_choice(captures: Path, kernel: Kernel, choice: Choice) -> None:
    """Write a kernel's candidates to the capture folder: their cubins, and a JSON document. Raises CaptureError if a
    file cannot be written."""
    import msgspec

    folder, subject, codes = captures / _FOLDER, choice.subject, (choice.plain, *choice.others)
    plain, *others = map(KeptCode.of, codes)
    dropped = [KeptDropped(drop.lever.text, drop.reason, drop.equal_to) for drop in choice.dropped]
    version, options = subject.ptxas.version, list(subject.options)
    document = KeptChoice(_FORMAT, kernel.ptx, version, options, plain, others, dropped)
    files = {folder / "cubins" / kept.cubin: code.cubin for kept, code in zip((plain, *others), codes, strict=True)}
    files[folder / f"{kernel.record}.json"] = to_json(msgspec.to_builtins(document), indent=1).encode()
    for path, data in files.items():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, data)
        except OSError as error:
            raise CaptureError(f"{path}: cannot be written: {error.strerror}") from None


def keep_choices(captures: Path, kernel: Kernel, choice: Choice) -> None:
    """Write the candidates of a kernel, and of its other configurations on which levers were tried. Raises as
    keep_choice."""
    by_ptx = {sibling.ptx: sibling for sibling in kernel.siblings}
    siblings = [(by_ptx.get(own.subject.ptx_sha256), own) for own in choice.siblings if own.others]
    for record, own in [(kernel, choice), *siblings]:
        if record is not None:
            keep_choice(captures, record, own)


def kept_choices(captures: CaptureFolder, kernel: Kernel, trust: bool = False) -> Choice | None:
    """Read the candidates of a kernel and its other configurations from the capture folder; None if it keeps none of
    the kernel. A configuration without kept candidates gets its captured code alone. trust: as in find_recorded. Raises
    as kept_choice."""
    kept = {own: kept_choice(captures, own) for own in (kernel, *kernel.siblings)}
    made = {own: choice for own, choice in kept.items() if choice is not None}
    return _with_siblings(captures, kernel, made, trust) if kernel in made else None


def kept_choice(captures: CaptureFolder, kernel: Kernel) -> Choice | None:
    """Read a kernel's candidates from the capture folder; None if there are none, or they were made from other PTX.
    Raises CaptureError if a file is damaged."""
    folder = captures.path / _FOLDER
    path = folder / f"{kernel.record}.json"
    if not path.exists():
        return None
    try:
        kept = read_json(read_regular(path, MOST_JSON), KeptChoice)
        if kept.ptx != kernel.ptx or kept.format != _FORMAT:
            return None
        capture = captures.capture(kernel.record)
        own = Tool(Path("ptxas"), kept.ptxas, "kept")
        subject = Subject(kernel.name, capture.ptx, own, tuple(kept.options), kernel.arch, kernel.front_end)
        dropped = tuple(Dropped(lever(drop.lever), drop.reason, drop.equal_to) for drop in kept.dropped)
        plain, *others = (_read(folder, code) for code in (kept.plain, *kept.others))
        return Choice(subject, plain, tuple(others), dropped)
    except OSError as error:
        raise CaptureError(f"{error.filename or path}: cannot be read: {error.strerror}; {_REMEDY}") from None
    except (DocumentError, UsageError) as error:
        raise CaptureError(f"{path}: {error}; {_REMEDY}") from None


_REMEDY = "make it again with `tritonhook tune CAPTURES --assemble-only`"


def _read(folder: Path, code: KeptCode) -> Candidate:
    data = read_regular(folder / "cubins" / code.cubin)
    if hashlib.sha256(data).hexdigest()[:32] != code.cubin.removesuffix(".cubin"):
        raise UsageError(f"{code.cubin} is damaged")
    parsed = None if code.lever is None else lever(code.lever)
    return Candidate(parsed, code.kernel, data, code.code, code.resources, code.ptxas)
