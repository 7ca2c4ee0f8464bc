"""Tune the autotuned kernels of Triton's tutorials on this GPU, as targets/ab_tutorial_targets.py launches them.

    TRITON_TUTORIALS=FOLDER python -m benchmarks tutorial_configs

FOLDER: python/tutorials of Triton's repository. Writes benchmarks/results/tutorial_configs.json: of each target the
configuration that was chosen, and the milliseconds of all.
"""

from __future__ import annotations

import argparse
import functools
from typing import Any

from benchmarks.common import environment, write_json


def tune(name: str) -> dict[str, Any]:
    """What the tutorial's autotuner chooses, with its measurements in milliseconds (median, 20%, 80%)."""
    import torch
    import triton
    from ab_tutorial_targets import TARGETS, launch_of, tutorial

    target = TARGETS[name]
    tuner = getattr(tutorial(target.file), target.tuner or "")
    tuner.cache.clear()  # the tutorials' keys do not tell a causal attention from another
    tuner.do_bench = functools.partial(triton.testing.do_bench, warmup=5, rep=25)  # milliseconds; there are hundreds
    launch_of(name, tuned=False)()
    torch.cuda.synchronize()
    times = {str(config): list(times) for config, times in (tuner.configs_timings or {}).items()}
    return {"target": name, "kernel": target.tuner, "chosen": str(tuner.best_config), "milliseconds": times}


NEEDS = ("gpu", "torch", "triton", "TRITON_TUTORIALS")


def run(arguments: argparse.Namespace) -> None:
    import torch
    from ab_tutorial_targets import TARGETS

    rows = []
    for name in [name for name, target in TARGETS.items() if target.tuner]:
        try:
            rows.append(tune(name))
            print(name, rows[-1]["chosen"], flush=True)
        except Exception as error:  # one tutorial that this GPU or Triton cannot run
            rows.append({"target": name, "error": f"{type(error).__name__}: {error}"[:300]})
            print(rows[-1], flush=True)
        document = {
            "format": 1,
            "environment": environment("torch", "triton") | {"gpu": torch.cuda.get_device_name()},
            "samples": rows,
            "summary": {"targets": len(rows), "failed": sum("error" in row for row in rows)},
        }
        write_json(arguments.out, document)
