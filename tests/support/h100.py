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

from tritonhook.capture.launches.record import Buffer, Launch, Pointer, Scalar
from tritonhook.cubin.sass import INSTRUCTION_BYTES, Instruction, Sass
from tritonhook.emulate.sass.kernel import SassKernel

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
    return SassKernel(sass, 90, immediates, one["stack"], one["static"], banks, {}, tuple(one["offsets"]))


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
