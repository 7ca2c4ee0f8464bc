"""Verify one kernel: run its builds on the same buffers, judge, and look closer where they differ."""

from __future__ import annotations

import functools
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from operator import or_
from pathlib import Path
from typing import NamedTuple

from tritonhook.capture.launches.record import Launch, buffers_of
from tritonhook.errors import PtxError, TritonHookError
from tritonhook.ptx.dataflow import names_of, places_of, settle
from tritonhook.ptx.module import Ptx
from tritonhook.ptx.statements import Statement, statements
from tritonhook.ptxas.command_line import level_of
from tritonhook.ptxas.toolchain import reading_toolchain
from tritonhook.verify.builds import Built, NotBuilt
from tritonhook.verify.judgement import Judgement, judge
from tritonhook.verify.latitude import Latitude
from tritonhook.verify.model import INPUTS, NORMAL, RECORDED, Build, Failure, FailureKind, Order, Ran, Runner, Verdict
from tritonhook.verify.region import Region, parting

RUNS = 3
_AGAIN = 8  # runs of the two builds that differ, to see whether one of them differs from itself


@dataclass(frozen=True, slots=True)
class Case:
    """One kernel with one launch. ptx: None for cubins, whose contents are then all taken to steer.

    folder: where the files of the launch's recorded contents are.
    """

    kernel: str
    launch: Launch
    latitude: Latitude
    keep: tuple[int, ...]
    folder: Path | None = None


@dataclass(frozen=True, slots=True)
class Verified:
    """What was found about one kernel.

    builds: those that ran, the reference first. groups: labels of builds that stored the same on the input of the worst
    finding. region: the machine code where a DIFFERENT build parts from its nearest neighbour. notes: what was not run.
    seconds: of the whole, without assembling.
    """

    kernel: str
    launch: str
    judgement: Judgement
    builds: tuple[Build, ...] = ()
    same_code: tuple[tuple[str, str], ...] = ()
    failed: tuple[NotBuilt, ...] = ()
    ran: tuple[Ran, ...] = ()
    groups: tuple[tuple[str, ...], ...] = ()
    region: Region | None = None
    notes: tuple[str, ...] = ()
    seconds: float = 0.0

    @property
    def verdict(self) -> Verdict:
        return self.judgement.verdict


def case_of(kernel: str, launch: Launch, folder: Path | None, ptx: Ptx | None, latitude: Latitude) -> Case:
    """A case, with the buffers whose contents no input may change: those that steer the kernel."""
    return Case(kernel, launch, latitude, steering_buffers(kernel, launch, ptx), folder)


def steering_buffers(kernel: str, launch: Launch, ptx: Ptx | None) -> tuple[int, ...]:
    """The buffers of a launch whose contents steer the kernel; all that an argument points into where the PTX does not
    say."""
    numbers: Iterable[int] = range(len(launch.parameters))
    if ptx is not None:
        with suppress(PtxError):
            numbers = steering_parameters(ptx, kernel)
    pointed = (launch.parameters[number] for number in numbers if number < len(launch.parameters))
    return tuple(sorted({buffer for parameter in pointed for buffer in buffers_of(parameter)}))


def inputs_for(case: Case, wanted: Sequence[str] = INPUTS) -> tuple[str, ...]:
    """The inputs that differ from one another for this launch: without recorded contents RECORDED is NORMAL, and if all
    buffers steer, all inputs are one."""
    recorded = case.folder is not None and any(
        buffer.values and (case.folder / buffer.values).exists() for buffer in case.launch.buffers
    )
    free = [b for n, b in enumerate(case.launch.buffers) if n not in case.keep and b.size]
    if not free:
        return (RECORDED,) if RECORDED in wanted else tuple(wanted[:1])
    integers = any(not buffer.dtype.startswith(("float", "bfloat", "complex")) for buffer in free)
    is_normal = not recorded and not integers and NORMAL in wanted
    return tuple(name for name in wanted if not (name == RECORDED and is_normal))


def verify(case: Case, built: Built, executor: Runner, inputs: Sequence[str] = INPUTS, runs: int = RUNS) -> Verified:
    """Run all builds on all inputs, and judge. Raises DeviceError without a GPU."""
    started = time.monotonic()
    order = _order(case, built.builds, inputs_for(case, inputs), runs)
    judgement, ran = _judged(case, order, executor)
    worst = judgement.worst
    groups = _groups(ran, worst.input) if worst is not None and worst.verdict is Verdict.DIFFERENT else ()
    return Verified(
        case.kernel,
        case.launch.summary,
        judgement,
        built.builds,
        built.same_code,
        built.failed,
        ran,
        groups,
        _region(built.builds, groups),
        tuple(_notes(judgement, ran)),
        time.monotonic() - started,
    )


def skipped(kernel: str, launch: str, reason: str) -> Verified:
    """A kernel that could not be verified."""
    return Verified(kernel, launch, Judgement(Verdict.SKIPPED), notes=(reason,))


def _order(case: Case, builds: tuple[Build, ...], inputs: tuple[str, ...], runs: int) -> Order:
    """All builds on all inputs. A build that is alone runs twice: it may hang, or differ from run to run."""
    if len(builds) == 1:
        builds = (*builds, replace(builds[0], label=f"{builds[0].label}, again"))
    return Order(case.launch, builds, inputs, runs, case.folder, case.keep)


def _judged(case: Case, order: Order, executor: Runner) -> tuple[Judgement, tuple[Ran, ...]]:
    """The verdict. If two builds differ, both run more often: a rare race may have changed the result of one of
    them."""
    ran = executor.run(order)
    as_used = [build.label for build in order.builds if build.as_used]
    judgement = judge(ran, case.launch, case.latitude, as_used)
    worst = judgement.worst
    if worst is None or worst.verdict is not Verdict.DIFFERENT:
        return judgement, ran
    pair = tuple(b for b in order.builds if b.label in (order.builds[0].label, worst.build))
    again = executor.run(replace(order, builds=pair, inputs=(worst.input,), runs=_AGAIN))
    unsteady = {each.build: each.unsteady for each in again if each.unsteady}
    merged = tuple(
        replace(each, unsteady=unsteady[each.build]) if each.input == worst.input and each.build in unsteady else each
        for each in ran
    )
    return judge(merged, case.launch, case.latitude, as_used), merged


def _notes(judgement: Judgement, ran: Sequence[Ran]) -> Iterator[str]:
    """What was not run, and what a verdict does not say."""
    refused = {r.build: r.failure.text for r in ran if r.failure and r.failure.kind is FailureKind.REFUSED}
    for build, text in refused.items():
        yield f"{build} was not run: {text}"
    for name in judgement.unfit:
        yield f"no build finished on the input {name!r}, which is left out"
    if ran and not any(build.stored for build in ran):
        yield "no build changed any buffer: equal buffers prove nothing here"


def _groups(ran: Sequence[Ran], name: str) -> tuple[tuple[str, ...], ...]:
    """Builds that stored the same on an input, the largest group first."""
    groups: dict[tuple[tuple[int, str], ...] | Failure, list[str]] = {}
    for build in ran:
        if build.input == name:
            stored = tuple((difference.buffer, difference.digest) for difference in build.differences)
            groups.setdefault(build.failure or stored, []).append(build.build)
    return tuple(tuple(labels) for labels in sorted(groups.values(), key=len, reverse=True))


def _region(builds: Sequence[Build], groups: Sequence[Sequence[str]]) -> Region | None:
    """Find where the machine code of two differing builds begins to differ: the reference and another build, of the
    same level if there is one."""
    if len(groups) < 2:
        return None
    own = next((group for group in groups if builds[0].label in group), ())
    codes = [build for build in builds if build.path.suffix != ".ptx"]
    mine = [build for build in codes if build.label in own]
    others = [build for build in codes if build.label not in own]
    if not (mine and others):
        return None
    a, b = min(((a, b) for a in mine for b in others), key=lambda pair: _unlike(*pair))
    try:
        return parting(reading_toolchain(), a, b)
    except (TritonHookError, OSError):
        return None


def _unlike(a: Build, b: Build) -> int:
    """How little two builds have in common: the level counts most."""
    return 2 * (level_of(a.options) != level_of(b.options)) + (a.options != b.options)


# --- buffers that steer --------------------------------------------------------------------------
# Those whose contents reach an address or a branch; other contents may be anything. A flow of data through registers
# and memory, without regard to order, so that it finds too much rather than too little.

_LOADS = frozenset({"ld", "ldu", "atom", "ldmatrix", "tex", "suld", "multimem"})
_STORES = frozenset({"st", "stmatrix", "red"})
_FROM_SHARED = frozenset({"wgmma", "tcgen05"})  # read shared memory through descriptors
# Beside the names of registers and parameters: all memory of a block (shared, local, tensor).
_MEMORY = "[memory]"


class _StatementFlow(NamedTuple):
    """What one statement does, as names. Its results hold what the sources do, and what lies where `loaded` point."""

    results: tuple[str, ...]
    sources: tuple[str, ...]
    loaded: tuple[str, ...] = ()
    steers: tuple[str, ...] = ()


def steering_parameters(ptx: Ptx, entry: str) -> frozenset[int]:
    """The parameters, by number, whose buffers' contents reach an address or a branch of the entry."""
    parameters = ptx.parameters(entry)
    # By name, bits: into which buffers it points, and above them, of whose contents it is made.
    bits = {name: 1 << number for number, name in enumerate(parameters)}
    pointers = (1 << len(parameters)) - 1
    functions = (entry, *ptx.functions)
    code = [item for item in statements(ptx) if item.function in functions and not item.opcode.startswith(".")]
    flows = [flow for item in code for flow in _flows(item, frozenset(parameters))]

    def of(names: Iterable[str]) -> int:
        return functools.reduce(or_, (bits.get(name, 0) for name in names), 0)

    def judge(step: int) -> Iterator[str]:
        flow = flows[step]
        made = of(flow.sources) | (of(flow.loaded) & pointers) << len(parameters)
        for name in flow.results:
            if made & ~bits.get(name, 0):
                bits[name] = bits.get(name, 0) | made
                yield name

    settle(len(flows), places_of({*flow.sources, *flow.loaded} for flow in flows), judge)
    contents = of(name for flow in flows for name in flow.steers) >> len(parameters)
    return frozenset(number for number in range(len(parameters)) if contents >> number & 1)


def _flows(item: Statement, parameters: frozenset[str]) -> Iterator[_StatementFlow]:
    parts = item.parts
    root = parts[0]
    results, sources, addresses = names_of(item.opcode, item.operands, item.guard)
    is_own = any(part.startswith(("shared", "local")) for part in parts)
    if item.opcode.startswith("ld.param"):
        is_of_entry = not parameters.isdisjoint(addresses)  # else it comes from a call
        yield _StatementFlow(results, addresses if is_of_entry else (_MEMORY,))
    elif root == "cp":
        yield _StatementFlow((_MEMORY,), (), (*addresses, *sources), addresses)
    elif root in _LOADS:
        is_memory = is_own or not any(part.startswith(("global", "const")) for part in parts)
        written = (*results, _MEMORY) if root == "atom" and is_memory else results
        yield _StatementFlow(written, (*sources, _MEMORY) if is_memory else sources, addresses, addresses)
    elif (root in _STORES or parts[:2] == ("tcgen05", "st")) and (is_own or "global" not in parts):
        yield _StatementFlow((_MEMORY,), sources, (), addresses)
    elif root in _FROM_SHARED:
        yield _StatementFlow(results, (*sources, _MEMORY), (), addresses)
    elif root in ("bra", "brx", "call", "exit", "ret", "trap"):
        yield _StatementFlow(results, (_MEMORY,), (), sources)
    elif root != "mbarrier":  # whether a barrier is complete does not follow from contents
        yield _StatementFlow(results, sources, (), addresses)
