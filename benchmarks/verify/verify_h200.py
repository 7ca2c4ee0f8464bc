"""`tritonhook verify` on real kernels, on known miscompilations, and cubins with one altered instruction. Needs a GPU.

    python -m benchmarks verify_h200 [--groups tutorials liger ...] [--known FOLDER] [--seconds S] [--out FILE]

1. Each group of programs.py runs once, with its launches recorded; then every kernel is verified as the command does.
2. Each known miscompilation (--known: folders with kernel.ptx and case.json) is assembled by wrong and right versions
   and run; it is found where a wrong version stores something else than PTX says, and a right one what PTX says.
3. Cubins with one altered instruction (--seeded: what seeded.py made) must come out DIFFERENT.
4. Two kernels that ptxas 12.8.93 miscompiles are minimised, each trial judged by launches (--minimise).

What is done is written to --out as it goes, so that a time limit loses nothing.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.common import coverage, environment, write_json
from benchmarks.verify.programs import GROUPS, record, stop
from tritonhook.capture.launches.contents import NORMAL, RECORDED, made
from tritonhook.capture.launches.record import DTYPE_BYTES, Buffer, Launch, Pointer, Scalar, Scratch
from tritonhook.errors import TritonHookError
from tritonhook.ptx.module import Ptx
from tritonhook.ptxas.tool import available_ptxas
from tritonhook.ptxas.toolchain import Crash, assemble
from tritonhook.verify.differential import Recipe
from tritonhook.verify.executor import TRIAL_LIMIT_S, Executor
from tritonhook.verify.minimise import Trial, minimise
from tritonhook.verify.model import Build, Order, Ran
from tritonhook.verify.reproduce import LaunchedJudge, Reproducer, Side, write_reproducer

_SCALARS = {1: "u8", 2: "u16", 4: "u32", 8: "u64"}
_BAD = ("DIFFERENT", "CRASH", "HANG")
# Kernels that a bug of ptxas 12.4.131 makes different: docs/how-to/verify-kernels.md says how each was found.
EXPLAINED = {
    "chunk_cumprod_householder_bwd_kernel": "wgmma-shared-descriptor",
    "parallel_path_bwd_intra_chunk_kernel": "wgmma-shared-descriptor",
    "intra_chunk_preprocess_bwd_kernel": "wgmma-shared-descriptor",
    "attention_mma": "fp8-mma-in-place",
    "matmul_kernel_descriptor_persistent": "stride of tensormap.replace",
}


NEEDS = ("gpu", "torch", "triton")
QUICK = ("--groups", "gluon", "--only", "mma_64")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--groups", nargs="*", default=list(GROUPS), choices=list(GROUPS))
    parser.add_argument("--only", nargs="*", default=[], help="programs of a single group")
    parser.add_argument(
        "--against", default="", help="versions of ptxas (default: the oldest and newest that are here)"
    )
    parser.add_argument("--onto", type=Path, help="a result, whose rows of these groups are replaced")
    parser.add_argument("--known", type=Path)
    parser.add_argument("--seeded", type=Path)
    parser.add_argument("--minimise", action="store_true")
    parser.add_argument("--seconds", type=float, default=1e6, help="begin nothing new after so many seconds")
    parser.add_argument("--work", type=Path, help="keep captures and raw results here")


def run(arguments: argparse.Namespace) -> int:
    deadline = time.monotonic() + arguments.seconds
    work = arguments.work or Path(tempfile.mkdtemp(prefix="verify-"))
    document: dict[str, Any] = {"format": 1, "environment": environment("triton", "torch"), "samples": {}}
    samples = document["samples"]
    if arguments.onto:
        samples |= json.loads(arguments.onto.read_text())["samples"]
    others = [row for row in samples.get("kernels", []) if row["group"] not in arguments.groups]

    def save() -> None:
        document["summary"] = summary(samples)
        write_json(arguments.out, document)

    if arguments.known:
        samples["known"] = known(arguments.known, work)
        save()
    recordings = {group: record(group, arguments.only, work) for group in arguments.groups}
    samples["kernels"] = others
    for group, recording in recordings.items():
        left = deadline - time.monotonic()
        if left < 10:
            stop(recording)
            continue
        try:
            recording.wait(left)
        except subprocess.TimeoutExpired:
            stop(recording)
        samples["kernels"] += verified(group, work, deadline - time.monotonic(), arguments.against)
        save()
        print(group, json.dumps(document["summary"]), flush=True)
    if arguments.minimise:
        samples["minimised"] = []
        for row in minimised(work, deadline):
            samples["minimised"].append(row)
            save()
            print({name: value for name, value in row.items() if name != "ptx"}, flush=True)
    if arguments.seeded:
        while not (arguments.seeded / "seeded.json").exists() and time.monotonic() < deadline:
            time.sleep(1)  # seeded.py may still be at it
        samples["seeded"] = altered(arguments.seeded)
        save()
        print("seeded", document["summary"]["seeded"], flush=True)
    return 0


def summary(samples: dict[str, Any]) -> dict[str, Any]:
    kernels = [row for row in samples.get("kernels", []) if row["verdict"] != "SKIPPED"]
    seconds = [row["seconds"] for row in kernels]
    verdicts: dict[str, int] = {}
    for row in kernels:
        verdicts[row["verdict"]] = verdicts.get(row["verdict"], 0) + 1
    seeded_rows = samples.get("seeded", [])
    accused = [row["kernel"] for row in kernels if row["verdict"] in _BAD]
    tried = [row for row in samples.get("known", []) if "found" in row]
    skipped = Counter(row["verdict"] for row in samples.get("kernels", []) if row["verdict"] == "SKIPPED")
    return coverage(len(samples.get("kernels", [])), skipped) | {
        "known_found": sum(row["found"] for row in tried),
        "known_tried": len(tried),
        "suspects_tried": sum("suspect" in row for row in samples.get("known", [])),
        "seeded": dict(Counter(row["found"] for row in seeded_rows)),
        "seeded_same_for_a_reason": sum(row["found"] == "SAME" and bool(row["why"]) for row in seeded_rows),
        "minimised_lines_most": max((row["lines_after"] for row in samples.get("minimised", [])), default=None),
        "minimised_seconds_most": max((row["seconds"] for row in samples.get("minimised", [])), default=None),
        "kernels": len(kernels),
        "skipped": len(samples.get("kernels", [])) - len(kernels),
        "verdicts": verdicts,
        "accusations": len(accused),
        "accusations_not_explained": len([name for name in accused if name not in EXPLAINED]),
        "seconds_per_kernel_median": statistics.median(seconds) if seconds else None,
        "seconds_per_kernel_most": max(seconds, default=None),
    }


# --- kernels of programs -------------------------------------------------------------------------


def verified(group: str, work: Path, seconds: float, against: str) -> list[dict[str, Any]]:
    """The rows of a group's kernels: `tritonhook verify FOLDER --json`, with the time of the whole for each kernel."""
    command = [sys.executable, "-m", "tritonhook", "verify", str(work / group), "--trust", "--json"]
    command += ["--against", against] if against else []
    started = time.monotonic()
    log = (work / f"{group}.verify.log").open("wb")
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=log, timeout=max(seconds, 1), check=False)
        (work / f"{group}.verified.json").write_bytes(done.stdout)
        rows = json.loads(done.stdout)["kernels"]
    except (subprocess.TimeoutExpired, ValueError) as error:
        print(f"{group}: not verified: {type(error).__name__}; see {log.name}", flush=True)
        return []
    ran = sum(row["verdict"] != "SKIPPED" for row in rows)
    share = (time.monotonic() - started) / max(ran, 1)
    kept = ("kernel", "launch", "verdict", "reason", "input", "inputs", "groups", "notes")
    return [
        {"group": group}
        | {name: row[name] for name in kept}
        | {"builds": [build["label"] for build in row["builds"]], "same_code": row["same_code"]}
        | {"findings": [[f["verdict"], f["input"], f["build"], f["text"]] for f in row["findings"]][:6]}
        | {"seconds": share, "gpu_seconds": row["seconds"]}
        for row in rows
    ]


# --- known miscompilations -----------------------------------------------------------------------


def known(folder: Path, work: Path) -> list[dict[str, Any]]:
    """Run every case of a folder by all its versions that are here."""
    tools = {tool.version: tool for tool in available_ptxas()}
    rows = []
    with Executor() as executor:
        for path in sorted(folder.glob("*/case.json")):
            case = json.loads(path.read_text())
            if not is_suspect(case) and not set(case["wrong_ptxas"]) & tools.keys():
                continue  # no version that is wrong is here
            rows.append(one_known(path.parent, case, tools, executor, work))
            print(f"known {rows[-1]['id']}: found {rows[-1].get('found')}: {rows[-1]['builds']}", flush=True)
    return rows


def is_suspect(case: dict[str, Any]) -> bool:
    """Whether it is asked, not known, which versions are wrong."""
    return "suspect" in case


def one_known(
    folder: Path, case: dict[str, Any], tools: dict[str, Any], executor: Executor, work: Path
) -> dict[str, Any]:
    ptx = Ptx((folder / "kernel.ptx").read_text())
    place = work / "known" / case["id"]
    place.mkdir(parents=True, exist_ok=True)
    buffers, parameters = [], []
    for number, given in enumerate(case["args"]):
        data = bytes.fromhex(given["bytes"])
        if given["kind"] == "buffer":
            (place / f"{number}.bin").write_bytes(data)
            parameters.append(Pointer(str(number), len(buffers)))
            buffers.append(Buffer(len(data), "uint8", f"{number}.bin"))
        else:
            parameters.append(Scalar(str(number), _SCALARS[len(data)], int.from_bytes(data, "little")))
    grid, block = (tuple(case[name]) for name in ("grid", "block"))
    launch = Launch(case["kernel"], grid, block, tuple(parameters), tuple(buffers), shared=case.get("shared_bytes", 0))
    if is_suspect(case):
        wanted = [(v, options) for v in tools for options in (tuple(case["options"]), ("-O0",))]
    else:
        wanted = [(v, tuple(case["options"])) for v in (*case["wrong_ptxas"], *case["right_ptxas"]) if v in tools]
        wanted += [(v, ("-O0",)) for v in case["wrong_ptxas"] if v in tools]
    builds = []
    for version, options in wanted:
        made = assemble(tools[version], ptx, options)
        if not isinstance(made, Crash):
            label = f"{version} {' '.join(options)}"
            (place / f"{label}.cubin").write_bytes(made.cubin.data)
            builds.append(Build(label, place / f"{label}.cubin", case["kernel"], version, options))
    stored: dict[str, bool | str] = {}
    if builds:
        ran = executor.run(Order(launch, tuple(builds), (RECORDED,), 3, place, save=place))
        for number, (build, one) in enumerate(zip(builds, ran, strict=True)):
            if one.failure is not None:
                stored[build.label] = one.failure.text
                continue
            numbers = [n for n, given in enumerate(case["args"]) if given["kind"] == "buffer"]
            got = {
                n: (place / f"{RECORDED}-{number}-{numbers.index(int(n))}.bin").read_bytes() for n in case["expected"]
            }
            stored[build.label] = all(got[n].hex() == case["expected"][n] for n in got)
    if is_suspect(case):
        return {"id": case["id"], "suspect": case["suspect"], "builds": stored}
    wrong = [label for label, right in stored.items() if right is not True]
    found = any(label.split()[0] in case["wrong_ptxas"] and "-O0" not in label for label in wrong)
    sure = any(right is True for right in stored.values())
    return {"id": case["id"], "found": found and sure, "builds": stored}


# --- altered cubins, and reproducers -------------------------------------------------------------


def altered(folder: Path) -> list[dict[str, Any]]:
    from benchmarks.verify import neutral, seeded

    with Executor() as executor:
        rows = seeded.execute(folder, executor)
    return [row | {"why": neutral.why(row)} for row in rows]


def minimised(work: Path, deadline: float) -> Iterator[dict[str, Any]]:
    """Kernels that ptxas 12.8.93 miscompiles, made small while two versions of ptxas store different values."""
    from wrong_code_kernels import compile_hashed_softmax, compile_quantize_rows

    from tritonhook.ptxas.tool import find_ptxas

    rows, columns = 32, 112
    both = {"x": "float32"}
    kernels = {
        "quantize_rows": (compile_quantize_rows, 1, both | dict.fromkeys(("out", "scales"), "uint8")),
        "hashed_softmax": (
            compile_hashed_softmax,
            rows,
            both | {"keys": "uint64", "out": "float32", "digests": "uint64"},
        ),
    }
    sides = tuple(Recipe(find_ptxas(version), ("-O3",)) for version in ("12.8.93", "13.5.37"))
    with Executor(TRIAL_LIMIT_S) as executor:
        for name, (compiled, grid, types) in kernels.items():
            made_by_triton = compiled(num_warps=4)
            text = made_by_triton.asm["ptx"]
            sizes = [rows * columns * DTYPE_BYTES[dtype] for dtype in types.values()]
            buffers = tuple(Buffer(size, dtype) for size, dtype in zip(sizes, types.values(), strict=True))
            pointers = [Pointer(one, number, dtype=types[one]) for number, one in enumerate(types)]
            scratch = [Scratch()] * (len(Ptx(text).parameters(name)) - len(pointers) - 1)
            parameters = (*pointers, Scalar("columns", "i32", columns), *scratch)
            shared = int(made_by_triton.metadata.shared)
            launch = Launch(name, (grid, 1, 1), (128, 1, 1), parameters, buffers, shared=shared)
            contents = tuple(made(b.size, b.dtype, n, NORMAL) for n, b in enumerate(buffers))
            place = work / f"minimise-{name}"
            place.mkdir(parents=True)
            lost: Counter[str] = Counter()

            def run(order: Order, lost: Counter[str] = lost) -> tuple[Ran, ...]:
                ran = executor.run_until_lost(order)
                lost.update(one.failure.kind.value for one in ran if one.failure is not None)
                return ran

            judge = LaunchedJudge(sides, run, place)
            try:
                found = minimise(Trial(text, name, launch, contents), judge, min(300, deadline - time.monotonic()))
                stored = judge.stored(found.trial)
            except TritonHookError as error:
                print(f"{name}: not minimised: {error}", flush=True)
                continue
            finding = Reproducer(
                f"{name}: ptxas 12.8.93 makes wrong code",
                found.trial,
                tuple(
                    Side(f"ptxas {s.ptxas.version}", s.options, values) for s, values in zip(sides, stored, strict=True)
                ),
                executor.device or "a GPU",
            )
            files = write_reproducer(work / f"reproducer-{name}", finding)
            program = [sys.executable, str(files[1]), *(str(side.ptxas.path) for side in sides)]
            again = subprocess.run(program, cwd=files[1].parent, capture_output=True, text=True, check=False)
            yield {
                "kernel": name,
                "lines_before": found.before,
                "lines_after": found.trial.lines,
                "seconds": round(found.seconds, 1),
                "tried": found.tried,
                "finished": found.finished,
                "lost": dict(lost),
                "reproduce": [again.returncode, (again.stdout + again.stderr).splitlines()[-6:]],
                "ptx": found.trial.ptx.splitlines(),
            }
