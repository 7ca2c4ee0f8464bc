"""What the local-memory pool and other driver-side memory do on one GPU, against what memory/prediction.py predicts.

The experiments of docs/explanation/gpu-memory.md on which a prediction rests; the result has others, which ran once.
Each runs in a process of its own with a time limit, so that no pool of an earlier one is left. Those with known
frames need Triton's ptxas alone; E12 and E14 need torch and Triton.

    python -m benchmarks pool --out benchmarks/results/memory_h100.json
    python -m benchmarks pool --only E1,E14
    python -m benchmarks pool --fake       # without a GPU: on the model in tests/support/fake_gpu.py

Summary: worst_prediction_error_ratio (known frames), sampler_slowdown_ratio (one-second loop, 10 ms).
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from typing import Any

from benchmarks.common import environment
from benchmarks.memory.gpu_bench import PTXAS, Bench, child
from benchmarks.memory.known_frames import e1, e3, e7
from benchmarks.memory.with_torch import e12, e14

RESULT = "memory_h100"
FRAMES = (512, 2048, 4096, 8192, 14512, 14608, 16384, 32768, 65536)

EXPERIMENTS: dict[str, list[tuple[str, dict[str, Any]]]] = {
    "E1": [("e1", {"frame": frame}) for frame in FRAMES],
    "E3": [("e3", {})],
    "E7": [("e7", {"factor": factor}) for factor in (0.5, 0.98, 1.05)],
    "E12": [("e12", {})],
    "E14": [("e14", {})],
}
NEEDS_TORCH = ("E12", "E14")
FUNCTIONS: dict[str, Callable[..., dict[str, Any]]] = {f.__name__: f for f in (e1, e3, e7, e12, e14)}


def device_facts(b: Bench) -> dict[str, Any]:
    facts = {"name": b.gpu.name, "sms": b.gpu.sms, "threads_per_sm": b.gpu.threads_per_sm, "arch": b.arch}
    return facts | {
        "cuda": b.driver.version(),
        "driver": b.nvml.driver_version() if b.nvml else None,
        "nvml": b.nvml is not None,
    }


def summarise(samples: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    """The figures, None where an experiment did not run."""
    rows = [row for row in samples.get("E1", []) if row.get("predicted_mib")]
    errors = [row["error_ratio"] for row in rows if "error" not in row]
    steps = [step for row in samples.get("E3", []) for step in row.get("steps", []) if step["predicted_mib"] > 0]
    errors += [abs(step["mib"] - step["predicted_mib"]) / step["predicted_mib"] for step in steps]
    watched = next((row for row in samples.get("E14", []) if "error" not in row), {})
    apart = [abs(row["mib"] - row["nvml_mib"]) for row in rows if row.get("nvml_mib") is not None]
    failed = {e: row["error"] for e, found in samples.items() for row in found if "error" in row}
    seen = [s["seen_after_ms"] for s in watched.get("steps", []) if s["period_ms"] == 10]
    return {
        "worst_prediction_error_ratio": max(errors) if rows and len(errors) >= len(rows) else None,
        "known_frame_points": len(errors),
        "sampler_slowdown_ratio": watched.get("slowdown_ratio", {}).get("10"),
        "step_seen_after_ms": None if not seen or None in seen else max(seen),
        "nvml_call_us": watched.get("nvml_call_us"),
        "nvml_differs_from_memgetinfo_mib": max(apart) if apart else None,
        "tma_rewrite_bit_equal": _all(samples, "bit_equal"),
        "tma_rewrite_same_code": _all(samples, "same_code"),
        "failed": failed,
    }


def _all(samples: dict[str, list[dict[str, Any]]], name: str) -> bool | None:
    found = [kernel[name] for row in samples.get("E12", []) for kernel in row.get("kernels", [])]
    return all(found) if found else None


NEEDS = ("gpu", "triton")
OFFLINE = ("--fake",)
QUICK = ("--fake", "--only", "E3,E7")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--only", help="a comma-separated choice, e.g. E1,E14")
    parser.add_argument("--fake", action="store_true", help="against the model of a GPU in the tests; writes nothing")
    parser.add_argument("--child", nargs=2, metavar=("NAME", "JSON"), help=argparse.SUPPRESS)


def run(arguments: argparse.Namespace) -> dict[str, Any] | None:
    if arguments.child:
        name, values = arguments.child
        print(json.dumps(FUNCTIONS[name](Bench(arguments.fake), **json.loads(values))))
        return None
    chosen = arguments.only.split(",") if arguments.only else list(EXPERIMENTS)
    samples: dict[str, list[dict[str, Any]]] = {}
    for experiment in chosen:
        if arguments.fake and experiment in NEEDS_TORCH:
            continue
        samples[experiment] = [child(name, values, arguments.fake) for name, values in EXPERIMENTS[experiment]]
        for row in samples[experiment]:
            print(experiment, json.dumps(row), flush=True)
    summary = summarise(samples)
    document = {
        "environment": environment("torch", "triton", "nvidia-ml-py")
        | {"device": device_facts(Bench(arguments.fake)), "ptxas": PTXAS},
        "summary": summary,
        "samples": samples,
    }
    print(json.dumps(summary, indent=1))
    return None if arguments.fake else document
