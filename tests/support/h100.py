"""Kernels of an independent grammar with what an H100 stored. (Executed: driver 580.159, ptxas 12.8.93.)

tests/emulate/h100.jsonl.xz has one kernel a line: its PTX, its machine code for sm_90a, one launch with special values
among the inputs, and the bytes of the buffers that it wrote.
"""

from __future__ import annotations

import json
import lzma
from base64 import b64decode
from functools import cache
from pathlib import Path

import numpy as np

from tritonhook.capture.launches.record import Buffer, Launch, Pointer, Scalar
from tritonhook.cubin.sass import INSTRUCTION_BYTES, Instruction, Sass
from tritonhook.emulate.numbers import FORMATS, decode
from tritonhook.emulate.run import Run, run_code, run_ptx
from tritonhook.emulate.sass.kernel import SassKernel
from tritonhook.ptx.module import Ptx

FILE = Path(__file__).parents[1] / "emulate" / "h100.jsonl.xz"
UNWRITTEN = b"\xa5"


@cache
def kernels():
    """By a name that is one kernel's alone."""
    lines = lzma.decompress(FILE.read_bytes()).decode().splitlines()
    return {f"{number}-{one['name']}": one for number, one in enumerate(map(json.loads, lines))}


def code_of(one):
    """The machine code of a kernel, as nvdisasm lists it."""
    code = [
        Instruction(number * INSTRUCTION_BYTES, predicate, opcode, operands, 0)
        for number, (predicate, opcode, operands, _) in enumerate(one["code"])
    ]
    sass, immediates = Sass("k", tuple(code), tuple(one["targets"])), tuple(line[3] for line in one["code"])
    banks = {int(bank): b64decode(data) for bank, data in one["banks"].items()}
    return SassKernel(
        sass, 90, immediates, one["stack"], one["static"], banks, one.get("functions", {}), tuple(one["offsets"])
    )


def launch_of(one):
    """The launch, and what its buffers hold before it."""
    parameters = []
    for kind, *rest in one["parameters"]:
        if kind == "null":
            parameters.append(Pointer("", None))
        else:
            parameters.append(Pointer("", *rest) if kind == "buf" else Scalar("", kind, *rest))
    buffers = tuple(Buffer(size, "uint8") for size in one["sizes"])
    grid, block, cluster = (tuple(one[key]) for key in ("grid", "block", "cluster"))
    launch = Launch("k", grid, block, tuple(parameters), buffers, cluster, one["shared"])
    given = zip(one["buffers"], one["sizes"], strict=True)
    return launch, [UNWRITTEN * size if data is None else b64decode(data) for data, size in given]


def stored(one):
    """By buffer, the bytes that the H100 stored."""
    return {int(number): b64decode(data) for number, data in one["stored"].items()}


def other(one, form):
    """By buffer, where the emulator stores something else, from PTX or from machine code ("sass"). Approximate
    functions may be off by a share of 2^-9, bfloat16 by 2^-6."""
    launch, given = launch_of(one)
    run = Run(launch, range(int(np.prod(launch.grid))))
    ran = run_ptx(Ptx(one["ptx"]), run, given) if form == "ptx" else run_code(code_of(one), run, given)
    return {buffer: places for buffer, wanted in stored(one).items()
            if len(places := _other(ran.contents[buffer], wanted, one.get("approximate")))}  # fmt: skip


def _other(found, wanted, kind):
    kind = (kind or "").removesuffix("x2")
    size = FORMATS[kind].bits // 8 if kind else 2
    codes = [np.frombuffer(data, f"u{size}") for data in (found, wanted)]
    if not kind:
        return np.flatnonzero(codes[0] != codes[1])
    with np.errstate(all="ignore"):
        a, b = (decode(one, kind) for one in codes)
        near = np.abs(a - b) <= (2.0**-6 if kind == "bf16" else 2.0**-9) * np.abs(b) + 2.0**-20
    return np.flatnonzero(~near & (codes[0] != codes[1]) & ~(np.isnan(a) & np.isnan(b)))
