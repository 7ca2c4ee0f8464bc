"""The mma.sync attention tuned: which tile, with which of ptxas's schedulers, is fastest for each kind of problem.

    python -m benchmarks gluon_names [--dtypes bf16,fp16,fp8e4nv] [--out FILE]

The defaults of gluon_kernels/mma/config.py are this script's answers. All candidates of a problem are timed in
the same rounds in random order; raw samples are kept.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import Any

from benchmarks.common import environment, write_json
from gluon_kernels.mma.config import candidates, default_config
from gluon_kernels.verify.bench import Shape

SHAPES = [Shape(b, 16 if d < 256 else 8, n, d, c) for b, n in ((16, 1024), (4, 4096)) for d in (64, 128, 256)
          for c in (False, True)]  # fmt: skip


NEEDS = ("gpu", "torch", "triton")
QUICK = ("--dtypes", "bf16", "--rounds", "3")
SMALL = {"SHAPES": SHAPES[:1]}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dtypes", default="bf16,fp16,fp8e4nv")
    parser.add_argument("--rounds", type=int, default=15)


def run(arguments: argparse.Namespace) -> None:
    import torch

    samples = []
    for dtype in arguments.dtypes.split(","):
        for shape in SHAPES:
            samples.append(tuned(dtype, shape, arguments.rounds))
            print(line(samples[-1]), flush=True)
            write_json(
                arguments.out,
                {
                    "format": 1,
                    "environment": environment("torch", "triton") | {"gpu": torch.cuda.get_device_name()},
                    "samples": samples,
                    "summary": summary(samples),
                },
            )


def tuned(dtype: str, shape: Shape, rounds: int) -> dict[str, Any]:
    import torch

    from gluon_kernels.device.other_scheduler import best_trigger
    from gluon_kernels.mma.launch import attention
    from gluon_kernels.tune import best, scheduler_effects, tune
    from gluon_kernels.verify.bench import agree, in_dtype, torch_output

    major, minor = torch.cuda.get_device_capability()
    arch = 10 * major + minor
    causal = "top-left" if shape.causal else None
    config = default_config(arch, dtype, shape.head_dim, causal, shape.seqlen_q)
    expected = torch_output(shape.inputs(), shape)
    tried = tune(
        attention,
        candidates(config, arch, best_trigger(arch)),
        *in_dtype(shape.inputs(), dtype),
        causal=causal,
        rounds=rounds,
        verify=lambda out: agree(dtype, out, expected),
    )
    effects = scheduler_effects(tried)
    return {
        "arch": arch,
        "dtype": dtype,
        "head_dim": shape.head_dim,
        "causal": causal,
        "queries": shape.seqlen_q,
        "shape": shape.label,
        "flops": shape.flops,
        "best": asdict(best(tried)),
        "plain_over_cutlass": {key(config): effects[config] for config in effects},
        "failed": [f"{t.config}: {t.reason}" for t in tried if t.timed is None],
        "samples_ms": {f"{key(t.config)} {t.config.entry}": list(t.timed.samples_ms) for t in tried if t.timed},
    }


def key(config) -> str:
    """The tile, without the problem and the scheduler."""
    kept = " keep_q" * config.keep_q + " sum_by_mma" * config.sum_by_mma
    return f"{config.block_m}x{config.block_n} warps{config.warps} stages{config.stages} parts{config.parts}{kept}"


def summary(samples: list[dict[str, Any]]) -> dict[str, Any]:
    effects = [effect for sample in samples for effect in sample["plain_over_cutlass"].values()]
    return {
        "problems": len(samples),
        "best_under_cutlass": sum(sample["best"]["trigger"] is not None for sample in samples),
        "pairs": len(effects),
        "cutlass_faster_by_1pct": sum(effect > 1.01 for effect in effects),
        "cutlass_slower_by_1pct": sum(effect < 0.99 for effect in effects),
        "largest_gain": max(effects, default=None),
        "largest_loss": min(effects, default=None),
    }


def line(sample: dict[str, Any]) -> str:
    from statistics import median

    times = {name: median(values) for name, values in sample["samples_ms"].items()}
    first = sorted(times, key=times.__getitem__)[:4]
    shown = "; ".join(f"{sample['flops'] / times[name] / 1e9:.1f} {name}" for name in first)
    return f"{sample['dtype']} {sample['shape']}: {shown}"
