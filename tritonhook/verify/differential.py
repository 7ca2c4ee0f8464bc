"""Verify one kernel: run its builds on the same buffers, judge, and look closer where they differ."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tritonhook.capture.launches.record import Launch, Pointer
from tritonhook.errors import PtxError, TritonHookError
from tritonhook.ptx.module import Ptx
from tritonhook.ptxas.toolchain import reading_toolchain
from tritonhook.verify.builds import Built, NotBuilt
from tritonhook.verify.executor import Executor
from tritonhook.verify.judgement import Judgement, judge
from tritonhook.verify.latitude import Latitude
from tritonhook.verify.model import INPUTS, NORMAL, RECORDED, Build, Failure, FailureKind, Order, Ran, Verdict
from tritonhook.verify.region import Region, parting
from tritonhook.verify.steering import steering_parameters

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
    numbers: Iterable[int] = range(len(launch.parameters))
    if ptx is not None:
        try:
            numbers = steering_parameters(ptx, kernel)
        except PtxError:
            numbers = range(len(launch.parameters))
    pointed = (launch.parameters[number] for number in numbers if number < len(launch.parameters))
    keep = {p.buffer for p in pointed if isinstance(p, Pointer) and p.buffer is not None}
    return Case(kernel, launch, latitude, tuple(sorted(keep)), folder)


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


def verify(case: Case, built: Built, executor: Executor, inputs: Sequence[str] = INPUTS, runs: int = RUNS) -> Verified:
    """Run all builds on all inputs, and judge. Raises DeviceError without a GPU."""
    started = time.monotonic()
    order = Order(case.launch, built.builds, inputs_for(case, inputs), runs, case.folder, case.keep)
    known = Verified(
        case.kernel,
        case.launch.summary,
        Judgement(Verdict.SKIPPED),
        built.builds,
        built.same_code,
        built.failed,
    )
    if (
        len(built.builds) == 1
    ):  # all recipes gave one code: nothing to compare, but it still may hang, or differ from run to run
        order = replace(
            order, builds=(built.builds[0], replace(built.builds[0], label=f"{built.builds[0].label}, again"))
        )
    ran = executor.run(order)
    judgement = judge(ran, case.launch, case.latitude)
    judgement, ran = _steady(case, order, executor, judgement, ran)
    worst = judgement.worst
    groups = _groups(ran, worst.input) if worst is not None and worst.verdict is Verdict.DIFFERENT else ()
    notes = tuple(
        f"{one.build} was not run: {one.failure.text}"
        for one in {(r.build): r for r in ran if r.failure and r.failure.kind is FailureKind.REFUSED}.values()
        if one.failure
    )
    notes += tuple(f"no build came to its end on the input {name!r}, which is left out" for name in judgement.unfit)
    if ran and not any(one.stored for one in ran):
        notes += ("no build changed any buffer: that they are the same says nothing",)
    region = _region(built.builds, groups)
    return replace(
        known,
        judgement=judgement,
        ran=ran,
        groups=groups,
        region=region,
        notes=notes,
        seconds=time.monotonic() - started,
    )


def skipped(kernel: str, launch: str, reason: str) -> Verified:
    """A kernel that could not be verified."""
    return Verified(kernel, launch, Judgement(Verdict.SKIPPED), notes=(reason,))


def _steady(
    case: Case, order: Order, executor: Executor, judgement: Judgement, ran: tuple[Ran, ...]
) -> tuple[Judgement, tuple[Ran, ...]]:
    """Where builds differ: run the two more often. A rare race may have shown itself in one of them only."""
    worst = judgement.worst
    if worst is None or worst.verdict is not Verdict.DIFFERENT:
        return judgement, ran
    pair = tuple(b for b in order.builds if b.label in (order.builds[0].label, worst.build))
    again = executor.run(replace(order, builds=pair, inputs=(worst.input,), runs=_AGAIN))
    unsteady = {one.build: one.unsteady for one in again}
    if not any(unsteady.values()):
        return judgement, ran
    merged = tuple(
        replace(one, unsteady=unsteady[one.build]) if one.input == worst.input and unsteady.get(one.build) else one
        for one in ran
    )
    return judge(merged, case.launch, case.latitude), merged


def _groups(ran: Sequence[Ran], name: str) -> tuple[tuple[str, ...], ...]:
    """Builds that stored the same on an input, the largest group first."""
    groups: dict[tuple[tuple[int, str], ...] | Failure, list[str]] = {}
    for one in ran:
        if one.input == name:
            stored = tuple((found.buffer, found.digest) for found in one.differences)
            groups.setdefault(one.failure or stored, []).append(one.build)
    return tuple(tuple(labels) for labels in sorted(groups.values(), key=len, reverse=True))


def _region(builds: Sequence[Build], groups: Sequence[Sequence[str]]) -> Region | None:
    """Where the machine code of two builds that differ parts: the reference and another one, of one level if there
    are."""
    if len(groups) < 2:
        return None
    own = next((group for group in groups if builds[0].label in group), ())
    mine = [build for build in builds if build.label in own]
    others = [build for build in builds if build.label not in own]
    if not (mine and others):
        return None
    a, b = min(((a, b) for a in mine for b in others), key=lambda pair: _unlike(*pair))
    try:
        return parting(reading_toolchain(), a, b)
    except (TritonHookError, OSError):
        return None


def _unlike(a: Build, b: Build) -> int:
    """How little two builds have in common: the level counts most."""
    return 2 * (a.label.split()[1:2] != b.label.split()[1:2]) + (a.options != b.options)
