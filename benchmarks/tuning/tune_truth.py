"""The steps of tune_h200.py that ask whether a tuning is true: again and applied."""

from __future__ import annotations

import argparse
import os
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from benchmarks.tuning.tune_work import Rows, Won, recorded_wins, source_of
from tritonhook.capture.model import Capture
from tritonhook.capture.selection import Kernel
from tritonhook.capture.store import CaptureFolder
from tritonhook.device.child import Lost
from tritonhook.errors import TritonHookError
from tritonhook.ptxas.pool import Limits, sweep
from tritonhook.timing import coordinator
from tritonhook.timing.statistics import CANDIDATE, CONTROL, MIN_PROCESSES, REFERENCE, Comparison
from tritonhook.tuning.candidates import Candidate, plain_choice
from tritonhook.tuning.engine import TuneSettings
from tritonhook.tuning.gpu import LIMIT_S, GpuProcess, LeverCode, LoadCodes
from tritonhook.tuning.policy_check import State, against_captures, policy_here

AGAIN_SEED, AGAIN_SECONDS = 20261123, 30.0
START = TuneSettings().start  # what has the GPU
SIDES = (REFERENCE, CANDIDATE, CONTROL)
_PLAIN = "plain"


def step_again(options: argparse.Namespace) -> None:
    """Time each win of this part again, its code against the compiler's own. As with `ab`, processes take blocks in
    turn until the interval is narrow, and more are started where it stays wide. They serve all wins."""
    rows, mine = Rows(options), recorded_wins(options)[options.part :: options.parts]
    processes: list[GpuProcess] = []
    for number, won in enumerate(mine):
        if time.monotonic() > options.ends:
            break
        win, kernel = won.row, won.winner
        kept, base = won.kept(), plain_choice(won.folder, won.base, trust=True)
        if kept is None or base is None:
            continue
        choice, code = kept
        out = options.work / f"again-{options.run}-{options.part}-{number}"
        try:
            codes = _written(out, won, base.plain, choice.plain, code)
            comparison, stopped = _timed_again(processes, codes, won.base, AGAIN_SEED + 100 * number)
        except (Lost, TritonHookError) as error:
            print(f"again {kernel.name}: {error}", flush=True)
            rows.add({"kind": "again", **win, "error": str(error)})
            if isinstance(error, Lost):  # which one is lost is not known
                _end(processes)
            continue
        rows.add(
            {"kind": "again", **win, "verdict": comparison.verdict.value, "reason": comparison.reason}
            | {"stopped": stopped, "comparison": asdict(comparison)}
        )
        print(f"again {kernel.name}: {comparison.verdict.value}: {comparison.reason}", flush=True)
    _end(processes)


def _end(processes: list[GpuProcess]) -> None:
    while processes:
        processes.pop().end()


def _written(out: Path, won: Won, base: Candidate, plain: Candidate, code: Candidate) -> list[LeverCode]:
    """base: what was beaten; plain: the winner's configuration without its lever, `code` with it."""
    out.mkdir(exist_ok=True)
    launch = None if won.winner.ptx == won.base.ptx else won.winner.launches[0].path
    sides = [(REFERENCE, base, None, None), (CONTROL, base, None, REFERENCE)]
    sides += [] if launch is None else [(_PLAIN, plain, launch, None)]
    sides += [(CANDIDATE, code, launch, REFERENCE if launch is None else _PLAIN)]
    for name, one, _, _ in sides:
        (out / f"{name}.cubin").write_bytes(one.cubin)
    return [LeverCode(name, out / f"{name}.cubin", one.kernel, where, like) for name, one, where, like in sides]


def _timed_again(
    processes: list[GpuProcess], codes: Sequence[LeverCode], kernel: Kernel, seed: int
) -> tuple[Comparison, str]:
    """Blocks of several processes, and why there are no more. processes: more are added where they are needed. Raises
    Lost, DeviceError, and TritonHookError for codes that do not store the same."""
    comparison, ends = Comparison(()), time.monotonic() + AGAIN_SECONDS
    first, until = 0, MIN_PROCESSES
    while until <= coordinator.MAX_PROCESSES:
        processes += [START(LIMIT_S) for _ in range(len(processes), until)]
        for number in range(first, until):
            request = LoadCodes(tuple(codes), kernel.launches[0].path, None, seed + number, racing=False)
            ready = processes[number].prepare(request)
            if ready.failed or ready.unsteady:
                raise TritonHookError(f"not timed: {dict(ready.failed) or 'its outputs differ from run to run'}")
        for _ in range(coordinator.BLOCKS_PER_PROCESS):
            taken = [processes[number].blocks(1, number, SIDES)[0] for number in range(first, until)]
            comparison = Comparison((*comparison.blocks, *taken))
            stopped = "precise" if coordinator.is_precise(comparison) else "time" if time.monotonic() > ends else ""
            if stopped:
                break
        for number in range(first, until):
            processes[number].free()
        if stopped:
            return comparison, stopped
        first, until = until, until + coordinator.MORE_PROCESSES
    return comparison, "processes"


def step_applied(options: argparse.Namespace) -> None:
    """Which kernels of the programs that ran with the policy have got the code that was certified."""
    rows, policy = Rows(options), options.work / "tritonhook.toml"
    listed, _ = policy_here(policy)
    run = lambda jobs: sweep(jobs, os.cpu_count(), None, None, Limits())  # noqa: E731
    for path in sorted(path for path in options.work.iterdir() if (path / "index").is_dir()):
        source, folder = source_of(path), CaptureFolder.open(path)
        captures = [one for one in map(folder.try_capture, folder.records) if isinstance(one, Capture)]
        checked = against_captures(listed, captures, run, policy.absolute().parent)
        found = [one for one in checked if one.state is not State.NOT_SEEN]
        for one in found:
            told = {"kernel": one.entry.kernel, "ptx": one.entry.ptx, "winner": one.entry.lever.text}
            rows.add({"kind": "applied", "source": source, **told, "state": one.state.value, "reason": one.reason})
        levered = sum(capture.lever is not None for capture in captures)
        rows.add({"kind": "captured", "source": source, "kernels": len(captures), "with_lever": levered})
        print(
            f"applied {source}: {Counter(one.state.value for one in found)}; {levered} of {len(captures)}", flush=True
        )
