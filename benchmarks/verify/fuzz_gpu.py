"""Does the emulator give a GPU's bits? Made-up PTX of `made_up.py`, executed on a GPU and on the CPU.

    python -m benchmarks fuzz_gpu [--programs N] [--seed N] [--groups NAME ...] [--ptxas VERSION] [--jobs N]
        [--stored FILE.npz]

Each program is assembled by one ptxas and executed on the GPU; then the emulator executes its PTX and its machine code
on the same contents. All bytes of all buffers are compared. --stored keeps what the GPU stored, so that a changed
emulator is judged without a GPU. Evidence: executed on the GPU, emulated on the CPU.
"""

from __future__ import annotations

import argparse
import ctypes
import os
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.common import coverage, environment
from benchmarks.verify.fuzz_ptxas import AT_ONCE, LIMIT_S, drawn, head, known_bugs, stored_by_code, stored_by_ptx
from benchmarks.verify.made_up import GROUPS, THREADS

NEEDS = ("gpu", "numpy")
OFFLINE = ("--stored",)
QUICK = ("--programs", "160")
FORMS = ("ptx", "machine code")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--programs", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--groups", nargs="+", choices=GROUPS, default=list(GROUPS))
    parser.add_argument("--ptxas", default="12.8.93")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--stored", type=Path, help="an .npz of what a GPU stored: read if it is there, else written")


def assembled(tool: Any, target: str, seed: int, group: str) -> tuple[Any, Any]:
    """Return a batch's module and its cubin. Raises ToolError where ptxas refuses a program of the grammar."""
    from tritonhook.errors import ToolError
    from tritonhook.ptx.module import Ptx
    from tritonhook.ptxas.toolchain import Assembled, assemble

    module = Ptx(head(target) + "".join(drawn(seed, target, group)[0].values()))
    made = assemble(tool, module, ["-O3"], LIMIT_S)
    if not isinstance(made, Assembled):
        raise ToolError(f"group {group}, seed {seed}: {made.summary}")
    return module, made.cubin


def executed(driver: Any, cubin: Any, target: str, seed: int, group: str) -> dict[str, bytes]:
    """Return what each kernel of a batch stores on the GPU: the bytes of `out` and `scratch`."""
    entries, _, contents = drawn(seed, target, group)
    loaded = driver.load(cubin.data)
    addresses = [driver.allocate(len(data)) for data in contents]
    arguments = [ctypes.c_uint64(address) for address in addresses]
    stored = {}
    for name in entries:
        for address, data in zip(addresses, contents, strict=True):
            driver.write(address, data)
        driver.launch(driver.function(loaded, name), arguments, block=THREADS)
        driver.synchronize()
        stored[name] = b"".join(driver.read(addresses[at], len(contents[at])) for at in (0, 2))
    for address in addresses:
        driver.free(address)
    driver.unload(loaded)
    return stored


def judged(tool: Any, target: str, seed: int, group: str, stored: dict[str, bytes]) -> list[dict[str, Any]]:
    """Compare what the emulator stores, in both forms, with what the GPU stored. One row for each kernel and form.

    "bug of ptxas": it differs, and the PTX has the pattern of a known bug of this ptxas; of machine code, if it reads
    a register that nothing has written. "open": it comes from the bits of NaNs, which PTX leaves open.
    """
    from tritonhook.emulate.numbers import OTHER_NANS, open_by_nans
    from tritonhook.errors import TritonHookError
    from tritonhook.ptxas.toolchain import reading_toolchain

    entries, launch, contents = drawn(seed, target, group)
    module, cubin = assembled(tool, target, seed, group)
    code = reading_toolchain().disassemble(cubin, list(entries))

    def emulated(form: str, name: str, **how: int) -> bytes:
        own = replace(launch, kernel=name)
        out, _, scratch = (
            stored_by_ptx(module, own, contents, **how)
            if form == FORMS[0]
            else stored_by_code(cubin, code[name], own, contents, **how)
        )
        return out + scratch

    rows = []
    for name in entries:
        for form in FORMS:
            row = {"group": group, "seed": seed, "kernel": name, "form": form, "why": ""}
            try:
                found = emulated(form, name)
            except TritonHookError as error:
                rows.append(row | {"verdict": "not understood", "why": str(error)})
                continue
            if found == stored[name]:
                rows.append(row | {"verdict": "equal"})
                continue
            verdict, known = "wrong", known_bugs(head(target) + entries[name], tool.version)
            if known and (form == FORMS[0] or found != emulated(form, name, registers=0x5A)):
                verdict = "bug of ptxas"
            if form == FORMS[0]:
                others = [emulated(form, name, other_nan=which) for which in OTHER_NANS]
                verdict = "open" if open_by_nans(found, stored[name], others) else verdict
            rows.append(row | {"verdict": verdict, "why": ", ".join(known)})
    return rows


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Count verdicts by form and group. The denominator is every kernel that a GPU executed."""
    counts = {form: Counter(row["verdict"] for row in rows if row["form"] == form) for form in FORMS}
    kernels = len(rows) // len(FORMS)
    not_judged = {
        f"{form}: {verdict}": counts[form][verdict] for form in FORMS for verdict in ("open", "not understood")
    }
    return coverage(len(rows), not_judged) | {
        "kernels": kernels,
        **{f"{form.replace(' ', '_')}_{verdict.replace(' ', '_')}": counts[form][verdict]
           for form in FORMS for verdict in ("equal", "open", "wrong", "bug of ptxas", "not understood")},
        "groups": {
            group: {form: dict(Counter(r["verdict"] for r in rows if (r["group"], r["form"]) == (group, form)))
                    for form in FORMS}
            for group in GROUPS
        },
    }  # fmt: skip


def batches(programs: int, seed: int, groups: list[str]) -> Iterator[tuple[int, str]]:
    """Yield the seed and the group of each batch of AT_ONCE programs."""
    for number in range(-(-programs // AT_ONCE)):
        yield seed + number // len(groups), groups[number % len(groups)]


def on_gpu(tool: Any, asked: list[tuple[int, str]]) -> tuple[str, str, list[dict[str, bytes]]]:
    """Execute batches on the first GPU. Return its name, its target, and what each batch stored."""
    from tritonhook.device.cuda_driver import Driver

    driver = Driver()
    driver.init()
    device = driver.device(0)
    driver.create_context(device)
    number = driver.arch(device)
    target = f"sm_{number}{'a' * (number >= 90)}"
    return driver.name(device), target, [
        executed(driver, assembled(tool, target, *batch)[1], target, *batch) for batch in asked
    ]  # fmt: skip


def keep(path: Path, device: str, target: str, asked: list[tuple[int, str]], stored: list[dict[str, bytes]]) -> None:
    """Write what a GPU stored: a line of JSON, and an .npz of arrays named GROUP-SEED-KERNEL."""
    import numpy

    arrays = {
        f"{group}-{seed}-{name}": numpy.frombuffer(data, numpy.uint8)
        for (seed, group), batch in zip(asked, stored, strict=True)
        for name, data in batch.items()
    }
    numpy.savez_compressed(path, about=numpy.array([device, target]), **arrays)


def read(path: Path, asked: list[tuple[int, str]]) -> tuple[str, str, list[dict[str, bytes]]]:
    """Read what `keep` wrote. Raises KeyError for a batch that is not there."""
    import numpy

    with numpy.load(path) as arrays:
        device, target = map(str, arrays["about"])
        names = [f"k{number}" for number in range(AT_ONCE)]
        return device, target, [
            {name: arrays[f"{group}-{seed}-{name}"].tobytes() for name in names} for seed, group in asked
        ]  # fmt: skip


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    from tritonhook.ptxas.tool import find_ptxas

    tool = find_ptxas(arguments.ptxas)
    asked = list(batches(arguments.programs, arguments.seed, arguments.groups))
    if arguments.stored and arguments.stored.exists():
        device, target, stored = read(arguments.stored, asked)
    else:
        device, target, stored = on_gpu(tool, asked)
        if arguments.stored:
            keep(arguments.stored, device, target, asked, stored)
    with ProcessPoolExecutor(arguments.jobs) as pool:
        work = [pool.submit(judged, tool, target, *batch, done) for batch, done in zip(asked, stored, strict=True)]
        rows = [row for one in work for row in one.result()]
    return {
        "environment": environment("tritonhook", "numpy"),
        "gpu": device,
        "target": target,
        "ptxas": tool.version,
        "seed": arguments.seed,
        "summary": summary(rows),
        "not_equal": [row for row in rows if row["verdict"] != "equal"],
    }
