"""FlashAttention 4 (CuTe DSL) on a GPU, with and without tritonhook: equal outputs, the right kernels, all captured.

    python -m benchmarks cute [--out FILE] [--captures DIR] [--ptxas PATH]
    python -m benchmarks cute --offline       # without a GPU: compiled for sm_90a, not run

Forward, B2 S1024 H8 D128 bf16, causal and not, each variant in a fresh process: plain, captured, `--strip` and
`--prefix cutlass_`, plain again; then with FlashAttention's disk cache of exported objects, cold and warm; with --ptxas
also through FlashAttention's own patch that assembles with another ptxas. Checked for each run:

* it ends with status 0, and tritonhook reports no error;
* its outputs equal the plain run's bit for bit (the greatest difference is kept), and are near PyTorch's attention;
* every FlashAttention kernel the GPU ran, by the names CUPTI reports, is in the captures, with PTX and cubin (from an
  exported object: cubin), and has the name asked for;
* its working folder has no file it did not have before.

`tritonhook ab` then assembles each captured kernel with and without "cutlass" in its name, with the ptxas version that
made it, where that is at hand. Executed, not timed. About 10 s a process.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.common import REPOSITORY, environment, write_json

RESULT = "in_the_wild_cute"
PREFIX = "cutlass_"
SHAPE = {"batch": 2, "sequence": 1024, "heads": 8, "head_dim": 128, "dtype": "bfloat16"}
OURS = "flash_attn"  # in the names of FlashAttention's kernels
CACHED = {"FLASH_ATTENTION_CUTE_DSL_CACHE_ENABLED": "1"}
# name, tritonhook's options (None: without it), the cache of exported objects if any
PLAN: tuple[tuple[str, list[str] | None, str | None], ...] = (
    ("plain", None, None),
    ("captured", [], None),
    ("stripped", ["--strip"], None),
    ("prefixed", ["--prefix", PREFIX], None),
    ("plain again", None, None),
    ("captured, object cache cold", [], "objects"),
    ("captured, object cache warm", [], "objects"),
    ("stripped, object cache warm", ["--strip"], "objects"),
)
OFFLINE = {"CUTE_DSL_ARCH": "sm_90a", "FLASH_ATTENTION_ARCH": "sm_90", "FLASH_ATTENTION_NUM_SMS": "132"}
BAD_WORDS = ("could not", "cannot", "not enabled", "Traceback", "keeps its name, not")


NEEDS = ("gpu", "torch", "flash_attn")
OFFLINE = ("--offline",)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--captures", type=Path, help="keep the captured run's captures there")
    parser.add_argument(
        "--ptxas", help="a ptxas: for FlashAttention's own patch, and for ab where the exact one is missing"
    )
    parser.add_argument("--offline", action="store_true", help="compile only, with fake tensors")
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)


def run(arguments: argparse.Namespace) -> int:
    if arguments.child:
        child(arguments.child, arguments.offline)
        return 0
    return parent(arguments)


# --- one process ---------------------------------------------------------------------------------


def child(place: Path, offline: bool) -> None:
    """Run FlashAttention; write what came out, and which kernels the GPU ran."""
    import contextlib

    import torch
    from flash_attn.cute.interface import flash_attn_func
    from torch._subclasses.fake_tensor import FakeTensorMode

    document: dict[str, Any] = {"torch": torch.__version__, "outputs": {}, "kernels": []}
    with FakeTensorMode() if offline else contextlib.nullcontext():
        shape = (SHAPE["batch"], SHAPE["sequence"], SHAPE["heads"], SHAPE["head_dim"])
        torch.manual_seed(0)
        q, k, v = (torch.randn(shape, dtype=torch.bfloat16, device="cuda") for _ in range(3))

        def attention(causal: bool) -> Any:
            result = flash_attn_func(q, k, v, causal=causal)
            return result[0] if isinstance(result, tuple) else result

        outputs = {f"causal={causal}": attention(causal) for causal in (False, True)}
    if not offline:
        torch.cuda.synchronize()
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
            for causal in (False, True):
                attention(causal)
            torch.cuda.synchronize()
        document["kernels"] = sorted({e.name for e in profile.events() if e.device_type.name == "CUDA"})
        document["gpu"] = torch.cuda.get_device_name()
        for name, output in outputs.items():
            heads_first = (t.transpose(1, 2).float() for t in (q, k, v))
            near = torch.nn.functional.scaled_dot_product_attention(*heads_first, is_causal=name == "causal=True")
            document["outputs"][name] = {
                "sha256": hashlib.sha256(output.contiguous().view(torch.int16).cpu().numpy().tobytes()).hexdigest(),
                "max_difference_to_torch": (output.float() - near.transpose(1, 2)).abs().max().item(),
            }
        torch.save({name: output.cpu() for name, output in outputs.items()}, place / "outputs.pt")
    (place / "result.json").write_text(json.dumps(document))


# --- all of them ---------------------------------------------------------------------------------


def parent(arguments: argparse.Namespace) -> int:
    runs: list[dict[str, Any]] = []
    plan = list(PLAN)
    if arguments.ptxas and not arguments.offline:
        plan.append(("stripped, FlashAttention's own ptxas patch", ["--strip"], None))
    with tempfile.TemporaryDirectory() as place:
        for number, (name, options, cache) in enumerate(plan):
            folder = Path(place) / str(number)
            runs.append(run_one(name, options, Path(place) / cache if cache else None, folder, arguments))
            runs[-1]["failures"] = problems(runs[-1], runs[0], arguments.offline)
        for run in runs:
            if not arguments.offline and not run["status"]:
                run["max_difference_to_plain"] = greatest_difference(Path(place) / "0", Path(run.pop("folder")))
        captures = Path(place) / "1" / "captures"
        compared = compare_names(captures, arguments.ptxas)
        if arguments.captures and captures.is_dir():
            shutil.copytree(captures, arguments.captures, dirs_exist_ok=True)
    failures = [f"{run['name']}: {failure}" for run in runs for failure in run["failures"]]
    summary = {
        "processes": len(runs),
        "failures": len(failures),
        "kernels_launched": sum(len(run.get("launched", [])) for run in runs),
        "bit_for_bit": sum(run.get("equal_to_plain") is True for run in runs),
        "names_that_change_code": sum(found.get("same_code") is False for found in compared),
    }
    document = {
        "format": 1,
        "environment": {**environment("torch", "flash-attn-4", "nvidia-cutlass-dsl"), "offline": arguments.offline},
        "shape": SHAPE,
        "runs": runs,
        "ab": compared,
        "summary": summary,
    }
    write_json(arguments.out, document)
    for failure in failures:
        print(failure)
    print(f"{json.dumps(summary)}; wrote {arguments.out}")
    return 1 if failures else 0


def run_one(
    name: str, options: list[str] | None, cache: Path | None, place: Path, arguments: argparse.Namespace
) -> dict[str, Any]:
    for folder in (place / "cwd", place / "dump"):
        folder.mkdir(parents=True)
    command = [sys.executable]
    if options is not None:
        command += ["-m", "tritonhook", "run", "--out", str(place / "captures"), *options]
    command += ["-m", "benchmarks", "cute", "--child", str(place), *(["--offline"] if arguments.offline else [])]
    foreign = ("TRITONHOOK_RUN", "TRITONHOOK_OUT", "CUTE_DSL_KEEP", "CUTE_DSL_DUMP", "FLASH_ATTENTION_CUTE_DSL")
    env = {variable: value for variable, value in os.environ.items() if not variable.startswith(foreign)}
    env["PYTHONPATH"] = os.pathsep.join(filter(None, [str(REPOSITORY), os.environ.get("PYTHONPATH")]))
    env |= OFFLINE if arguments.offline else {}
    env |= CACHED | {"FLASH_ATTENTION_CUTE_DSL_CACHE_DIR": str(cache)} if cache else {}
    if "own ptxas patch" in name:
        env |= {
            "CUTE_DSL_PTXAS_PATH": arguments.ptxas,
            "CUTE_DSL_KEEP_PTX": "1",
            "CUTE_DSL_DUMP_DIR": str(place / "dump"),
        }
    began = time.monotonic()
    done = subprocess.run(command, env=env, cwd=place / "cwd", capture_output=True, text=True, check=False)
    print(f"{name:44} status {done.returncode} {time.monotonic() - began:5.1f} s", flush=True)
    run: dict[str, Any] = {"name": name, "options": options, "status": done.returncode, "folder": str(place)}
    run["left_behind"] = sorted(path.name for path in (place / "cwd").iterdir())
    if done.returncode:
        return run | {"stderr": done.stderr[-4000:]}
    run |= json.loads((place / "result.json").read_text())
    run["launched"] = [kernel for kernel in run["kernels"] if OURS in kernel]
    if options is not None:
        run |= captured(place / "captures") | {
            "said": [line for line in done.stderr.splitlines() if line.startswith("tritonhook")]
        }
    return run


def captured(folder: Path) -> dict[str, Any]:
    from tritonhook.capture.store import CaptureFolder

    opened = CaptureFolder.open(folder)
    kernels: dict[str, dict[str, Any]] = {}
    for record in opened.records:
        capture = opened.capture(record)
        if capture.front_end == "cute":
            stages = sorted(stage.value for stage in capture.artifacts)
            described = {"stages": stages, "from": capture.rewritten_from, "cache_hit": capture.cache_hit}
            described |= {
                "ptxas": capture.assembler.version,
                "options": dict(capture.options),
                "bytes": len(capture.cubin),
            }
            kernels[record] = {"kernel": capture.kernel, **described}
    notes = [note.replace(str(folder.parents[1]), "...") for note in opened.notes]
    return {"captures": kernels, "notes": notes, "torn": opened.torn}


def problems(run: dict[str, Any], plain: dict[str, Any], offline: bool) -> list[str]:
    """What is wrong with a run, in words."""
    if run["status"]:
        return [f"status {run['status']}: {run['stderr'][-800:]}"]
    wrong = [f"left behind: {run['left_behind']}"] if run["left_behind"] else []
    if not offline:
        hashes = {name: output["sha256"] for name, output in run["outputs"].items()}
        run["equal_to_plain"] = hashes == {name: output["sha256"] for name, output in plain.get("outputs", {}).items()}
        own_ptxas = "own ptxas patch" in run["name"]  # another version may round otherwise: the difference is kept
        if not run["equal_to_plain"] and not own_ptxas:
            wrong.append("its outputs differ from the plain run's")
        if any(output["max_difference_to_torch"] > 2e-2 for output in run["outputs"].values()):
            wrong.append(f"its outputs are not PyTorch's: {run['outputs']}")
        if not run["launched"]:
            wrong.append("no kernel of FlashAttention's was launched: nothing is proven")
    if run["options"] is None:
        return wrong
    warm = "cache warm" in run["name"]
    needed = {"cubin"} if warm else {"ptx", "cubin"}
    ours = [capture for capture in run["captures"].values() if OURS in capture["kernel"]]
    wrong += [f"incomplete: {c['kernel']} has {c['stages']}" for c in ours if not needed <= set(c["stages"])]
    if len(ours) != 2:
        wrong.append(f"{len(ours)} kernels of FlashAttention's captured, not 2")
    known = {capture["kernel"] for capture in ours}
    wrong += [f"launched but not captured: {kernel}" for kernel in run["launched"] if kernel not in known]
    for kernel in known | set(run["launched"]):
        if run["options"][:1] == ["--strip"] and not warm and "cutlass" in kernel:
            wrong.append(f"not stripped: {kernel}")
        if run["options"][:1] == ["--prefix"] and not kernel.startswith(PREFIX):
            wrong.append(f"not prefixed: {kernel}")
    if run["options"] == ["--strip"] and warm and not any("keeps its name" in note for note in run["notes"]):
        wrong.append("kernels of exported objects kept their names, and no note says so")
    said = [*run["said"], *run["notes"]]
    return wrong + [line for line in said if any(word in line for word in BAD_WORDS)] + ["torn"] * bool(run["torn"])


def greatest_difference(plain: Path, other: Path) -> dict[str, float]:
    import torch

    a, b = (torch.load(place / "outputs.pt") for place in (plain, other))
    return {name: (a[name].float() - b[name].float()).abs().max().item() for name in a}


def compare_names(folder: Path, ptxas: str | None) -> list[dict[str, Any]]:
    """`tritonhook diff --strip` on each captured kernel; with another ptxas if the one that made it is not at hand."""
    found: list[dict[str, Any]] = []
    env = os.environ | {"PYTHONPATH": os.pathsep.join([str(REPOSITORY), os.environ.get("PYTHONPATH", "")])}
    for record in sorted((folder / "kernels").glob("*")):
        for extra in ([], ["--ptxas", ptxas] if ptxas else []):
            command = [sys.executable, "-m", "tritonhook", "diff", str(record), "--strip", "--json", *extra]
            done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
            if done.returncode in (0, 1) or not ptxas:
                break
        comparison: dict[str, Any] = {"record": record.name, "status": done.returncode}
        if done.returncode in (0, 1):
            comparison |= {"same_code": done.returncode == 0, "ptxas": json.loads(done.stdout)["ptxas"]}
        else:
            comparison["stderr"] = done.stderr[-600:]
        found.append(comparison)
        print(f"ab {record.name[:60]} {comparison.get('same_code', comparison.get('stderr'))}")
    return found
