"""Look for miscompilations that nobody knows: made-up PTX, by the newest installed ptxas, emulated in both forms.

    python -m benchmarks fuzz_ptxas [--programs N] [--seed N] [--groups NAME ...] [--target sm_XX] [--ptxas VERSION]
        [--found FOLDER] [--seconds S]

Programs come from the grammar of `made_up.py`. Each is executed on the CPU from its PTX and from its machine code
(`tritonhook.emulate`); both have to store the same. One that differs is written to --found with its launch, for
`tritonhook verify --cpu`; unless it has the pattern of a known bug, a minimised one lies beside it.
Evidence: emulated; a difference may also be a fault of the emulator.
"""

from __future__ import annotations

import argparse
import json
import math
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.verify.made_up import GROUPS, OUT, THREADS, Program, inputs

NEEDS = ("numpy",)
RESULT = None
QUICK = ("--programs", "20")
AT_ONCE = 20  # programs of a module
LIMIT_S = 60.0


def drawn(seed: int, target: str, group: str) -> tuple[dict[str, str], Any, tuple[bytes, ...]]:
    """Draw AT_ONCE entries. Return their text by name, the launch of each, and the contents of its buffers."""
    from tritonhook.capture.launches.record import Buffer, Launch, Pointer

    draw = random.Random(f"{seed} {target} {group}")
    entries = {f"k{number}": Program(draw, group).text(f"k{number}") for number in range(AT_ONCE)}
    parameters = tuple(Pointer(name, number) for number, name in enumerate(("out", "in", "scratch")))
    contents = (bytes(THREADS * OUT), *inputs(draw, group))
    buffers = tuple(Buffer(len(data), "uint8") for data in contents)
    return entries, Launch("k0", (1, 1, 1), (THREADS, 1, 1), parameters, buffers), contents


def head(target: str) -> str:
    return f".version 8.7\n.target {target}\n.address_size 64\n"


def judged(seed: int, tool: Any, target: str, group: str) -> Iterator[tuple[Any, str, str]]:
    """Yield AT_ONCE programs, each alone with its launch as a Trial, with its verdict and the reason."""
    from tritonhook.ptx.module import Ptx
    from tritonhook.ptxas.toolchain import Assembled, assemble, reading_toolchain
    from tritonhook.verify.minimise import Trial

    entries, launch, contents = drawn(seed, target, group)
    module = Ptx(head(target) + "".join(entries.values()))
    made = assemble(tool, module, ["-O3"], LIMIT_S)
    cubin = made.cubin if isinstance(made, Assembled) else None
    code = reading_toolchain().disassemble(cubin, list(entries)) if cubin else {}
    for name, text in entries.items():
        trial = Trial(head(target) + text, name, replace(launch, kernel=name), contents)
        yield trial, *(both(module, cubin, code[name], trial) if cubin else ("not assembled", made.summary))


def both(module: Any, cubin: Any, code: Any, trial: Any) -> tuple[str, str]:
    """Compare what a trial stores from its PTX and from its machine code: same, open, different or not
    understood; why."""
    from tritonhook.emulate.numbers import OTHER_NANS, open_by_nans
    from tritonhook.errors import TritonHookError

    try:
        wanted = stored_by_ptx(module, trial.launch, trial.contents)
        found = stored_by_code(cubin, code, trial.launch, trial.contents)
        if found == wanted:
            return "same", ""
        others = [stored_by_ptx(module, trial.launch, trial.contents, other_nan=which) for which in OTHER_NANS]
    except TritonHookError as error:
        return "not understood", str(error)
    is_open = all(open_by_nans(a, b, c) for a, b, *c in zip(wanted, found, *others, strict=True))
    return ("open", "it comes from the bits of NaNs") if is_open else ("different", "")


def stored_by_ptx(module: Any, launch: Any, contents: tuple[bytes, ...], **how: int) -> tuple[bytes, ...]:
    """Emulate a launch from PTX. how: of Run. Raises TritonHookError."""
    from tritonhook.emulate.ptx.kernel import read_kernel
    from tritonhook.emulate.run import run_ptx

    return run_ptx(read_kernel(module, launch.kernel), replace(_run(launch), **how), contents).contents


def stored_by_code(cubin: Any, code: Any, launch: Any, contents: tuple[bytes, ...], **how: int) -> tuple[bytes, ...]:
    """Emulate a launch from machine code. how: of Run. Raises TritonHookError."""
    from tritonhook.emulate.run import run_code
    from tritonhook.emulate.sass.kernel import read_sass_kernel

    return run_code(read_sass_kernel(cubin, code), replace(_run(launch), **how), contents).contents


def _run(launch: Any) -> Any:
    from tritonhook.emulate.run import Run

    return Run(launch, range(math.prod(launch.grid)), limit_s=LIMIT_S)


def known_bugs(ptx: str, version: str) -> list[str]:
    """Return the known bugs of a ptxas whose pattern a program has."""
    from tritonhook.ptx.miscompiles import findings

    return [hit.place.bug.name for hit in findings(ptx, version) if hit.is_suspect]


def minimised(trial: Any, tool: Any, seconds: float) -> Any:
    """The smallest program with the difference of this one that is found in so many seconds."""
    from tritonhook.errors import TritonHookError
    from tritonhook.ptx.module import Ptx
    from tritonhook.ptxas.toolchain import Assembled, assemble, reading_toolchain
    from tritonhook.verify.minimise import minimise

    def differs(one: Any) -> bool:
        try:
            module = Ptx(one.ptx)
            made = assemble(tool, module, ["-O3"], LIMIT_S)
            if not isinstance(made, Assembled):
                return False
            code = reading_toolchain().disassemble(made.cubin, [one.entry])[one.entry]
            return both(module, made.cubin, code, one)[0] == "different"
        except TritonHookError:
            return False

    return minimise(trial, lambda trials: list(map(differs, trials)), seconds)


def keep(folder: Path, trial: Any) -> None:
    """Write a program with its launch, as `tritonhook verify` takes it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "kernel.ptx").write_text(trial.ptx)
    parameters = []
    for one in trial.launch.parameters:
        (folder / f"{one.name}.bin").write_bytes(trial.contents[one.buffer])
        size = trial.launch.buffers[one.buffer].size
        parameters.append({"name": one.name, "dtype": "uint8", "shape": [size], "values": f"{one.name}.bin"})
    sizes = {"grid": trial.launch.grid, "block": trial.launch.block}
    launch = {"format": 1, "kernel": trial.entry, **sizes, "parameters": parameters}
    (folder / "launch.json").write_text(json.dumps(launch))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--programs", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--groups", nargs="+", choices=GROUPS, default=list(GROUPS))
    parser.add_argument("--target", default="sm_90a")
    parser.add_argument("--ptxas", help="version (default: the newest installed)")
    parser.add_argument("--found", type=Path, default=Path("fuzz-ptxas"))
    parser.add_argument(
        "--seconds", type=float, default=600.0, help="for minimising each (0: not; default: %(default)s)"
    )


def run(arguments: argparse.Namespace) -> int:
    from tritonhook._util.versions import version_key
    from tritonhook.ptxas.tool import available_ptxas, find_ptxas

    newest = max(available_ptxas(), key=lambda tool: version_key(tool.version))
    tool = find_ptxas(arguments.ptxas) if arguments.ptxas else newest
    counts: Counter[str] = Counter()
    for number in range(0, arguments.programs, AT_ONCE):
        seed, group = arguments.seed + number // AT_ONCE, arguments.groups[number // AT_ONCE % len(arguments.groups)]
        for at, (trial, verdict, why) in enumerate(judged(seed, tool, arguments.target, group)):
            known = known_bugs(trial.ptx, tool.version)
            verdict = f"different: {', '.join(known)}" if known and verdict == "different" else verdict
            counts[verdict] += 1
            if verdict in ("same", "open"):
                continue
            folder = arguments.found / f"{arguments.target}-{group}-{seed}-{at}"
            keep(folder, trial)
            if verdict == "different" and arguments.seconds:
                smallest = minimised(trial, tool, arguments.seconds)
                keep(folder / "minimised", smallest.trial)
                why = smallest.summary
            print(f"{verdict}: {folder} {why}", flush=True)
    print(f"ptxas {tool.version}, {arguments.target}:", dict(counts))
    return int(bool(counts["different"]))
