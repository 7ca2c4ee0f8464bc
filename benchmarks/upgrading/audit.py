"""Kernels under every ptxas: what is assembled, how it is judged against the reference, what would help."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from tritonhook._util.versions import version_key
from tritonhook.capture.model import Capture, Stage
from tritonhook.capture.policy.levers import lever
from tritonhook.capture.store import CaptureFolder
from tritonhook.cubin.image import Cubin
from tritonhook.ptx.miscompiles import places
from tritonhook.ptx.miscompiles.record import PtxasVerdict
from tritonhook.ptx.module import Ptx, lowered_for
from tritonhook.ptxas.command_line import level_of
from tritonhook.ptxas.pool import Job, Run
from tritonhook.ptxas.result_cache import Outcome
from tritonhook.ptxas.tool import Tool, find_ptxas
from tritonhook.snapshot.changes import Change, ChangeStatus, blocks_of, compare
from tritonhook.snapshot.crossed import crossed
from tritonhook.snapshot.facts import Identity, KernelFacts, numbered, stage_hashes, with_image, without_stages

SAME, CHANGED, WORSE, BETTER, FAILED = "same", "changed", "worse", "better", "failed"
_FIGURES = ("registers", "spill_stores", "spill_loads", "stack", "shared")
_REMEDIES = ("maxnreg={registers}", "regalloc=2", "O1")
Expect = Callable[[int], None]


@dataclass(frozen=True)
class Kernel:
    """A captured kernel of a library. facts: with the figures of its own cubin; instructions are not counted."""

    library: str
    capture: Capture
    facts: KernelFacts

    @property
    def arch(self) -> str:
        return self.capture.arch

    @property
    def triton(self) -> str:
        return str(self.capture.metadata.get("triton_version", "not known"))

    @cached_property
    def ptx(self) -> Ptx:
        return Ptx(str(self.capture.text(Stage.PTX)))

    @property
    def options(self) -> tuple[str, ...]:
        """Of its ptxas, with -v, which prints the spills."""
        own = tuple(self.capture.assembler.options or ())
        return own if "-v" in own else (*own, "-v")

    def job(self, tool: Tool, ptx: Ptx | None = None, further: Sequence[str] = ()) -> Job:
        text = lowered_for(ptx or self.ptx, tool.version).text
        return Job(text, tool, (*self.options, *further))

    def under(self, tool_version: str, outcome: Outcome) -> KernelFacts:
        """Its facts as a ptxas made it."""
        now = replace(self.facts, ptxas=tool_version, codes=())
        if outcome.image is None:
            return replace(now, figures={}, failure=outcome.message or outcome.kind.value)
        return with_image(now, outcome.image, None, self.capture.kernel, self.ptx.text)

    def code_bytes(self, outcome: Outcome) -> int:
        return 0 if outcome.image is None else outcome.image.kernel(self.capture.kernel).code_bytes


@dataclass(frozen=True)
class Assembled:
    """A kernel, and how each ptxas ended. reference: the version that its Triton brought."""

    kernel: Kernel
    reference: str
    outcomes: Mapping[str, Outcome]

    @cached_property
    def own(self) -> KernelFacts:
        return self.kernel.under(self.reference, self.outcomes[self.reference])


def read(folder: Path) -> list[Kernel]:
    """The kernels of a capture folder that have PTX and a ptxas, each once."""
    opened = CaptureFolder.open(folder).latest()
    captures = [opened.capture(record) for record in opened.running]
    facts = [(one, _facts(one)) for one in captures if one.text(Stage.PTX) and one.assembler.version]
    return [Kernel(folder.name, capture, own) for capture, own in numbered(facts)]


def _facts(capture: Capture) -> KernelFacts:
    threads = Cubin.from_bytes(capture.cubin).resources[capture.kernel].threads
    return replace(without_stages(capture), stages=stage_hashes(capture), threads=threads)


def assembled(kernels: Sequence[Kernel], tools: Sequence[Tool], run: Run, expect: Expect) -> list[Assembled]:
    """Every kernel of the oldest Triton under every ptxas, and every kernel under its own."""
    oldest = min((kernel.triton for kernel in kernels), key=version_key)
    by_version = {tool.version: tool for tool in tools}
    references = {str(kernel.capture.assembler.version) for kernel in kernels}
    own = {it: by_version.get(it) or find_ptxas(it) for it in references}
    jobs: dict[tuple[int, str], str] = {}

    def all_jobs() -> Any:
        for tool in {**own, **by_version}.values():  # ptxas by ptxas: what is stopped has whole columns
            for number, kernel in enumerate(kernels):
                is_tried = tool.version in by_version and kernel.triton == oldest
                if is_tried or tool.version == kernel.capture.assembler.version:
                    job = kernel.job(tool)
                    jobs[number, tool.version] = job.key
                    yield job

    expect(sum(len(by_version) if kernel.triton == oldest else 1 for kernel in kernels))
    outcomes = {job.key: outcome for job, outcome in run(all_jobs())}
    found: list[dict[str, Outcome]] = [{} for _ in kernels]
    for (number, version), key in jobs.items():
        found[number][version] = outcomes[key]
    pairs = zip(kernels, found, strict=True)
    return [Assembled(kernel, str(kernel.capture.assembler.version), by) for kernel, by in pairs]


def verdict(old: KernelFacts, new: KernelFacts) -> str:
    """What became of a kernel."""
    change = Change(old, new)
    if new.failure:
        return FAILED
    if change.worse:
        return WORSE
    if Change(new, old).worse:
        return BETTER
    return SAME if change.status is ChangeStatus.SAME else CHANGED


def rows_of(found: Sequence[Assembled], versions: Sequence[str], run: Run, expect: Expect) -> list[dict[str, Any]]:
    """A row for each kernel: a cell for each ptxas, known bugs that it meets, and what helps under the newest."""
    helped = remedies([one for one in found if _is_worse(one, versions[-1])], versions[-1], run, expect)
    rows = []
    for one in found:
        kernel = one.kernel
        row = {
            **_names(kernel),
            "own": one.reference,
            "figures": {} if one.own.failure else _figures(one.own),
            "by": {version: _cell(one, version) for version in sorted(one.outcomes, key=version_key)},
        }
        if bugs := known_bugs(kernel, versions):
            row["bugs"] = bugs
        if tried := helped.get(id(one)):
            row["remedies"] = tried
        rows.append(row)
    return rows


def _names(kernel: Kernel) -> dict[str, str]:
    identity = kernel.facts.identity
    names = {"kernel": identity.kernel, "library": kernel.library, "arch": kernel.arch, "triton": kernel.triton}
    return names | {"constants": _constants(identity)}


def _constants(identity: Identity) -> str:
    """The constexprs that say something, and the warps."""
    said = re.compile(r"(?!num_ctas|num_stages|stride_)\w+=(?!False|None)")
    return " ".join(part for part in identity.specialisation if said.match(part))


def _is_worse(one: Assembled, version: str) -> bool:
    return version in one.outcomes and verdict(one.own, one.kernel.under(version, one.outcomes[version])) == WORSE


def _cell(one: Assembled, version: str) -> list[Any]:
    """A verdict, bytes of code, milliseconds of ptxas, figures that are not the reference's; or why it failed."""
    outcome = one.outcomes[version]
    new = one.kernel.under(version, outcome)
    said = verdict(one.own, new)
    if said == FAILED:
        return [said, new.failure[:200]]
    before = _figures(one.own)
    other = {name: value for name, value in _figures(new).items() if value != before[name]}
    code = one.kernel.code_bytes(outcome)
    return [said, code, round(1000 * outcome.cpu_s, 1), *([other] if other else [])]


def _figures(facts: KernelFacts) -> dict[str, int | None]:
    return {name: facts.figures[name] for name in _FIGURES} | {"blocks": blocks_of(facts)}


def known_bugs(kernel: Kernel, versions: Sequence[str]) -> dict[str, list[str]]:
    """By known miscompilation that its PTX meets: the versions that are wrong."""
    found: dict[str, list[str]] = {}
    level = level_of(kernel.capture.assembler.options)
    for bug in {place.bug.name: place.bug for place in places(kernel.ptx)}.values():
        wrong = [it for it in versions if bug.verdict(it, kernel.arch, level) is PtxasVerdict.WRONG]
        if wrong:
            found[bug.name] = wrong
    return found


def remedies(worse: Sequence[Assembled], newest: str, run: Run, expect: Expect) -> dict[int, dict[str, list[Any]]]:
    """What levers do to kernels that got worse: by the object's id, the lever, a verdict and figures."""
    tool = find_ptxas(newest)
    tried: list[tuple[Assembled, str, Job]] = []
    for one in worse:
        for form in _REMEDIES:
            found = lever(form.format(registers=min(255, max(16, one.own.figures["registers"] or 255))))
            rewritten = found.rewrites.apply(one.kernel.ptx)
            options = [part.option for part in found.parts if part.option]
            tried.append((one, found.text, one.kernel.job(tool, rewritten, options)))
    expect(len(tried))
    outcomes = {job.key: outcome for job, outcome in run(job for _, _, job in tried)}
    results: dict[int, dict[str, list[Any]]] = {}
    for one, text, job in tried:
        new = one.kernel.under(newest, outcomes[job.key])
        results.setdefault(id(one), {})[text] = [verdict(one.own, new), {} if new.failure else _figures(new)]
    return results


def compared(found: Sequence[Assembled], run: Run) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Kernels of one library and target from several versions of Triton, each against the oldest: counts, and a row for
    each kernel that got worse or better."""
    groups: dict[tuple[str, str], dict[str, list[KernelFacts]]] = {}
    texts: dict[str | None, str] = {}
    for one in found:
        own = replace(one.own, stages=one.kernel.facts.stages)
        groups.setdefault((one.kernel.library, one.kernel.arch), {}).setdefault(one.kernel.triton, []).append(own)
        texts[own.ptx_sha256] = one.kernel.ptx.text
    counts, rows = [], []
    for (library, arch), by_triton in sorted(groups.items()):
        oldest, *newer = sorted(by_triton, key=version_key)
        for triton in newer:
            upgrade = {"library": library, "arch": arch, "from": oldest, "to": triton}
            changes = [(_judged(change), change) for change in compare(by_triton[oldest], by_triton[triton])]
            counts.append(upgrade | Counter(said for said, _ in changes))
            told = [change for said, change in changes if said in (WORSE, BETTER)]
            rows += [upgrade | _upgrade(change) for change in crossed(told, lambda it: texts[it.ptx_sha256], run)[0]]
    return counts, rows


def _judged(change: Change) -> str:
    if change.old is None or change.new is None:
        return change.status.value
    return verdict(change.old, change.new)


def _upgrade(change: Change) -> dict[str, Any]:
    figures = {name: list(pair) for name, pair in change.deltas.items()}
    names = {"kernel": change.identity.kernel, "constants": _constants(change.identity)}
    return names | {"verdict": _judged(change), "by": change.blame, "figures": figures}
