"""One process of `tune_h200.py whole`: a program compiled with a policy and without, timed side by side.

Prints what the policy changed as JSON, then a block of samples for each line that it reads. Targets: block, a
transformer block under torch.compile; mma_attention, gluon_kernels' attention with its untuned default tile.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.verify import programs

with suppress(ImportError):  # `--help` does not need it
    import torch

import tritonhook
from tritonhook.capture.store import CaptureFolder
from tritonhook.ptx.normal_form import normal_sha256
from tritonhook.timing.inductor_choices import forget_modules
from tritonhook.timing.statistics import CANDIDATE, CONTROL, REFERENCE
from tritonhook.timing.timer import TimedSide, Timer

RESULT = None
Launch = Callable[[], Any]


def block() -> Callable[[], Launch]:
    from torch._inductor.compile_fx import compile_fx
    from torch_compile import make

    model, x = make(**programs.block_shape())

    def compiled() -> Launch:
        # A backend of its own: dynamo compiles again for another backend.
        forget_modules()  # they hold the kernels of the side before
        fresh = torch.compile(model, backend=lambda graph, inputs: compile_fx(graph, inputs))
        return lambda: fresh(x)

    return compiled


def mma_attention() -> Callable[[], Launch]:
    from gluon_kernels.attention_mma import attention
    from gluon_kernels.mma.config import MmaConfig

    q, k, v = (programs.randn(4, 16, 4096, 128, dtype=torch.bfloat16) for _ in range(3))
    return lambda: lambda: attention(q, k, v, config=MmaConfig())


TARGETS = {"block": block, "mma_attention": mma_attention}


NEEDS = ("gpu", "torch", "triton")
QUICK = ("mma_attention", "{folder}", "{folder}", "0")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("target", choices=list(TARGETS))
    parser.add_argument("policy", type=Path)
    parser.add_argument("folder", type=Path, help="for captures")
    parser.add_argument("process", type=int)


def run(arguments: argparse.Namespace) -> None:
    programs.take_real_shapes()
    compiled = TARGETS[arguments.target]()
    with torch.no_grad():
        launches = {}
        applied = []
        sessions: dict[str, Any] = {REFERENCE: nullcontext, CONTROL: nullcontext}
        out = arguments.folder / f"{arguments.target}-{arguments.process}"
        sessions[CANDIDATE] = lambda: tritonhook.session(out, policy=arguments.policy)
        outputs = {}
        for side in (REFERENCE, CANDIDATE, CONTROL):
            with sessions[side]():
                launches[side] = compiled()
                for _ in range(3):
                    outputs[side] = launches[side]()
                torch.cuda.synchronize()
        captures = CaptureFolder.open(out)
        for capture in map(captures.capture, captures.records):
            ptx = normal_sha256(capture.ptx.text, capture.kernel)
            print(capture.kernel, ptx, capture.assembler.version, capture.lever, file=sys.stderr)
            if capture.lever is not None:
                applied.append([capture.kernel, capture.lever])
        same = torch.equal(outputs[REFERENCE], outputs[CANDIDATE])
        sides = [TimedSide(side, launch, sessions[side]) for side, launch in launches.items()]
        timer = Timer(sides, seed=20261124 + arguments.process)
        timer.prepare()
        graphs = all(side.graph is not None for side in sides)
        print(json.dumps({"applied": applied, "same_outputs": same, "graphs": graphs}), flush=True)
        for _ in sys.stdin:
            print(json.dumps(asdict(timer.take_block(arguments.process))), flush=True)
