"""Probe: which names change what ptxas makes of a kernel, over ptxas versions, architectures and options.

A cell is one kernel under one name, beside the same kernel under a control name of equal length, assembled alike.
This makes the jobs of a whole table, and judges cells by the outcomes; sweep runs them, minimise asks for one name's
shortest part that does it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, TypeVar

from tritonhook.compare.diff import CubinDiff, diff
from tritonhook.cubin.image import Cubin
from tritonhook.cubin.summary import Facts
from tritonhook.lab.name_templates import fill_in, neutral
from tritonhook.lab.outcome import Kind, Outcome
from tritonhook.lab.sweep import Job, ResultCache
from tritonhook.ptx.module import Ptx
from tritonhook.ptx.retarget import retarget, version_for
from tritonhook.ptxas.assembler import MAX_RUNS, STEADY_RUNS
from tritonhook.ptxas.tool import Tool
from tritonhook.ptxas.toolchain import Toolchain

Run = Callable[[Iterable[Job]], Iterator[tuple[Job, Outcome]]]  # sweep, with executor and cache bound


@dataclass(frozen=True, slots=True)
class Subject:
    """A kernel to probe: one entry of a module.

    ptx: the module for an architecture; None where there is none for it. options: of ptxas, without -O and target.
    label: what the report calls it. archs: by default.
    """

    label: str
    entry: str
    ptx: Callable[[str], Ptx | None]
    options: tuple[str, ...] = ("-v",)
    archs: tuple[str, ...] = ()

    @classmethod
    def of(cls, label: str, module: Ptx, entry: str, options: tuple[str, ...]) -> Subject:
        """Of a module as it is; for another architecture its directives are replaced."""
        return cls(
            label,
            entry,
            lambda arch: retarget(module, arch, version_for(module.version, arch)),
            options,
            (module.target,),
        )


class Verdict(str, Enum):
    """What a cell says of its name.

    unsteady: the code differs, but ptxas gives one name several codes, or two controls different ones, so that the
    name cannot be blamed. no answer: ptxas makes nothing of the kernel under the control name either.
    """

    SAME = "same"
    CHANGED = "changed"
    UNSTEADY = "unsteady"
    NO_ANSWER = "no answer"


@dataclass(frozen=True, slots=True)
class Place:
    """A cell's place in the table: the kernel's label, the ptxas version, the target and the options."""

    kernel: str
    ptxas: str
    arch: str
    options: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Cell:
    """A kernel under a name and under a control of equal length.

    template: the name as it was asked for. draws: runs per name that judged a difference, 0 if it did not need any.
    confirmed: whether the difference held in all of them; None if there is no difference.
    other_scheduler: whether ptxas took its other scheduler, for the name and for the control; None: cannot tell.
    """

    place: Place
    template: str
    name: str
    control: str
    named: Outcome
    controlled: Outcome
    draws: int = 0
    confirmed: bool | None = None
    other_scheduler: tuple[bool | None, bool | None] = (None, None)

    @property
    def verdict(self) -> Verdict:
        if self.named.facts is None and self.controlled.facts is None and not self._fails_otherwise:
            return Verdict.NO_ANSWER
        if not self.differences:
            return Verdict.SAME
        return Verdict.CHANGED if self.confirmed else Verdict.UNSTEADY

    @property
    def _fails_otherwise(self) -> bool:
        return self.named.kind is not self.controlled.kind

    @property
    def differences(self) -> tuple[str, ...]:
        """What differs: "crash", "rejected" and the like, else "code", "registers", "stack" ..."""
        if self.named.facts is None or self.controlled.facts is None:
            if not self._fails_otherwise:
                return ()
            failing = self.named if self.named.facts is None else self.controlled
            where = "" if failing is self.named else " under the control"
            return (f"{_FAILURES[failing.kind]}{where}",)
        a, b = form(self.named.facts, self.name), form(self.controlled.facts, self.control)
        return tuple(name for name, x, y in zip(_FORM, a, b, strict=True) if x != y)

    @property
    def section_changes(self) -> dict[str, tuple[int | None, int | None]]:
        """Bytes per section (control, name) where they differ."""
        if self.named.facts is None or self.controlled.facts is None:
            return {}
        a, b = _sections(self.controlled.facts, self.control), _sections(self.named.facts, self.name)
        return {role: (a.get(role), b.get(role)) for role in {**a, **b} if a.get(role) != b.get(role)}


_FAILURES = {
    Kind.CRASHED: "crash",
    Kind.TIMEOUT: "timeout",
    Kind.MEMORY: "memory",
    Kind.REJECTED: "rejected",
    Kind.UNSUPPORTED: "rejected",
}
_FORM = ("code", "registers", "stack", "spills", "shared", "externs", "program", "sections")


def form(facts: Facts, name: str) -> tuple[object, ...]:
    """All that is compared of a kernel, in the order of _FORM. Names of equal length only: sections follow it."""
    k = facts.kernel(name)
    sections = tuple(sorted(_sections(facts, name).items()))
    spills = (k.spill_stores, k.spill_loads)
    return k.code_sha256, k.registers, k.stack, spills, k.shared, k.externs, facts.program_sha256, sections


_OTHER_KERNEL = re.compile(r"\{kernel \d+\}$")


def _sections(facts: Facts, name: str) -> dict[str, int]:
    """Bytes by role, of this kernel and of the module."""
    number = next(i for i, k in enumerate(facts.kernels, 1) if k.kernel == name)
    own = (role.replace(f"{{kernel {number}}}", "{kernel}") for role, _ in facts.sections)
    sizes = zip(own, (size for _, size in facts.sections), strict=True)
    return {role: size for role, size in sizes if not _OTHER_KERNEL.search(role)}


# --- one place -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Bench:
    """A kernel on one ptxas, for one target, with one set of options: makes jobs for names, and judges."""

    place: Place
    module: Ptx
    entry: str
    tool: Tool

    def job(self, name: str, draw: int = 0, keep_cubin: bool = False) -> Job:
        ptx = self.module if name == self.entry else self.module.rename_entries({self.entry: name})
        options = (*self.place.options, f"--gpu-name={self.place.arch}")
        return Job(ptx.text, self.tool, options, keep_cubin, draw)

    def no_answer(self, template: str, outcome: Outcome) -> Cell:
        """Where ptxas rejects the module, whatever its name."""
        name = fill_in(template, self.entry)
        return Cell(self.place, template, name, neutral(name), outcome, outcome)

    def cell(self, template: str, outcomes: dict[str, Outcome]) -> Cell:
        """By one run of each name; a difference is not confirmed yet unless the records of .nv.capmerc prove it."""
        name = fill_in(template, self.entry)
        control = neutral(name)
        cell = Cell(self.place, template, name, control, outcomes[name], outcomes[control])
        records = _records(cell)
        if not cell.differences or records is None:
            return cell
        taken = (records[0] > 0, records[1] > 0)
        return replace(cell, other_scheduler=taken, confirmed=True if taken == (True, False) else None)


def _records(cell: Cell) -> tuple[int, int] | None:
    """Records of the other scheduler, for the name and for the control, where the images have such."""
    if cell.named.facts is None or cell.controlled.facts is None:
        return None
    a = cell.named.facts.kernel(cell.name).scheduler_records
    b = cell.controlled.facts.kernel(cell.control).scheduler_records
    return None if a is None or b is None else (a, b)


def benches(
    subjects: Iterable[Subject],
    tools: Sequence[Tool],
    archs: Sequence[str] = (),
    levels: Sequence[str] = (),
    newest: dict[str, str] | None = None,
) -> Iterator[Bench]:
    """Every place of the table. archs: instead of each subject's own. levels: -O levels, instead of the options' own.
    newest: by ptxas version, the newest PTX version that it reads; a module of a newer one is lowered to it."""
    for subject in subjects:
        for arch in archs or subject.archs:
            module = subject.ptx(arch)
            if module is None:
                continue
            for tool in tools:
                version = version_for(module.version, arch, (newest or {}).get(tool.version))
                fitting = retarget(module, arch, version)
                for options in _with_levels(subject.options, levels):
                    yield Bench(Place(subject.label, tool.version, arch, options), fitting, subject.entry, tool)


def _with_levels(options: tuple[str, ...], levels: Sequence[str]) -> Iterator[tuple[str, ...]]:
    if not levels:
        yield options
    plain = tuple(o for o in options if not re.fullmatch(r"-O\d|--opt-level=\d", o))
    yield from ((*plain, f"-O{level}") for level in levels)


_NEWEST = re.compile(r"current version is '(\d+\.\d+)'")


def newest_versions(tools: Sequence[Tool], run: Run) -> dict[str, str]:
    """The newest PTX version that each ptxas reads, by its own word."""
    asked = Ptx(".version 99.0\n.target sm_80\n.address_size 64\n")
    found = {}
    for job, outcome in run(Job(asked.text, tool, ("--gpu-name=sm_80",)) for tool in tools):
        if match := _NEWEST.search(outcome.message):
            found[job.ptxas.version] = match[1]
    return found


# --- the table -----------------------------------------------------------------------------------


def probe(
    places: Sequence[Bench],
    templates: Sequence[str],
    run: Run,
    nvdisasm: Tool | None = None,
    expect: Callable[[int], None] = lambda jobs: None,
    notes: ResultCache | None = None,
) -> Iterator[Cell]:
    """Judge every template at every place, in the order in which answers come.

    Differences come last: they are confirmed by further runs, and with `nvdisasm` it is asked of those that the
    image's records do not tell whether ptxas took its other scheduler. expect: told how many more jobs there will be,
    as soon as that is known. notes: where to keep what nvdisasm was asked.
    """
    expect(len(places))
    doubtful: dict[_Case, _Doubt] = {}
    answering: list[tuple[Bench, str, Outcome]] = []
    asked = ((bench, bench, [(names_at(bench, templates)[-1], 0)]) for bench in places)
    for bench, first in _gather(asked, run):  # one control: what the place rejects needs no names
        (((control, _), outcome),) = first.items()
        if outcome.kind in (Kind.REJECTED, Kind.UNSUPPORTED):
            yield from (bench.no_answer(template, outcome) for template in templates)
        else:
            answering.append((bench, control, outcome))
    expect(sum(len(names_at(bench, templates)) - 1 for bench, _, _ in answering))
    rest = ((item, item[0], [(n, 0) for n in names_at(item[0], templates) if n != item[1]]) for item in answering)
    for (bench, control, outcome), outcomes in _gather(rest, run):
        by_name = {control: outcome} | {name: outcome for (name, _), outcome in outcomes.items()}
        for template in templates:
            cell = bench.cell(template, by_name)
            if not cell.differences or (cell.confirmed and not _asks_nvdisasm(cell, nvdisasm)):
                yield cell
            else:
                doubtful.setdefault(_case(cell), _Doubt(bench, [])).cells.append(cell)
    _confirm([doubt for doubt in doubtful.values() if not doubt.first.confirmed], run, expect)
    if nvdisasm is not None:
        unknown = [d for d in doubtful.values() if d.first.confirmed and _asks_nvdisasm(d.first, nvdisasm)]
        _detect(unknown, nvdisasm, run, expect, notes)
    for doubt in doubtful.values():
        yield from doubt.cells


def names_at(bench: Bench, templates: Sequence[str]) -> tuple[str, ...]:
    """The names that the templates mean there, and their controls, each once."""
    names = [fill_in(template, bench.entry) for template in templates]
    return tuple(dict.fromkeys([*names, *map(neutral, names)]))


def _asks_nvdisasm(cell: Cell, nvdisasm: Tool | None) -> bool:
    assembled = cell.named.facts is not None and cell.controlled.facts is not None
    return nvdisasm is not None and assembled and _records(cell) is None


_Question = tuple[str, int]  # a name, and the number of the draw
K = TypeVar("K")


def _gather(
    asked: Iterable[tuple[K, Bench, Sequence[_Question]]], run: Run, keep_cubin: bool = False
) -> Iterator[tuple[K, dict[_Question, Outcome]]]:
    """Run names at places; each asker's outcomes as soon as all of them are there."""
    waiting: dict[int, tuple[K, int, dict[_Question, Outcome]]] = {}
    askers: dict[Job, list[tuple[int, _Question]]] = {}

    def jobs() -> Iterator[Job]:
        for number, (asker, bench, questions) in enumerate(asked):
            waiting[number] = (asker, len(questions), {})
            for name, draw in questions:
                job = bench.job(name, draw, keep_cubin)
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

_Case = tuple[Place, object, object, tuple[str, ...]]


@dataclass(slots=True)
class _Doubt:
    """Cells of one place that found the same two codes: what is found of the first holds for all."""

    bench: Bench
    cells: list[Cell]

    @property
    def first(self) -> Cell:
        return self.cells[0]

    def settle(self, **found: Any) -> None:
        self.cells = [replace(cell, **found) for cell in self.cells]


def _case(cell: Cell) -> _Case:
    named, control = _result(cell.named, cell.name)[:1], _result(cell.controlled, cell.control)[:1]
    return cell.place, named, control, cell.differences


def _result(outcome: Outcome, name: str) -> tuple[object, ...]:
    """What one draw gave: a form of the kernel, or a failure."""
    return ((outcome.kind, outcome.signal),) if outcome.facts is None else form(outcome.facts, name)


def _confirm(doubts: Sequence[_Doubt], run: Run, expect: Callable[[int], None]) -> None:
    """Draw the name, its control and a second control until the difference holds or fails."""
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
        asked = [(i, doubt.bench, [(name, draw) for name in seen[i] for draw in draws]) for i, doubt in open_.items()]
        expect(sum(len(questions) for _, _, questions in asked))
        for i, outcomes in _gather(asked, run):
            for (name, _), outcome in outcomes.items():
                seen[i][name].add(_result(outcome, name))
            holds = _holds(seen[i].values(), last=draws[-1] == MAX_RUNS)
            if holds is not None:
                open_.pop(i).settle(confirmed=holds, draws=draws[-1])


def _holds(seen: Iterable[set[object]], last: bool) -> bool | None:
    """Whether these results are the name's doing; None: more draws are needed.

    seen: of the name, its control and a second one. Not if the name and a control have a result in common, and not
    if the controls, which say nothing, have none.
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
    """Ask the diff whether ptxas took its other scheduler."""
    tools = Toolchain(nvdisasm, nvdisasm)  # nothing is assembled here

    def ask(doubt: _Doubt, outcomes: dict[_Question, Outcome]) -> None:
        names = (doubt.first.control, doubt.first.name)
        a, b = (Cubin.from_bytes(outcomes[name, 0].cubin or b"") for name in names)
        a_code, b_code = tools.disassemble(a, b)
        control, named = diff(a, b, a_code[names[0]], b_code[names[1]]).other_scheduler
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
    asked = [(doubt, doubt.bench, [(doubt.first.control, 0), (doubt.first.name, 0)]) for doubt in unknown]
    pool = ThreadPoolExecutor(max_workers=2)
    try:
        for done in [pool.submit(ask, doubt, outcomes) for doubt, outcomes in _gather(asked, run, keep_cubin=True)]:
            done.result()
    finally:
        pool.shutdown(cancel_futures=True)  # an interrupt does not wait for all of them


def code_diffs(
    cells: Iterable[Cell], places: Sequence[Bench], run: Run, nvdisasm: Tool
) -> Iterator[tuple[Cell, CubinDiff]]:
    """The machine code of cells that assembled on both sides, control against name, assembled once more. A cell whose
    code is not the cell's this time (ptxas is not always deterministic) is left out."""
    tools = Toolchain(nvdisasm, nvdisasm)  # nothing is assembled here
    at = {bench.place: bench for bench in places}
    asked = ((cell, at[cell.place], [(cell.control, 0), (cell.name, 0)]) for cell in cells)
    for cell, outcomes in _gather(asked, run, keep_cubin=True):
        a, b = (Cubin.from_bytes(outcomes[name, 0].cubin or b"") for name in (cell.control, cell.name))
        a_code, b_code = tools.disassemble(a, b)
        if _result(cell.named, cell.name) == _result(outcomes[cell.name, 0], cell.name):
            yield cell, diff(a, b, a_code[cell.control], b_code[cell.name])


DETECTOR_FORMAT = 2  # grows when the diff's detector decides otherwise


def _detector_key(cell: Cell, nvdisasm: Tool) -> str:
    codes = [str(_result(o, name)[0]) for o, name in ((cell.named, cell.name), (cell.controlled, cell.control))]
    parts = ["detector", str(DETECTOR_FORMAT), nvdisasm.version, cell.place.arch, *codes]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()
