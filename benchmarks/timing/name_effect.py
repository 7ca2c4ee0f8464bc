"""What "cutlass" in the name does to kernels on this GPU: code, resources, time. One row per kernel and ptxas.

    python -m benchmarks name_effect [--ptxas VERSION,...] [--only REGEX] [--seconds 540] [--out FILE]
    python -m benchmarks name_effect --targets attention,gluon_hopper_d64@12.6.85 --out FILE
    python -m benchmarks name_effect --targets tutorials --append FILE --out FILE
    python -m benchmarks name_effect --targets gluon --ptxas 12.6.85 --out benchmarks/results/gluon_ab.json
    python -m benchmarks name_effect --targets pragma --rewrite mma-throughput --out .../mma_throughput_h200.json

Each row is a `tritonhook ab` of its own: plain, `cutlass_` and a control of the same length, five or more fresh
processes, raw samples kept. `--ptxas` adds rows under other assemblers for the kernels that use wgmma. CuTe kernels
have "cutlass" in their names from the start: there the reference has that name, and `--strip` removes it. --append
keeps the file's other rows. --untimed N first looks, N rows at once, for those with the same code, which need no times.
With --rewrite mma-throughput both sides are PTX that differs in the pragma alone, under one ptxas.
Stops cleanly when --seconds are over; what there is has been written. --judge-again FILE judges the samples of that
file by the rules of today, and needs no GPU.
"""

from __future__ import annotations

import argparse
import json
import re
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.common import coverage, environment, write_json
from benchmarks.timing.spares import Spares

TARGETS_FOLDER = Path(__file__).resolve().parent / "targets"

TARGETS = (
    *("polynomial", "row_sum", "softmax", "layer_norm", "add", "matmul", "matmul_fp32", "matmul_fp8"),
    *("attention", "attention_d64", "attention_mma", "attention_mma_d64", "matmul_mma", "attention_fp8"),
)
# With "cutlass" in their names by themselves.
CUTE = (
    "ab_cute_targets:fma_loop",
    *(f"ab_library_targets:cute_ampere_{shape}" for shape in ("d128", "d128_causal", "d64", "d64_causal")),
    *(f"ab_library_targets:flash4_sm120_{shape}" for shape in ("d128", "d128_causal", "d64", "d64_causal")),
    "ab_library_targets:flash4_d128",
)
COMPILED = ("ab_library_targets:compiled_layer_norm", "ab_library_targets:compiled_softmax")
TUTORIALS = "ab_tutorial_targets"
SM120 = {"FLASH_ATTENTION_ARCH": "sm_120", "CUTE_DSL_ARCH": "sm_90a", "FLASH_ATTENTION_NUM_SMS": "132"}
WGMMA = ("matmul", "matmul_fp8", "attention", "attention_d64")
GLUON = tuple(
    f"gluon_{kernel}{dtype}_d{head_dim}{mask}"
    for kernel in ("mma", "hopper")
    for dtype in ("", "_fp8")
    for head_dim in (64, 128, 256)
    for mask in ("", "_causal")
)
PRAGMA = tuple(
    f"{target}@13.5.37"
    for target in (
        *("ab_liger_targets:jsd", "ab_liger_targets:kl_div", "layer_norm", "softmax", "attention_mma"),
        *("attention_mma_d64", "gluon_mma_d128", "gluon_mma_d128_causal", "gluon_mma_d64"),
    )
)


def _kind(target: str) -> str:
    """What a process for this target imports in advance, as Python."""
    if "sm120" in target:
        return f"import os; os.environ.update({SM120!r}); import torch, flash_attn.cute.interface"
    if "flash4" in target:
        return "import torch, flash_attn.cute.interface"
    if target in COMPILED:
        return "import torch, torch._dynamo, torch._inductor.compile_fx"
    if "gluon" in target or target.startswith(TUTORIALS):
        return "import torch, triton.experimental.gluon"
    return "import torch, cutlass.cute" if target in CUTE else ""


def measure(
    target: str,
    ptxas: str | None,
    seconds: float,
    start: Callable[[], Any],
    processes: int,
    rewrite: str | None = None,
) -> dict[str, Any]:
    """A row: the target under the cutlass name, or with a rewrite, against itself as it is."""
    from tritonhook.errors import TritonHookError
    from tritonhook.ptxas.tool import find_ptxas
    from tritonhook.ptxas.toolchain import find_toolchain
    from tritonhook.rename import Rename
    from tritonhook.timing.coordinator import run, search_path
    from tritonhook.timing.images import describe_captures
    from tritonhook.timing.plan import Plan

    strips = target in CUTE
    row: dict[str, Any] = {"kernel": target, "ptxas": ptxas or ("the DSL's" if strips else "Triton's")}
    with tempfile.TemporaryDirectory() as folder:
        plan = Plan(
            target if ":" in target else f"ab_targets:{target}",
            Path(folder),
            None if rewrite else Rename(strip="cutlass") if strips else Rename(prefix="cutlass_"),
            ptxas=None if ptxas is None else str(find_ptxas(ptxas).path),
            path=(str(TARGETS_FOLDER), *search_path()),
            rewrites=(rewrite,) if rewrite else (),
        )
        try:
            timed = run(plan, processes=processes, seconds=seconds, start=start)
            code = describe_captures(Path(folder) / "0", timed.changed_kernels, find_toolchain())
        except TritonHookError as error:
            return row | {"verdict": "error", "headline": str(error)}
    return row | {"stripped": strips} | judged(replace(timed, code=code))


def judged(timed: Any) -> dict[str, Any]:
    """What a row says of its comparison."""
    from tritonhook.report.results import ab

    found = timed.comparison.effect() if timed.comparison.blocks else None
    cycles = timed.comparison.cycles() if timed.comparison.blocks else None
    untimed = "wrong outputs" if timed.wrong else "same code"
    return {
        "verdict": untimed if found is None else timed.comparison.verdict.value,
        "headline": ": ".join(ab.judged(timed)[:2]),
        "ratio": found and found.ratio,
        "interval": found and [found.low, found.high],
        "cycles": cycles and [cycles.low, cycles.ratio, cycles.high],
        "reference_us": found and timed.comparison.usable[0].median_us("reference"),
        "code": timed.code,
        "comparison": ab.TimedComparison.of(timed).document(),
    }


def judge_again(path: Path) -> None:
    """Write a file's rows again, with what today's rules say of their samples."""
    from tritonhook._util.schema import as_schema
    from tritonhook.report.results.ab import TimedComparison

    document = json.loads(path.read_text())
    rows = [
        row | judged(as_schema(row["comparison"], TimedComparison)) if "comparison" in row else row
        for row in document["samples"]
    ]
    for before, now in zip(document["samples"], rows, strict=True):
        if before["verdict"] != now["verdict"]:
            print(f"{now['kernel']} ({now['ptxas']}): {before['verdict']}, now {now['verdict']}")
    write_json(path, document | {"samples": rows, "summary": summary(rows)}, digits=6)


NEEDS = ("gpu", "torch", "triton")
OFFLINE = ("--judge-again",)
QUICK = ("--targets", "softmax", "--processes", "1", "--each", "5")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--ptxas", default="", help="further versions for the wgmma kernels, e.g. 12.6.85")
    parser.add_argument("--only", default="", metavar="REGEX")
    parser.add_argument(
        "--targets",
        default=",".join(TARGETS),
        help="others, NAME or MODULE:NAME, with @VERSION under that ptxas; or tutorials, gluon, pragma: all of these",
    )
    parser.add_argument("--rewrite", help="time this rewrite instead of the name, e.g. mma-throughput")
    parser.add_argument("--untimed", type=int, default=0, metavar="N", help="first rows of the same code, N at once")
    parser.add_argument("--processes", type=int, default=5, help="at first, for each row")
    parser.add_argument("--each", type=float, default=45, help="seconds for one row, at most")
    parser.add_argument("--append", type=Path, help="start from this file's rows; rows measured again replace theirs")
    parser.add_argument("--judge-again", type=Path, metavar="FILE", help="time nothing: judge this file's samples anew")
    parser.add_argument("--seconds", type=float, default=3600)


def run(arguments: argparse.Namespace) -> None:
    if arguments.judge_again:
        return judge_again(arguments.judge_again)
    import torch

    work = [_target(text) for text in _expanded(arguments.targets)]
    work += [(target, version) for version in arguments.ptxas.split(",") if version for target in _of_wgmma(work)]
    work = [item for item in work if re.search(arguments.only, item[0])]
    deadline = time.monotonic() + arguments.seconds
    rows: list[dict[str, Any]] = json.loads(arguments.append.read_text())["samples"] if arguments.append else []

    def keep(new: dict[str, Any]) -> None:
        same = [n for n, row in enumerate(rows) if (row["kernel"], row["ptxas"]) == (new["kernel"], new["ptxas"])]
        rows[slice(same[0], same[0] + 1) if same else slice(len(rows), None)] = [new]
        print(json.dumps({name: new.get(name) for name in ("kernel", "ptxas", "headline")}), flush=True)
        document = {
            "format": 1,
            "environment": environment("torch", "triton", "tritonhook") | {"gpu": torch.cuda.get_device_name()},
            "samples": rows,
            "summary": summary(rows),
        }
        write_json(arguments.out, document, digits=6)  # effects of 0.01% are published

    if arguments.untimed:
        work = list(_without_same_code(work, arguments.untimed, keep))
        print(f"to be timed: {work}", flush=True)
    kinds = [_kind(target) for target, _ in work for _ in range(arguments.processes)]
    spares = Spares(kinds, most=2 * arguments.processes)
    for target, ptxas in work:
        if time.monotonic() > deadline:
            print("time is over")
            break
        start = partial(spares.take, _kind(target))
        keep(measure(target, ptxas, arguments.each, start, arguments.processes, arguments.rewrite))
        spares.refill()
    spares.end()
    print(summary(rows))


def _expanded(targets: str) -> list[str]:
    if targets != "tutorials":
        return list({"gluon": GLUON, "pragma": PRAGMA}.get(targets) or targets.split(","))
    import ab_tutorial_targets

    return [f"{TUTORIALS}:{name}" for name in ab_tutorial_targets.TARGETS]


def _of_wgmma(work: list[tuple[str, str | None]]) -> list[str]:
    return [target for target, _ in work if target in WGMMA or target.startswith("gluon_hopper")]


def _target(text: str) -> tuple[str, str | None]:
    """NAME@VERSION: the target, and the ptxas for it, None for Triton's."""
    name, _, version = text.partition("@")
    return name, version or None


def _without_same_code(
    work: list[tuple[str, str | None]], at_once: int, keep: Callable[[dict[str, Any]], None]
) -> Iterator[tuple[str, str | None]]:
    """Keep the rows with the same code, and give those that are to be timed, alone on the GPU."""
    from tritonhook.timing.coordinator import Process

    def look(item: tuple[str, str | None]) -> dict[str, Any]:
        return measure(*item, 1e-3, Process, 1)  # a single block of where there is something to time

    with ThreadPoolExecutor(at_once) as pool:
        for item, row in zip(work, pool.map(look, work), strict=True):
            if row["verdict"] in ("same code", "wrong outputs", "error"):
                keep(row)
            else:
                yield item


def summary(rows: list[dict[str, Any]]) -> dict[str, int]:
    """How many rows are faster with "cutlass" in the name, slower, and so on."""
    turned = {"faster": "slower", "slower": "faster"}
    said = [turned.get(row["verdict"], row["verdict"]) if row.get("stripped") else row["verdict"] for row in rows]
    verdicts = ("faster", "slower", "same", "same code", "inconclusive", "wrong outputs", "error")
    no_verdict = {verdict: said.count(verdict) for verdict in ("inconclusive", "error")}
    return coverage(len(rows), no_verdict) | {
        "kernels": len(rows),
        **{verdict.replace(" ", "_"): said.count(verdict) for verdict in verdicts},
    }
