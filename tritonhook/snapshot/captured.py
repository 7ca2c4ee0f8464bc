"""Captured kernels with their facts: figures and stages from their files, each read once, instructions from nvdisasm,
and spills from one more run of ptxas if no file has them. And the choice of a folder's kernels that count.

Also assembling kernels again, with the same ptxas or another one: locked ones to check them, captured ones to lock all
codes that ptxas gives them. ptxas is not deterministic for some kernels: if a kernel's code is not a locked one, it is
assembled again with ptxas's memory at other addresses, until a locked code appears or `STEADY_RUNS` runs have given
none. If PTX and ptxas both changed, each is assembled with the other's old one: the four builds show which of them
changed a kernel, or whether only both together did.
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, islice
from pathlib import Path

from tritonhook.capture.model import Capture, Stage, dry_run_note
from tritonhook.capture.store import CaptureFolder
from tritonhook.capture.store.schema import REPAIR
from tritonhook.cubin.image import Cubin
from tritonhook.cubin.line_info import Lines, read_lines
from tritonhook.cubin.sass import Sass
from tritonhook.errors import CaptureError, CubinError, PtxError, SnapshotError, ToolError, TritonHookError, listed
from tritonhook.ptx.module import Ptx, lowered_for
from tritonhook.ptx.normal_form import without_positions
from tritonhook.ptxas.pool import Job, ResultCache, Run, sweep, usable_processors
from tritonhook.ptxas.result_cache import Outcome
from tritonhook.ptxas.threads import tool_threads
from tritonhook.ptxas.tool import Tool, find_ptxas
from tritonhook.ptxas.toolchain import BATCH, MAX_RUNS, STEADY_RUNS, assemble, may_draw, reading_toolchain
from tritonhook.snapshot.changes import Change, Crossed, commands_of, not_judged, renumbered
from tritonhook.snapshot.facts import (
    Disassemble,
    Identity,
    KernelFacts,
    numbered,
    stage_hashes,
    with_code,
    with_image,
    without_stages,
)
from tritonhook.snapshot.lockfile import kept_ptx

Kernels = list[tuple[Capture, KernelFacts]]
_SPILLS = ("spill_stores", "spill_loads")


def disassembler() -> Disassemble:
    """Return a function that disassembles kernels. Raises ToolError if there is no nvdisasm."""
    toolchain = reading_toolchain()

    def disassemble(kernels: Sequence[tuple[Cubin, str]]) -> Sequence[Sass]:
        return toolchain.disassemble_many(kernels, usable_processors())

    return disassemble


@dataclass(frozen=True, slots=True)
class ReadFolder:
    """The kernels of a capture folder that count, each with its facts, sorted by identity; losers of an autotuning
    are left out. notes: from the processes that wrote the folder."""

    kernels: Kernels
    notes: tuple[str, ...]


def read_folders(*folders: CaptureFolder) -> list[ReadFolder]:
    """Read capture folders at the same time. Raises CaptureError, CubinError or ToolError."""
    captures = list(map(_counting, folders))
    together = list(chain.from_iterable(own.items() for own in captures))
    read = facts_of([capture for _, capture in together], [place for place, _ in together])
    facts = map(_of_runs, read, ((folder, record) for folder in folders for record in folder.running))
    kernels = [numbered(list(zip(own.values(), islice(facts, len(own)), strict=True))) for own in captures]
    notes = [(*dry_run_note(own.values()), *folder.notes) for own, folder in zip(captures, folders, strict=True)]
    return [ReadFolder(own, noted) for own, noted in zip(kernels, notes, strict=True)]


def _of_runs(facts: KernelFacts, where: tuple[CaptureFolder, str]) -> KernelFacts:
    """Add what the index has of the record: times, the autotuner's configuration, commands."""
    folder, record = where
    tried = (own.by_record[record] for own in folder.configurations if record in own.by_record)
    return replace(
        facts,
        compile_us=sum(folder.compile_us(record).values()) or None,
        configuration=next(tried, None),
        commands=tuple(sorted({seen.run.name for seen in folder.seen(record) if seen.run and seen.run.name})),
        place=f"{folder.path}/kernels/{record}",
    )


def _counting(folder: CaptureFolder) -> dict[str, Capture]:
    """Return the running kernels of a folder by their path, for messages."""
    return {f"{folder.path}/kernels/{record}": folder.capture(record) for record in folder.running}


def facts_of(captures: Sequence[Capture], places: Sequence[str] | None = None) -> list[KernelFacts]:
    """Read the facts of captures. places: path of each, for messages. Raises CaptureError or CubinError if one is
    damaged; ToolError without nvdisasm."""
    disassemble = disassembler()
    kernels: list[KernelFacts] = []
    disassembled = []
    with tool_threads(usable_processors()) as background:
        for start in range(0, len(captures), BATCH):
            images: dict[int, tuple[Cubin, str]] = {}
            for n, capture in enumerate(captures[start : start + BATCH], start):
                image, facts = _read(capture, capture.kernel if places is None else places[n])
                kernels.append(facts)
                if image is not None:
                    images[n] = image, capture.kernel
            disassembled.append((images, background.submit(disassemble, list(images.values()))))
        kernels = _with_spills(captures, kernels)
        for images, future in disassembled:
            for (n, (cubin, kernel)), sass in zip(images.items(), future.result(), strict=True):
                kernels[n] = with_code([kernels[n]], cubin, kernel, sass)[0]
    return kernels


def _read(capture: Capture, place: str) -> tuple[Cubin | None, KernelFacts]:
    """Read the image of a capture, and its facts without instructions. Each file is read once."""
    whole = replace(capture, artifacts=dict(capture.artifacts))
    image = _image(whole, place) if Stage.CUBIN in whole.artifacts else None
    return image, replace(without_stages(whole), stages=stage_hashes(whole))


def _image(capture: Capture, place: str) -> Cubin:
    """Read the image of a capture. Raises CaptureError if the image or the PTX is damaged."""
    text = capture.text(Stage.PTX)
    try:
        if text is not None and capture.kernel not in Ptx(text).entries:
            raise CubinError("its PTX has another kernel, or is not whole")
        image = Cubin.from_bytes(capture.cubin)
        image.only_kernel(capture.kernel)
    except (CubinError, PtxError) as error:
        raise CaptureError(f"{place}: damaged: {error}; {REPAIR}") from None
    return image


def _with_spills(captures: Sequence[Capture], unsettled: Sequence[KernelFacts]) -> list[KernelFacts]:
    """Add the spills that neither cubin nor PTX contain: from one more run of the kernel's ptxas, if it is installed
    and gives the same code."""
    unknown = [n for n, facts in enumerate(unsettled) if facts.codes and None in map(facts.figures.get, _SPILLS)]
    tasks = {n: task for n in unknown if (task := task_of(captures[n], unsettled[n])) is not None}
    kernels = list(unsettled)
    for number, (made,) in zip(tasks, all_drawn(list(tasks.values()), sweep, runs=1), strict=True):
        facts = kernels[number]
        if made.codes == facts.codes:
            spills = {name: made.figures.get(name) for name in _SPILLS}
            kernels[number] = replace(facts, figures={**facts.figures, **spills}, ran_again=True)
    return kernels


# --- assembling kernels again ---------------------------------------------------------------------


_TIMED_RUNS = 3
_OF_IMAGE = ("codes", "figures", "classes", "loaded")  # the fields that with_image sets
_Input = tuple[str, Tool, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Task:
    """A locked kernel, its PTX, and the ptxas and options to assemble it with. A ptxas too old for the PTX's
    `.version` gets it lowered to the newest version that it reads."""

    locked: KernelFacts
    ptx: str
    ptxas: Tool
    options: tuple[str, ...]

    @property
    def input(self) -> _Input:
        """The input of ptxas. Tasks with equal inputs share one run."""
        return self.ptx, self.ptxas, self.options

    def job(self, draw: int) -> Job:
        # -v prints the spills. The code does not depend on it.
        options = self.options if "-v" in self.options else (*self.options, "-v")
        return Job(lowered_for(Ptx(self.ptx), self.ptxas.version).text, self.ptxas, options, keep_cubin=True, draw=draw)


def recheck(tasks: Sequence[Task], run: Run, disassemble: Disassemble) -> list[KernelFacts]:
    """Assemble each task's kernel and return its facts. Instructions are counted only if the code is new."""
    results = _assembled(tasks, run, draw=0)
    # By input and entry: the tasks, by a code that they may get.
    moved: dict[tuple[_Input, str], dict[str, list[int]]] = {}
    for n, task in enumerate(tasks):
        if _may_be_a_draw(task, results[n]):
            drawn = task.input, task.locked.entry
            for code in task.locked.codes:
                moved.setdefault(drawn, {}).setdefault(code, []).append(n)
    one_of = {drawn: tasks[next(iter(waiting.values()))[0]] for drawn, waiting in moved.items()}
    for draw in range(1, STEADY_RUNS + 1):
        outcomes = _outcomes(list(one_of.values()), run, draw)
        for drawn, task in one_of.items():
            for code in _facts(task, outcomes[task.input])[0].codes:
                for n in moved[drawn].pop(code, ()):
                    if _may_be_a_draw(tasks[n], results[n]):  # else an earlier run gave another code of its lock
                        results[n] = _facts(tasks[n], outcomes[task.input])
        one_of = {drawn: task for drawn, task in one_of.items() if moved[drawn]}
    return _counted(tasks, results, disassemble)


def all_drawn(
    tasks: Sequence[Task], run: Run, disassemble: Disassemble | None = None, runs: int = STEADY_RUNS + 1
) -> list[tuple[KernelFacts, ...]]:
    """Assemble each task's kernel several times; return its facts once for each code. disassemble: None leaves
    instructions uncounted."""
    seen: list[dict[tuple[str, ...], tuple[KernelFacts, bytes | None]]] = [{} for _ in tasks]
    for draw in range(runs):
        for codes, (facts, cubin) in zip(seen, _assembled(tasks, run, draw), strict=True):
            codes.setdefault(facts.codes, (facts, cubin))
    both = [(task, made) for task, codes in zip(tasks, seen, strict=True) for made in codes.values()]
    drawn = [made for _, made in both]
    tasks_of = [task for task, _ in both]
    counted = [made[0] for made in drawn] if disassemble is None else _counted(tasks_of, drawn, disassemble)
    following = iter(counted)
    return [tuple(islice(following, len(codes))) for codes in seen]


def codes_of(tasks: Sequence[Task], run: Run, runs: int = STEADY_RUNS + 1) -> list[tuple[str, ...]]:
    """Return all codes that ptxas gives each task's kernel in several runs."""
    drawn = all_drawn(tasks, run, runs=runs)
    return [tuple(sorted({code for facts in draws for code in facts.codes})) for draws in drawn]


def timed(tasks: Sequence[Task]) -> list[tuple[int, int] | None]:
    """Time ptxas for each task, in microseconds: the lock's ptxas, then the task's, alternately in this process, the
    fastest of three runs each. None if the lock's ptxas is not installed."""
    return [_timed(task) for task in tasks]


def _timed(task: Task) -> tuple[int, int] | None:
    try:
        tools = find_ptxas(task.locked.ptxas), task.ptxas
    except ToolError:
        return None
    options = task.locked.options or task.options, task.options
    seconds: tuple[list[int], list[int]] = [], []
    for _ in range(_TIMED_RUNS):
        for tool, arguments, times in zip(tools, options, seconds, strict=True):
            ptx = lowered_for(Ptx(task.ptx), tool.version)
            began = time.perf_counter_ns()
            assemble(tool, ptx, arguments)
            times.append((time.perf_counter_ns() - began) // 1000)
    return min(seconds[0]), min(seconds[1])


def _may_be_a_draw(task: Task, result: tuple[KernelFacts, bytes | None]) -> bool:
    facts, locked = result[0], task.locked
    same_tool = (facts.ptxas, facts.options) == (locked.ptxas, locked.options)
    return same_tool and not facts.failure and not set(facts.codes) & set(locked.codes)


def _assembled(tasks: Sequence[Task], run: Run, draw: int) -> list[tuple[KernelFacts, bytes | None]]:
    """Run ptxas once for each input. Return each task's facts, without instructions, and its cubin."""
    outcomes = _outcomes(tasks, run, draw)
    known: dict[tuple[_Input, str, int], KernelFacts] = {}  # equal images are read once
    return [_facts(task, outcomes[task.input], known) for task in tasks]


def _outcomes(tasks: Sequence[Task], run: Run, draw: int) -> Mapping[_Input, Outcome]:
    jobs = {given: task.job(draw) for given, task in {task.input: task for task in tasks}.items()}
    outcomes: Mapping[str, Outcome] = {job.key: outcome for job, outcome in run(jobs.values())}
    return {given: outcomes[job.key] for given, job in jobs.items()}


def _facts(
    task: Task, outcome: Outcome, known: dict[tuple[_Input, str, int], KernelFacts] | None = None
) -> tuple[KernelFacts, bytes | None]:
    """Return a task's facts and cubin for one outcome of ptxas. known: facts of other kernels, by the input that
    decides their code and figures."""
    key = task.input, task.locked.entry, task.locked.dynamic_shared
    if known and (like := known.get(key)) is not None:
        of_image = {name: getattr(like, name) for name in _OF_IMAGE}
        return replace(task.locked, ptxas=like.ptxas, options=like.options, **of_image), outcome.cubin
    now = replace(task.locked, ptxas=task.ptxas.version, options=task.options, codes=())
    if outcome.image is None:
        reason = f"ptxas {task.ptxas.version}: {outcome.kind.value}"
        return replace(now, figures={}, failure=f"{reason}: {outcome.message}" if outcome.message else reason), None
    made = with_image(now, outcome.image, outcome.cubin, task.locked.entry, task.ptx)
    if known is not None:
        known[key] = made
    return made, outcome.cubin


def _counted(
    tasks: Sequence[Task], results: Sequence[tuple[KernelFacts, bytes | None]], disassemble: Disassemble
) -> list[KernelFacts]:
    """Count the instructions: copied from the lock if the code is the same, else counted in the cubin."""
    counted = [facts for facts, _ in results]
    moved: dict[tuple[bytes, str], list[int]] = {}  # equal cubins are read once
    for n, (task, (facts, cubin)) in enumerate(zip(tasks, results, strict=True)):
        locked = task.locked
        if set(facts.codes) & set(locked.codes):
            known = {name: locked.figures.get(name) for name in ("instructions", "loop_instructions")}
            counted[n] = replace(facts, figures={**facts.figures, **known}, classes=locked.classes)
        elif cubin is not None:
            moved.setdefault((cubin, locked.entry), []).append(n)
    images = [(Cubin.from_bytes(cubin, kernel), kernel) for cubin, kernel in moved]
    for numbers, (image, kernel), sass in zip(moved.values(), images, disassemble(images), strict=True):
        for n, each in zip(numbers, with_code([counted[n] for n in numbers], image, kernel, sass), strict=True):
            counted[n] = each
    return counted


# --- captured kernels, ready for a lock -----------------------------------------------------------


def task_of(capture: Capture, facts: KernelFacts) -> Task | None:
    """Make the task that assembles a captured kernel again; None without its PTX, options or ptxas."""
    text = capture.text(Stage.PTX)
    if text is None or facts.ptxas is None or facts.options is None:
        return None
    try:
        return Task(facts, text, find_ptxas(facts.ptxas), facts.options)
    except ToolError:
        return None


def lockable(
    captured: Sequence[tuple[Capture, KernelFacts]], known: Sequence[KernelFacts] = ()
) -> list[tuple[KernelFacts, str | None]]:
    """Prepare captured kernels with their PTX for a lock.

    known: kernels with their codes. A kernel with one of these codes is not assembled again. If a code is not known,
    and ptxas does not make it from the PTX in many runs either, it stays the kernel's only code: it is not random.
    """
    facts = _with_all_codes(captured, {k.identity: frozenset(k.codes) for k in known})
    texts = [capture.text(Stage.PTX) for capture, _ in captured]
    return [(k, None if text is None else without_positions(text)) for k, text in zip(facts, texts, strict=True)]


def _with_all_codes(
    captured: Sequence[tuple[Capture, KernelFacts]], known: Mapping[Identity, frozenset[str]]
) -> list[KernelFacts]:
    """Add further codes of kernels for which ptxas is not deterministic, if that ptxas is installed."""
    tasks: dict[int, Task] = {}
    for number, (capture, facts) in enumerate(captured):
        drawing = may_draw(facts.identity.arch) and not known.get(facts.identity, frozenset()) & set(facts.codes)
        if drawing and (task := task_of(capture, facts)) is not None:
            tasks[number] = task
    new = {n: task for n, task in tasks.items() if captured[n][1].identity not in known}
    drawn = _drawn(new, STEADY_RUNS + 1)
    for number, codes in _drawn({n: task for n, task in tasks.items() if n not in new}, MAX_RUNS).items():
        if codes & set(captured[number][1].codes):
            drawn[number] = codes
    return [
        replace(facts, codes=tuple(sorted({*facts.codes, *drawn.get(number, ())})))
        for number, (_, facts) in enumerate(captured)
    ]


def _drawn(tasks: Mapping[int, Task], runs: int) -> dict[int, set[str]]:
    """Return the codes that ptxas gives each task's kernel in `runs` runs."""
    return dict(zip(tasks, map(set, codes_of(list(tasks.values()), sweep, runs)), strict=True))


def settled(
    path: Path, old: Sequence[KernelFacts], now: Sequence[tuple[KernelFacts, str | None]]
) -> list[tuple[KernelFacts, str | None]]:
    """Merge kernels into the lock at `path`. An unchanged kernel keeps its block and its PTX, even if the text of
    its PTX differs, for instance in the build number of a compiler. A changed one keeps the commands that did not run
    now. Kernels whose commands did not run stay."""
    before = {locked.identity: locked for locked in old}
    facts = renumbered(old, [new for new, _ in now])
    ran = commands_of(facts)
    results: list[tuple[KernelFacts, str | None]] = []
    for kernel, (_, ptx) in zip(facts, now, strict=True):
        earlier = before.get(kernel.identity)
        if earlier is not None:
            kernel = replace(kernel, commands=tuple(sorted({*kernel.commands, *({*earlier.commands} - ran)})))
        new = kernel, ptx
        if earlier is not None and _is_settled(earlier, kernel):
            with contextlib.suppress(SnapshotError):  # if the kept PTX is damaged, the new one replaces it
                new = earlier, kept_ptx(path, earlier)
        results.append(new)
    stay = not_judged(old, facts)
    return results + [(it, None if it.ptx_sha256 is None else kept_ptx(path, it)) for it in old if it.identity in stay]


def _is_settled(old: KernelFacts, new: KernelFacts) -> bool:
    names = ("stages", "ptxas", "options", "figures", "launch_bounds", "loaded", "configuration", "commands", "launch")
    same = all(getattr(old, name) == getattr(new, name) for name in names)
    return same and old.ptx_sha256 is not None and set(new.codes) <= set(old.codes)


# --- effects of PTX and of ptxas ------------------------------------------------------------------


MOST = 100  # kernels: each takes two runs of ptxas
Text = Callable[[KernelFacts], "str | None"]  # returns the PTX of a kernel


def crossed(changes: Sequence[Change], text: Text, run: Run | None = None) -> tuple[list[Change], list[str]]:
    """Add the crossed builds to the changes that have two steps, at most MOST; also return notes on those without
    crossed builds. run: runs ptxas (default: here, with cached results)."""
    if not any(change.has_two_steps for change in changes):
        return list(changes), []
    tasks: dict[int, tuple[Task, Task]] = {}
    why: dict[str, list[str]] = {}
    for number, change in enumerate(changes):
        if change.has_two_steps and len(tasks) < MOST:
            try:
                tasks[number] = _tasks(change, text)
            except TritonHookError as error:
                why.setdefault(str(error), []).append(change.identity.kernel)
    both = [task for pair in tasks.values() for task in pair]
    made = iter(all_drawn(both, run or partial(sweep, cache=ResultCache()), disassembler(), runs=1))
    told = list(changes)
    for number in tasks:
        (new_ptx,), (new_ptxas,) = next(made), next(made)
        told[number] = replace(changes[number], crossed=Crossed(new_ptx, new_ptxas))
    whose = {reason: listed(dict.fromkeys(names)) for reason, names in why.items()}
    notes = [f"not known whether the PTX or ptxas changed {names}: {reason}" for reason, names in whose.items()]
    if (left := sum(change.has_two_steps for change in changes) - len(tasks) - sum(map(len, why.values()))) > 0:
        notes.append(f"PTX or ptxas: found out for the worst {MOST} kernels only, not for {left:,} more")
    return told, notes


def _tasks(change: Change, text: Text) -> tuple[Task, Task]:
    """Return two tasks: new PTX with the old ptxas, and old PTX with the new one. Raises a TritonHookError if one is
    missing."""
    old, new = change.old, change.new
    assert old is not None and new is not None
    return _task(new, text, old), _task(old, text, new)


def _task(kernel: KernelFacts, text: Text, assembler: KernelFacts) -> Task:
    ptx = text(kernel)
    if ptx is None or assembler.ptxas is None:
        raise TritonHookError("its PTX was not kept" if ptx is None else "its ptxas version is not known")
    try:
        tool = find_ptxas(assembler.ptxas)
    except ToolError:
        remedy = f"`tritonhook ptxas add {assembler.ptxas}` fetches it"
        raise ToolError(f"ptxas {assembler.ptxas} is not installed; {remedy}") from None
    return Task(kernel, ptx, tool, assembler.options or ())


# --- where a kernel spills ------------------------------------------------------------------------


_SPILL_OPCODES = ("STL", "LDL")  # stores to and loads from local memory, for values that do not fit into registers


@dataclass(frozen=True, slots=True, order=True)
class SourceLine:
    """A source line. file: its path, as the compiler wrote it. line: from 1."""

    file: str
    line: int


def spill_lines(captures: Sequence[Capture], wanted: Callable[[str], bool]) -> list[SourceLine | None]:
    """Find the source line with most spills, for each kernel; None if no line is known. wanted: selects the files whose
    lines count: an instruction of a library's function belongs to the library's file."""
    kernels = [(Cubin.from_bytes(capture.cubin), capture.kernel) for capture in captures]
    codes = disassembler()(kernels) if kernels else ()
    return [_line(read_lines(*kernel), sass, wanted) for kernel, sass in zip(kernels, codes, strict=True)]


def _line(lines: Lines, sass: Sass, wanted: Callable[[str], bool]) -> SourceLine | None:
    """Return the line with most spill instructions; if the kernel has none, its first line."""
    known: list[tuple[int, SourceLine]] = []
    for index, source in enumerate(lines.source):
        if source is not None and source[1] and wanted(lines.files[source[0]]):
            known.append((index, SourceLine(lines.files[source[0]], source[1])))
    codes = sass.instructions
    spilling = [at for index, at in known if codes[index].opcode.partition(".")[0] in _SPILL_OPCODES]
    if spilling:
        times = Counter(spilling)
        return min(times, key=lambda at: (-times[at], at))
    return min((at for _, at in known), default=None)
