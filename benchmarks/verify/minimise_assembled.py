"""How small, and how fast, the minimiser makes two Triton kernels that ptxas 12.8.93 miscompiles. Assembled only.

    python -m benchmarks minimise_assembled [--out FILE]

The difference is proved by machine code: that of 12.8.93 has the proof of the known bug, that of the newest ptxas here
has not. Needs Triton, ptxas 12.8.93 and one of 13.3 or newer.
"""

from __future__ import annotations

import argparse
from typing import Any

from sass_proofs import differs_in_code, keeps_garbage, rotates
from wrong_code_kernels import compile_hashed_softmax, compile_quantize_rows

from benchmarks.common import environment
from tritonhook.ptxas.discovery import find_ptxas
from tritonhook.verify.minimise import Trial, minimise

KERNELS = {
    "quantize_rows": (compile_quantize_rows, keeps_garbage, "fp8 pair in both halves"),
    "hashed_softmax": (compile_hashed_softmax, rotates, "64-bit shifts and a subtraction become a rotation"),
}


NEEDS = ("ptxas 13.3+",)
SMALL = {"KERNELS": {"quantize_rows": KERNELS["quantize_rows"]}}


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    wrong, right = find_ptxas("12.8.93"), find_ptxas()
    samples: list[dict[str, Any]] = []
    for name, (compiled, proof, bug) in KERNELS.items():
        text = compiled().asm["ptx"]
        found = minimise(Trial(text, name), differs_in_code(wrong, right, proof))
        print(f"{name}: {found.summary}", flush=True)
        samples.append(
            {
                "kernel": name,
                "bug": bug,
                "lines_before": found.before,
                "lines_after": found.trial.lines,
                "seconds": round(found.seconds, 1),
                "tried": found.tried,
                "finished": found.finished,
                "ptx": found.trial.ptx.splitlines(),
            }
        )
    summary = {
        "kernels": len(samples),
        "most_lines": max(sample["lines_after"] for sample in samples),
        "most_seconds": max(sample["seconds"] for sample in samples),
    }
    return {
        "evidence": "assembled",
        "summary": summary,
        "environment": environment("tritonhook", "triton") | {"ptxas": [wrong.version, right.version]},
        "samples": samples,
    }
