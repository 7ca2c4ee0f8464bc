"""`tritonhook tune` on real kernels: what is gained, and whether it is true. Needs a GPU; two halve the time.

    python -m benchmarks tune_h200 record --work W       programs of verify/programs.py, launches recorded
    python -m benchmarks tune_h200 assemble --work W     candidates, on the CPU; --wins: those that won
    python -m benchmarks tune_h200 null --work W         candidates are copies of the kernels' own code, all confirmed
    python -m benchmarks tune_h200 race --work W         tune; --part 1 --parts 2 on another GPU at the same time
    python -m benchmarks tune_h200 policy --work W       judge all parts together; write W/tritonhook.toml
    python -m benchmarks tune_h200 again --work W        each win of W/wins.json again: new processes, other seed
    python -m benchmarks tune_h200 applied --work W      what became of W/tritonhook.toml: after record --applied
    python -m benchmarks end_to_end --work W             whole training steps with the policy and without
    python -m benchmarks tune_h200 summary W/rows/*.jsonl [--out FILE]

Rows are written to W/rows as they come, each with the name of its run (--run): a time limit loses nothing, and rows of
several visits can be summed up together. --seconds ends a step, between two kernels; race goes on where it ended.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.common import environment
from benchmarks.tuning import tune_truth
from benchmarks.tuning.tune_rows import certificates, policy_wins, read_rows, row_of, summed_up
from benchmarks.tuning.tune_work import Rows, folder_of, planned_kernels, recorded_wins, timed_kernels
from benchmarks.verify.programs import record, stop
from tritonhook.capture.policy.levers import Lever, lever
from tritonhook.capture.policy.model import Entry, Pin, write_policy
from tritonhook.capture.selection import Kernel, Skipped, kernels_in
from tritonhook.capture.store import CaptureFolder
from tritonhook.cubin.summary import summarise_image
from tritonhook.errors import TritonHookError
from tritonhook.ptxas.pool import Limits, sweep
from tritonhook.timing.rough import rough_times
from tritonhook.tuning.candidates import (
    Candidate,
    Choice,
    Subject,
    choices,
    keep_choice,
    kept_choices,
    subject_of,
)
from tritonhook.tuning.engine import TuneProgress, TuneSettings, tune
from tritonhook.tuning.wins import entry_of

SHORTEST_US, LONGEST_US = 8.0, 10_000.0  # of a launch that is tuned
DEVICE = "NVIDIA H200"
BATCH = 32  # kernels whose candidates are assembled together
OF_A_NAME = 2  # kernels of one name, from other arguments or another program
COPIES = tuple(f"maxnreg={24 + 8 * number}" for number in range(16))  # levers that stand for copies of the own code
CONFIGURATIONS = 3  # of an autotuned kernel, for which levers are tried; all that were tried race without
START = TuneSettings().start  # what has the GPU
_LEVERS = "name strip pragma+ptxas=13.5.37 ptxas=13.5.37 name+ptxas=13.5.37 ptxas=12.9.86 name+ptxas=12.9.86 O1 O2 "
_LEVERS += "regalloc=0 regalloc=2 regusage=0 regusage=10 maxnreg=64 maxnreg=96 maxnreg=128 maxnreg=168"
LEVERS = tuple(map(lever, _LEVERS.split()))
# By source: groups of verify/programs.py, with their programs; each line is a process.
PROGRAMS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("whole steps", "steps", ("gla",)),
    ("whole steps", "steps", ("llama",)),
    ("transformer block", "block", ("inference",)),
    ("transformer block", "block", ("training",)),
    ("ours", "gluon", ("mma_64", "mma_128", "mma_128_causal")),
    ("ours", "gluon", ("hopper_128", "hopper_128_causal")),
    ("ours, CuTe", "cute", ("gemm_chain", "gemm", "attention_64", "attention_128_causal", "decode", "decode_e4m3")),
    ("FlashAttention 4", "cute", ("fa4_64", "fa4_128", "fa4_128_causal")),
    ("tutorials", "tutorials", ("attention_64", "add", "softmax", "dropout")),
    ("tutorials", "tutorials", ("attention_128_causal",)),
    ("tutorials", "tutorials", ("matmul", "matmul_fp8", "layer_norm", "matmul_naive", "matmul_persistent")),
    ("tutorials", "tutorials", ("matmul_tma", "matmul_descriptor")),
    ("liger", "liger", ("cross_entropy", "geglu", "swiglu", "relu_squared", "jsd", "kl_div", "tvd")),
    ("liger", "liger", ("group_norm", "sparsemax", "softmax", "layer_norm", "rms_norm")),
    ("liger", "liger", ("fused_add_rms_norm", "poly_norm", "rope", "dyt", "multi_token_attention")),
    ("fla", "fla-1", ("gla.chunk_gla",)),
    ("fla", "fla-1", ("retention.parallel_retention", "gla.fused_recurrent_gla")),
    ("fla", "fla-1", ("retention.chunk_retention",)),
    ("fla", "fla-2", ("delta_rule.chunk_delta_rule",)),
    ("fla", "fla-2", ("linear_attn.chunk_linear_attn", "delta_rule.fused_recurrent_delta_rule")),
    ("fla", "fla-3", ("rwkv6.chunk_rwkv6",)),
    ("fla", "fla-3", ("rwkv7.chunk_rwkv7",)),
    ("fla", "fla-3", ("kda.chunk_kda",)),
    ("fla", "fla-4", ("attn.parallel_attn",)),
    ("fla", "fla-4", ("forgetting_attn.parallel_forgetting_attn",)),
    ("fla", "fla-4", ("gsa.chunk_gsa",)),
    ("fla", "fla-4", ("path_attn.parallel_path_attn",)),
)
# The order in which kernels are taken.
TURNS = ("whole steps", "ours", "ours, CuTe", "FlashAttention 4", "transformer block", "tutorials")
TURNS += ("liger", "liger", "fla", "fla", "fla")


NEEDS = ("gpu", "torch", "triton")
OFFLINE = ("assemble", "null", "policy", "summary")
QUICK = ("summary",)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("step", choices=(*STEPS, "summary"))
    parser.add_argument("rows", nargs="*", type=Path, help="of summary: files with rows")
    parser.add_argument("--onto", type=Path, help="of summary: add the rows to this result")
    parser.add_argument("--work", type=Path, default=Path("tune-h200"))
    parser.add_argument("--part", type=int, default=0)
    parser.add_argument("--parts", type=int, default=1)
    parser.add_argument("--run", default="1", help="the name of this visit, kept in each row")
    parser.add_argument("--seconds", type=float, default=1e6)
    parser.add_argument("--kernels", type=int, default=1000, help="at most so many")
    parser.add_argument("--sources", nargs="*", help="of record: only these")
    parser.add_argument("--programs", nargs="*", help="of record: only these")
    parser.add_argument(
        "--gpus", type=int, default=1, help="of record: programs go to so many in turn; 1: to the first that is visible"
    )
    parser.add_argument("--wins", action="store_true", help="of assemble and policy: only W/wins.json")
    parser.add_argument("--programs-only", action="store_true", help="of record: do not time, do not plan")
    parser.add_argument("--applied", action="store_true", help="of record: under the policy W/tritonhook.toml")
    parser.add_argument("--configured", action="store_true", help="of race: autotuned kernels only")


def run(arguments: argparse.Namespace) -> dict[str, Any] | None:
    if arguments.step == "summary":
        return summed_up(read_rows(arguments.rows), json.loads(arguments.onto.read_text()) if arguments.onto else None)
    arguments.ends = time.monotonic() + arguments.seconds
    arguments.work.mkdir(parents=True, exist_ok=True)
    (arguments.work / "rows").mkdir(exist_ok=True)
    return STEPS[arguments.step](arguments)


# --- recording -----------------------------------------------------------------------------------


def step_record(options: argparse.Namespace) -> None:
    """Run the programs; write W/plan.json, the kernels to tune in the order of tuning."""
    started = time.monotonic()
    chosen = [
        program
        for program in PROGRAMS
        if (not options.sources or program[0] in options.sources)
        and (not options.programs or set(options.programs).intersection(program[2]))
    ]
    policy = options.work / "tritonhook.toml" if options.applied else None
    gpus = [number % options.gpus if options.gpus > 1 else None for number in range(len(chosen))]
    running = [
        record(group, only, options.work, True, folder_of(source), gpu, policy)
        for gpu, (source, group, only) in zip(gpus, chosen, strict=True)
    ]
    for process, program in zip(running, chosen, strict=True):
        try:
            process.wait(max(options.ends - time.monotonic(), 0.1))
        except subprocess.TimeoutExpired:
            stop(process)
            print(f"{program[1:]}: stopped by the time limit", flush=True)
    print(f"recorded in {time.monotonic() - started:.1f} s", flush=True)
    if options.programs_only:
        return
    sources = tuple(dict.fromkeys(source for source, _, _ in chosen))
    with ThreadPoolExecutor(2) as pool:
        measured = dict(zip(sources, pool.map(partial(_measured, options.work), sources), strict=True))
    planned = _planned(measured)[: options.kernels]
    (options.work / "plan.json").write_text(json.dumps(planned, indent=0))
    counts = {source: sum(one["source"] == source for one in planned) for source in sources}
    print(f"planned {counts}; {time.monotonic() - started:.1f} s", flush=True)


def _measured(work: Path, source: str) -> list[Kernel]:
    """The kernels of a source with the times of their launches."""
    path = work / folder_of(source)
    try:
        kernels = [one for one in kernels_in(CaptureFolder.open(path)) if isinstance(one, Kernel)]
        configured = [launch for one in kernels for sibling in one.siblings for launch in sibling.launches]
        (work / f"{path.name}.times.json").write_text(json.dumps(rough_times(path, others=configured)))
        found = timed_kernels(work, source)
    except TritonHookError as error:
        print(f"{source}: {error}", flush=True)
        return []
    for one in found:
        if isinstance(one, Skipped):
            print(f"{source}: {one.kernel}: {one.reason}", flush=True)
    return [one for one in found if isinstance(one, Kernel)]


def _planned(measured: dict[str, list[Kernel]]) -> list[dict[str, Any]]:
    """Kernels of the whole steps, then those of all other sources in turn; of a source those with most time first."""
    left = {source: deque(one for one in found if _fits(one)) for source, found in measured.items()}
    planned: list[dict[str, Any]] = []
    names: dict[str, int] = {}
    while any(left.values()):
        for source in TURNS:
            while left.get(source):
                one = left[source].popleft()
                names[one.name] = names.get(one.name, 0) + 1
                if names[one.name] <= OF_A_NAME:
                    planned.append({"source": source, "record": one.record, "us": one.launches[0].us})
                    break
    return sorted(planned, key=lambda one: one["source"] != "whole steps")


def _fits(one: Kernel) -> bool:
    us = one.launches[0].us
    return us is not None and SHORTEST_US <= us <= LONGEST_US


# --- candidates ----------------------------------------------------------------------------------


def step_assemble(options: argparse.Namespace) -> None:
    """Keep candidates in the capture folders: all of each planned kernel, or only the winners of W/wins.json."""
    left: list[tuple[CaptureFolder, Kernel, Sequence[Lever]]]
    if options.wins:
        left = [(won.folder, won.winner, (lever(won.lever),)) for won in recorded_wins(options)]
    else:
        left = [
            (folder, one, LEVERS)
            for _, folder, kernel in planned_kernels(options)
            for one in (kernel, *kernel.siblings[: CONFIGURATIONS - 1])
        ]
    while left and time.monotonic() < options.ends:
        now, left = left[:BATCH], left[BATCH:]
        wanted: list[tuple[Subject, Sequence[Lever]]] = []
        kept = []
        for folder, kernel, levers in now:
            subject = subject_of(folder, kernel, trust=True)
            if isinstance(subject, Skipped):
                print(f"{folder.path.name}: {kernel.name}: {subject.reason}", flush=True)
            else:
                wanted.append((subject, levers))
                kept.append((folder, kernel))
        limits = Limits(seconds=min(60.0, max(options.ends - time.monotonic(), 1.0)))
        run = lambda jobs: sweep(jobs, os.cpu_count(), None, None, limits)  # noqa: E731, B023
        for (folder, kernel), choice in zip(kept, choices(wanted, run), strict=True):
            if isinstance(choice, Choice):
                keep_choice(folder.path, kernel, choice)
            else:
                print(f"{kernel.name}: {choice}", flush=True)
        print(f"assembled {len(now)} kernels, {len(left)} left", flush=True)


def own_code(folder: CaptureFolder, kernel: Kernel) -> Choice:
    """A kernel whose candidates are copies of its own code."""
    capture = folder.capture(kernel.record)
    subject = Subject.of(capture, trust=True)
    image = summarise_image(capture.cubin, {})
    plain = Candidate(
        None,
        capture.kernel,
        capture.cubin,
        image.code_hash(capture.kernel),
        image.kernel(capture.kernel),
        subject.ptxas.version,
    )
    return Choice(subject, plain, tuple(replace(plain, lever=lever(text)) for text in COPIES), ())


# --- tuning --------------------------------------------------------------------------------------


def step_null(options: argparse.Namespace) -> None:
    planned = sorted(planned_kernels(options), key=lambda one: one[0]["us"])  # the shortest first: more in a visit
    _tune(options, [(plan, kernel, own_code(folder, kernel)) for plan, folder, kernel in planned])


def step_race(options: argparse.Namespace) -> None:
    done = {(row["source"], row["record"]) for row in _raced(options) if row["kind"] == "kernel"}
    planned = [one for one in planned_kernels(options) if (one[0]["source"], one[0]["record"]) not in done]
    if options.configured:
        planned = [one for one in planned if one[2].siblings]
    found = [(plan, kernel, kept_choices(folder, kernel)) for plan, folder, kernel in planned]
    _tune(options, [(plan, kernel, choice) for plan, kernel, choice in found if choice is not None])


def _raced(options: argparse.Namespace) -> list[dict[str, Any]]:
    """The rows of this visit, of an earlier call of the same step."""
    return read_rows((options.work / "rows").glob(f"{options.step}-{options.run}-*.jsonl"))


def _tune(options: argparse.Namespace, wanted: Sequence[tuple[dict[str, Any], Kernel, Choice]]) -> None:
    rows = Rows(options)
    by_record = {id(kernel): plan for plan, kernel, _ in wanted}

    def step(now: TuneProgress) -> None:
        if now.finished is not None:
            plan = by_record[id(now.finished.kernel)]
            rows.add(plan | row_of(now.finished))
            name = now.finished.kernel.name
            print(f"{now.done} {plan['source']} {name}: {now.finished.seconds:.1f} s", flush=True)
            if time.monotonic() > options.ends:
                raise KeyboardInterrupt

    seed = 1 + options.part + (100 if options.step == "null" else 0)
    settings = TuneSettings(seed=seed, start=START, forced=options.step == "null")
    run = tune([(kernel, choice) for _, kernel, choice in wanted], settings, step)
    told = {"device": run.device, "start_s": run.start_s, "stopped": run.stopped, "planned": len(wanted)}
    rows.add({"kind": "end", **told, "environment": environment("triton", "torch")})
    print(f"{options.step}: {len(run.rows)} of {len(wanted)}, {len(run.wins)} wins in this part", flush=True)


def step_policy(options: argparse.Namespace) -> None:
    """Judge all races of all parts together. With --wins: the winners of W/wins.json, which were recorded again."""
    if options.wins:
        return _policy_of_wins(options)
    raced = read_rows(sorted((options.work / "rows").glob("race-*.jsonl")))
    options.part, options.parts = 0, 1
    found = {(plan["source"], plan["record"]): (folder, kernel) for plan, folder, kernel in planned_kernels(options)}
    device = next((row["device"] for row in raced if row.get("kind") == "end"), DEVICE)
    entries: list[Entry] = []
    wins: list[dict[str, Any]] = []
    pins: list[Pin] = []
    for row, certificate in policy_wins(certificates(raced)):
        folder, kernel = found[row["source"], row["record"]]
        choice = kept_choices(folder, kernel)
        assert choice is not None and certificate.gain_percent is not None and certificate.interval_percent is not None
        won = next(one for one in choice.levered if one.name == row["winner"])
        gain, interval, today = certificate.gain_percent, certificate.interval_percent, time.strftime("%Y-%m-%d")
        entries.append(entry_of(choice.of(won).subject, won, gain, interval, device, today))
        pins += _pins(kernel, won.config or kernel.config, kernel.keys, entries[-1])
        kept = ("source", "kernel", "ptx", "launch", "base", "winner")
        wins.append({**{name: row.get(name) for name in kept}, "gain": gain, "interval": interval})
        print(f"WIN {gain:5.2f}% {row['winner']:22} {row['source']}: {row['kernel']}", flush=True)
    _write(options, entries, pins)
    (options.work / "wins.json").write_text(json.dumps(wins))


def _policy_of_wins(options: argparse.Namespace) -> None:
    entries, pins = [], []
    for won in recorded_wins(options):
        if (kept := won.kept()) is None:
            continue
        choice, code = kept
        gain, (low, high) = won.row["gain"], won.row["interval"]
        entries.append(entry_of(choice.subject, code, gain, (low, high), DEVICE, time.strftime("%Y-%m-%d")))
        pins += _pins(won.winner, won.winner.config, won.keys, entries[-1])
    _write(options, entries, pins)


def _pins(kernel: Kernel, config: str | None, keys: Sequence[tuple[str, ...]], entry: Entry) -> list[Pin]:
    """The configuration of a win, for each key that its autotuner chose for."""
    if not kernel.function or not config:
        return []
    return [Pin(kernel.function, kernel.arch, key, config, entry.ptx, entry.gpu, entry.date) for key in keys]


def _write(options: argparse.Namespace, entries: Sequence[Entry], pins: Sequence[Pin]) -> None:
    unique = {entry.identity: entry for entry in entries}
    write_policy(options.work / "tritonhook.toml", unique.values(), list({pin.identity: pin for pin in pins}.values()))


STEPS = {
    "record": step_record,
    "assemble": step_assemble,
    "null": step_null,
    "race": step_race,
    "policy": step_policy,
    "again": tune_truth.step_again,
    "applied": tune_truth.step_applied,
}
