"""Find the names that change the code that ptxas makes for a kernel, over ptxas versions, architectures and options.

A cell compares one kernel under one name with the same kernel under a control name of equal length, assembled in the
same way. This module makes the jobs of a whole table and judges their outcomes. ptxas/pool.py runs the jobs.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, TypeVar

from tritonhook._util.versions import version_key
from tritonhook.compare.diff import CubinDiff
from tritonhook.compare.names import diff_cubins
from tritonhook.cubin.image import Cubin
from tritonhook.cubin.summary import ImageSummary
from tritonhook.lab.name_templates import PRAGMA, fill_in, neutral
from tritonhook.ptx.module import Ptx, version_for
from tritonhook.ptx.throughput_pragma import PTX_VERSION, ThroughputPragma
from tritonhook.ptxas.command_line import without_level
from tritonhook.ptxas.pool import Job, ResultCache, Run
from tritonhook.ptxas.result_cache import Outcome, OutcomeKind
from tritonhook.ptxas.threads import tool_threads
from tritonhook.ptxas.tool import Tool
from tritonhook.ptxas.toolchain import MAX_RUNS, STEADY_RUNS, Toolchain


@dataclass(frozen=True, slots=True)
class ProbedKernel:
    """A kernel to probe: one entry of a module.

    options: options of ptxas, without -O and target. label: the kernel's name in reports.
    """

    label: str
    entry: str
    module: Ptx
    options: tuple[str, ...] = ("-v",)

    def ptx(self, arch: str) -> Ptx:
        """Return the module for an architecture: with this .target, and a .version that supports it."""
        return self.module.with_directives(version_for(self.module.version, arch), arch)


class NameVerdict(str, Enum):
    """Whether the name changes the kernel's code.

    unsteady: the code differs, but ptxas also makes several codes for one name, or different codes for two control
    names, so that the name need not be the cause. no answer: ptxas assembles the kernel under neither of the names.
    """

    SAME = "same"
    CHANGED = "changed"
    UNSTEADY = "unsteady"
    NO_ANSWER = "no answer"


@dataclass(frozen=True, slots=True)
class SetupKey:
    """Key of a Setup. kernel: label of the kernel. ptxas: version. arch: target. options: options of ptxas. pragma:
    whether the setup tests the pragma instead of names."""

    kernel: str
    ptxas: str
    arch: str
    options: tuple[str, ...]
    pragma: bool = False


@dataclass(frozen=True, slots=True)
class NameCell:
    """A kernel under a name and under a control name of equal length, in one setup.

    template: the requested name, e.g. "cutlass_*", where `*` stands for the kernel's own name. named, controlled:
    outcomes for the name and for the control name.
    draws: number of further runs of each name, which confirm or refute a difference; 0 if none was needed.
    confirmed: whether the difference held in all runs; None if that was not tested.
    other_scheduler: whether ptxas used its other scheduler, for the name and for the control; None if not known.
    """

    setup: SetupKey
    template: str
    name: str
    control: str
    named: Outcome
    controlled: Outcome
    draws: int = 0
    confirmed: bool | None = None
    other_scheduler: tuple[bool | None, bool | None] = (None, None)

    @property
    def verdict(self) -> NameVerdict:
        if self.named.image is None and self.controlled.image is None and not self._fails_otherwise:
            return NameVerdict.NO_ANSWER
        if not self.differences:
            return NameVerdict.SAME
        return NameVerdict.CHANGED if self.confirmed else NameVerdict.UNSTEADY

    @property
    def _fails_otherwise(self) -> bool:
        return self.named.kind is not self.controlled.kind

    @property
    def differences(self) -> tuple[str, ...]:
        """What differs between the two runs. If they ended differently, how one of them failed, e.g. "crash"; if both
        made a cubin, properties of the kernel, e.g. "code" and "registers"."""
        if self.named.image is None or self.controlled.image is None:
            if not self._fails_otherwise:
                return ()
            failing = self.named if self.named.image is None else self.controlled
            where = "" if failing is self.named else " under the control"
            return (f"{_FAILURES[failing.kind]}{where}",)
        a, b = form(self.named.image, self.name), form(self.controlled.image, self.control)
        return tuple(name for name, x, y in zip(_FORM, a, b, strict=True) if x != y)

    @property
    def is_crash(self) -> bool:
        """Whether ptxas crashes, or exceeds time or memory, under the name but not under the control name."""
        return self.verdict is NameVerdict.CHANGED and self.differences[0] in CRASHES

    @property
    def section_changes(self) -> dict[str, tuple[int | None, int | None]]:
        """Sections whose sizes differ: role of the section -> bytes under (control, name); None if there is no such
        section."""
        if self.named.image is None or self.controlled.image is None:
            return {}
        a, b = _sections(self.controlled.image, self.control), _sections(self.named.image, self.name)
        return {role: (a.get(role), b.get(role)) for role in {**a, **b} if a.get(role) != b.get(role)}


_FAILURES = {
    OutcomeKind.CRASHED: "crash",
    OutcomeKind.TIMEOUT: "timeout",
    OutcomeKind.MEMORY: "memory",
    OutcomeKind.REJECTED: "rejected",
    OutcomeKind.UNSUPPORTED: "rejected",
}
CRASHES = ("crash", "timeout", "memory")  # differences that are crashes
_FORM = ("code", "registers", "stack", "spills", "shared", "externs", "program", "sections")


def form(image: ImageSummary, name: str) -> tuple[object, ...]:
    """Collect all compared properties of a kernel, in the order of _FORM. Section sizes depend on the name's length, so
    only names of equal length can be compared."""
    k = image.kernel(name)
    sections = tuple(sorted(_sections(image, name).items()))
    spills = (k.spill_stores, k.spill_loads)
    return k.code_sha256, k.registers, k.stack, spills, k.shared, k.externs, image.program_sha256, sections


_OTHER_KERNEL = re.compile(r"\{kernel \d+\}$")


def _sections(image: ImageSummary, name: str) -> dict[str, int]:
    """Map the role of each section to its bytes; sections of other kernels are omitted."""
    number = next(i for i, k in enumerate(image.kernels, 1) if k.kernel == name)
    own = (role.replace(f"{{kernel {number}}}", "{kernel}") for role, _ in image.sections)
    sizes = zip(own, (size for _, size in image.sections), strict=True)
    return {role: size for role, size in sizes if not _OTHER_KERNEL.search(role)}


# --- one setup -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Setup:
    """A kernel with one ptxas, one target and one set of options. Makes the jobs for names, and cells of outcomes."""

    key: SetupKey
    module: Ptx
    entry: str
    tool: Tool

    def job(self, name: str, draw: int = 0, keep_cubin: bool = False) -> Job:
        ptx = self.module if name == self.entry else self.module.rename_entries({self.entry: name})
        if self.key.pragma and name == fill_in(PRAGMA, self.entry):
            ptx = ThroughputPragma((name,)).apply(ptx)
        options = (*self.key.options, f"--gpu-name={self.key.arch}")
        return Job(ptx.text, self.tool, options, keep_cubin, draw)

    def no_answer(self, template: str, outcome: Outcome) -> NameCell:
        """Make the cell of a template for a module that ptxas rejects under its control name and therefore under any
        name."""
        name = fill_in(template, self.entry)
        return NameCell(self.key, template, name, neutral(name), outcome, outcome)

    def cell(self, template: str, outcomes: dict[str, Outcome]) -> NameCell:
        """Make the cell of a template from one run of each name. A difference is confirmed already if .nv.capmerc
        records show that ptxas used its other scheduler for the name and not for the control."""
        name = fill_in(template, self.entry)
        control = neutral(name)
        cell = NameCell(self.key, template, name, control, outcomes[name], outcomes[control])
        records = _records(cell)
        if not cell.differences or records is None:
            return cell
        taken = (records[0] > 0, records[1] > 0)
        return replace(cell, other_scheduler=taken, confirmed=True if taken == (True, False) else None)


def _records(cell: NameCell) -> tuple[int, int] | None:
    """Return how many records of its other scheduler ptxas wrote for the name and for the control; None if an image has
    no section for such records."""
    if cell.named.image is None or cell.controlled.image is None:
        return None
    a = cell.named.image.kernel(cell.name).scheduler_records
    b = cell.controlled.image.kernel(cell.control).scheduler_records
    return None if a is None or b is None else (a, b)


def setups(
    kernels: Iterable[ProbedKernel],
    tools: Sequence[Tool],
    archs: Sequence[str] = (),
    levels: Sequence[str] = (),
    newest: Mapping[str, str] | None = None,
) -> Iterator[Setup]:
    """Yield each setup of the table.

    archs: targets; empty: each kernel's own. levels: -O levels; empty: the level in the kernel's options.
    newest: ptxas version -> newest PTX version that it reads; the version of a newer module is lowered to it.
    """
    for kernel in kernels:
        for arch in archs or (kernel.module.target,):
            module = kernel.ptx(arch)
            for tool in tools:
                version = version_for(module.version, arch, (newest or {}).get(tool.version))
                fitting = module.with_directives(version, arch)
                for options in _with_levels(kernel.options, levels):
                    yield Setup(SetupKey(kernel.label, tool.version, arch, options), fitting, kernel.entry, tool)


def pragma_setups(chosen: Iterable[Setup]) -> Iterator[Setup]:
    """Yield the setups for the template PRAGMA: those whose ptxas supports the pragma. Under the control name, too, the
    module gets a PTX version that allows the pragma, so that only the pragma differs."""
    for setup in chosen:
        if ThroughputPragma().why_not(setup.tool.version) is None:
            module = setup.module.with_directives(max(setup.module.version, PTX_VERSION, key=version_key))
            yield replace(setup, key=replace(setup.key, pragma=True), module=module)


def _with_levels(options: tuple[str, ...], levels: Sequence[str]) -> Iterator[tuple[str, ...]]:
    if not levels:
        yield options
    yield from ((*without_level(options), f"-O{level}") for level in levels)


_NEWEST = re.compile(r"current version is '(\d+\.\d+)'")


def newest_versions(tools: Sequence[Tool], run: Run) -> dict[str, str]:
    """Find the newest PTX version that each ptxas reads, from its error message for a module of version 99.0. Returns
    ptxas version -> PTX version."""
    asked = Ptx(".version 99.0\n.target sm_80\n.address_size 64\n")
    newest = {}
    for job, outcome in run(Job(asked.text, tool, ("--gpu-name=sm_80",)) for tool in tools):
        if match := _NEWEST.search(outcome.message):
            newest[job.ptxas.version] = match[1]
    return newest


# --- the table -----------------------------------------------------------------------------------


def probe(
    chosen: Sequence[Setup],
    templates: Sequence[str],
    run: Run,
    nvdisasm: Tool | None = None,
    expect: Callable[[int], None] = lambda jobs: None,
    notes: ResultCache | None = None,
) -> Iterator[NameCell]:
    """Judge each template in each setup; yield the cells as soon as they are judged.

    Cells with differences come last, since further runs must confirm them.
    nvdisasm: used to find out from the code whether ptxas used its other scheduler, if the image has no records of
    that; if nvdisasm is None, this stays unknown. expect: called with the number of jobs to come as soon as it is
    known, e.g. to show progress. notes: cache for the results of nvdisasm.
    """
    answering: list[_Answering] = []
    for setup, control, outcome in _ask_controls(chosen, templates, run, expect):
        if outcome.kind in (OutcomeKind.REJECTED, OutcomeKind.UNSUPPORTED):
            yield from (setup.no_answer(template, outcome) for template in templates)
        else:
            answering.append((setup, control, outcome))
    doubtful: dict[_Case, _Doubt] = {}
    for setup, cell in _ask_names(answering, templates, run, expect):
        if not cell.differences or (cell.confirmed and not _asks_nvdisasm(cell, nvdisasm)):
            yield cell
        else:
            doubtful.setdefault(_case(cell), _Doubt(setup, [])).cells.append(cell)
    _confirm([doubt for doubt in doubtful.values() if not doubt.first.confirmed], run, expect)
    if nvdisasm is not None:
        unknown = [d for d in doubtful.values() if d.first.confirmed and _asks_nvdisasm(d.first, nvdisasm)]
        _detect(unknown, nvdisasm, run, expect, notes)
    for doubt in doubtful.values():
        yield from doubt.cells


_Answering = tuple[Setup, str, Outcome]  # a setup, one control name, and the outcome for it


def _ask_controls(
    chosen: Sequence[Setup], templates: Sequence[str], run: Run, expect: Callable[[int], None]
) -> Iterator[_Answering]:
    """Assemble each setup under one control name. If ptxas rejects the module, no other name needs to be tried."""
    expect(len(chosen))
    asked = ((setup, setup, [(names_in(setup, templates)[-1], 0)]) for setup in chosen)
    for setup, outcomes in _gather(asked, run):
        (((control, _), outcome),) = outcomes.items()
        yield setup, control, outcome


def _ask_names(
    answering: Sequence[_Answering], templates: Sequence[str], run: Run, expect: Callable[[int], None]
) -> Iterator[tuple[Setup, NameCell]]:
    """Assemble each setup once under each other name; yield the setup with each of its cells."""
    expect(sum(len(names_in(setup, templates)) - 1 for setup, _, _ in answering))
    asked = ((item, item[0], [(n, 0) for n in names_in(item[0], templates) if n != item[1]]) for item in answering)
    for (setup, control, outcome), outcomes in _gather(asked, run):
        by_name = {control: outcome} | {name: outcome for (name, _), outcome in outcomes.items()}
        for template in templates:
            yield setup, setup.cell(template, by_name)


def names_in(setup: Setup, templates: Sequence[str]) -> tuple[str, ...]:
    """List the names that the templates give this kernel, and their control names, each once."""
    names = [fill_in(template, setup.entry) for template in templates]
    return tuple(dict.fromkeys([*names, *map(neutral, names)]))


def _asks_nvdisasm(cell: NameCell, nvdisasm: Tool | None) -> bool:
    assembled = cell.named.image is not None and cell.controlled.image is not None
    return nvdisasm is not None and assembled and _records(cell) is None


_Question = tuple[str, int]  # a name, and `draw` of the Job
K = TypeVar("K")


def _gather(
    asked: Iterable[tuple[K, Setup, Sequence[_Question]]], run: Run, keep_cubin: bool = False
) -> Iterator[tuple[K, dict[_Question, Outcome]]]:
    """Run jobs in groups: yield a group's key and outcomes as soon as all its jobs have ended. asked: for each group,
    its key, the setup, and the names to assemble."""
    waiting: dict[int, tuple[K, int, dict[_Question, Outcome]]] = {}
    askers: dict[Job, list[tuple[int, _Question]]] = {}

    def jobs() -> Iterator[Job]:
        for number, (asker, setup, questions) in enumerate(asked):
            waiting[number] = (asker, len(questions), {})
            for name, draw in questions:
                job = setup.job(name, draw, keep_cubin)
                askers.setdefault(job, []).append((number, (name, draw)))
                yield job

    for job, outcome in run(jobs()):
        number, question = askers[job].pop()
        if not askers[job]:
            del askers[job]
        asker, wanted, outcomes = waiting[number]
        outcomes[question] = outcome
        if len(outcomes) == wanted:
            del waiting[number]
            yield asker, outcomes


# --- differences ---------------------------------------------------------------------------------

_Case = tuple[SetupKey, object, object, tuple[str, ...]]


@dataclass(slots=True)
class _Doubt:
    """Cells of one setup in which all names gave one code, and all control names another. This must be confirmed: the
    first cell is assembled again, and the result holds for all."""

    setup: Setup
    cells: list[NameCell]

    @property
    def first(self) -> NameCell:
        return self.cells[0]

    def settle(self, **values: Any) -> None:
        self.cells = [replace(cell, **values) for cell in self.cells]


def _case(cell: NameCell) -> _Case:
    named, control = _result(cell.named, cell.name)[:1], _result(cell.controlled, cell.control)[:1]
    return cell.setup, named, control, cell.differences


def _result(outcome: Outcome, name: str) -> tuple[object, ...]:
    """Make a comparable value of one run: the kernel's properties (`form`), or how the run failed."""
    return ((outcome.kind, outcome.signal),) if outcome.image is None else form(outcome.image, name)


def _confirm(doubts: Sequence[_Doubt], run: Run, expect: Callable[[int], None]) -> None:
    """Assemble the name, its control and a second control again, until the difference is confirmed or refuted."""
    open_ = dict(enumerate(doubts))
    seen: dict[int, dict[str, set[object]]] = {}
    for number, doubt in open_.items():
        cell = doubt.first
        seen[number] = {
            cell.name: {_result(cell.named, cell.name)},
            cell.control: {_result(cell.controlled, cell.control)},
            neutral(cell.name, 1): set(),
        }
    for draws in (range(1, STEADY_RUNS + 1), range(STEADY_RUNS + 1, MAX_RUNS + 1)):
        asked = [(i, doubt.setup, [(name, draw) for name in seen[i] for draw in draws]) for i, doubt in open_.items()]
        expect(sum(len(questions) for _, _, questions in asked))
        for i, outcomes in _gather(asked, run):
            for (name, _), outcome in outcomes.items():
                seen[i][name].add(_result(outcome, name))
            holds = _holds(seen[i].values(), last=draws[-1] == MAX_RUNS)
            if holds is not None:
                open_.pop(i).settle(confirmed=holds, draws=draws[-1])


def _holds(seen: Iterable[set[object]], last: bool) -> bool | None:
    """Return True if the name causes the difference; None if more runs are needed. last: no more runs are possible.

    seen: sets of results for the name, its control and a second control. The name is not the cause if it has a result
    in common with a control. It is not the cause either if the two controls have no result in common, since both should
    give equal results.
    """
    named, control, other_control = seen
    if named & (control | other_control):
        return False
    if len(named) == len(control) == len(other_control) == 1 or last:
        return bool(control & other_control)
    return None


def _detect(
    doubts: Sequence[_Doubt], nvdisasm: Tool, run: Run, expect: Callable[[int], None], notes: ResultCache | None
) -> None:
    """Find out from the machine code whether ptxas used its other scheduler, and set `other_scheduler` in the cells."""

    def ask(doubt: _Doubt, outcomes: dict[_Question, Outcome]) -> None:
        control, named = _diff(doubt.first, outcomes, nvdisasm).other_scheduler
        doubt.settle(other_scheduler=(named, control))
        if notes is not None:
            notes.put_document(_detector_key(doubt.first, nvdisasm), [named, control])

    unknown = []
    for doubt in doubts:
        noted = None if notes is None else notes.get_document(_detector_key(doubt.first, nvdisasm))
        if isinstance(noted, list) and len(noted) == 2:
            doubt.settle(other_scheduler=tuple(noted))
        else:
            unknown.append(doubt)
    expect(2 * len(unknown))
    asked = [(doubt, doubt.setup, [(doubt.first.control, 0), (doubt.first.name, 0)]) for doubt in unknown]
    with tool_threads(2) as pool:
        for done in [pool.submit(ask, doubt, outcomes) for doubt, outcomes in _gather(asked, run, keep_cubin=True)]:
            done.result()


def _diff(cell: NameCell, outcomes: dict[_Question, Outcome], nvdisasm: Tool) -> CubinDiff:
    """Compare the control's code with the name's code. Both outcomes must contain their cubins."""
    a, b = (Cubin.from_bytes(outcomes[name, 0].cubin or b"") for name in (cell.control, cell.name))
    return diff_cubins(a, b, Toolchain(nvdisasm, nvdisasm), cell.control, cell.name)  # no ptxas is run


DETECTOR_FORMAT = 2  # cache format; increment it when the detection of the other scheduler changes


def _detector_key(cell: NameCell, nvdisasm: Tool) -> str:
    codes = [str(_result(o, name)[0]) for o, name in ((cell.named, cell.name), (cell.controlled, cell.control))]
    parts = ["detector", str(DETECTOR_FORMAT), nvdisasm.version, cell.setup.arch, *codes]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()
