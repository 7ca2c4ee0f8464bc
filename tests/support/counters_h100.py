"""Launches with the counters that Nsight Compute gave on an H100. (Executed: driver 580.159, two runs that agree.)"""

from __future__ import annotations

import json
import lzma
import math
from base64 import b64decode
from functools import cache
from pathlib import Path

from tritonhook.capture.launches.contents import before
from tritonhook.capture.launches.record import Buffer, Launch, Pointer, Scalar, Scratch
from tritonhook.capture.launches.schema import from_json
from tritonhook.cubin.image import Cubin
from tritonhook.emulate.counters.observer import Counter
from tritonhook.emulate.counters.run import count
from tritonhook.emulate.run import Run, run_code
from tritonhook.emulate.sass.kernel import read_sass_kernel
from tritonhook.ptxas.toolchain import reading_toolchain

FILE = Path(__file__).parents[1] / "emulate" / "counters" / "h100.json.xz"
_UNSIGNED = {1: "uint8", 2: "uint16", 4: "uint32", 8: "uint64"}


@cache
def launches():
    return {one["name"]: one for one in json.loads(lzma.decompress(FILE.read_bytes()))}


def launch_of(one):
    """The launch, and what its buffers hold before it: as recorded, or numbers that are made up everywhere alike."""
    if "record" in one:
        launch = from_json(json.dumps(one["record"]).encode(), one["name"])
        kept = {int(number): b64decode(data) for number, data in one["kept"].items()}
        made = [kept.get(n) or before(launch, None, n, "recorded") for n in range(len(launch.buffers))]
        return launch, made
    contents = [bytes(b["zeros"]) if "zeros" in b else b64decode(b["contents"]) for b in one["buffers"]]
    kinds = [_UNSIGNED[b["bytes_per_element"]] for b in one["buffers"]]
    parameters = []
    for kind, *rest in one["parameters"]:
        if kind == "null":
            parameters.append(Scratch(0))
        else:
            parameters.append(Pointer("", *rest) if kind == "buf" else Scalar("", kind, *rest))
    buffers = tuple(Buffer(len(data), kind) for data, kind in zip(contents, kinds, strict=True))
    grid, block = tuple(one["grid"]), tuple(one["block"])
    return Launch(one["entry"], grid, block, tuple(parameters), buffers, (1, 1, 1), one["dynamic_shared"]), contents


@cache
def codes(path=FILE):
    """By name, the image and its code: one run of nvdisasm reads all."""
    found = json.loads(lzma.decompress(path.read_bytes()))
    images = [(Cubin.from_bytes(b64decode(one["cubin"])), one["entry"]) for one in found]
    many = reading_toolchain().disassemble_many(images)
    return {one["name"]: (image, sass) for one, (image, _), sass in zip(found, images, many, strict=True)}


def counted(one, ctas=None, path=FILE):
    launch, contents = launch_of(one)
    image, sass = codes(path)[one["name"]]
    return count(image, sass, Run(launch, ctas or range(math.prod(launch.grid))), contents)[0]


def work_of(one, path=FILE):
    """What reads and executes the launch, with or without counting: a kernel that is kept is not decoded again."""
    launch, contents = launch_of(one)
    run, code = Run(launch, range(math.prod(launch.grid))), codes(path)[one["name"]]

    def work(counts):
        kernel = read_sass_kernel(*code)
        run_code(kernel, run, contents, Counter(kernel.sass.instructions) if counts else None)

    return work
