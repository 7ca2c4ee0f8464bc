"""How long do show, rename, diff and capture take for a module with many kernels, and does it grow as their number?

    python -m benchmarks large_modules [--rounds 3] [--out FILE]

Modules of 10 to 10,000 small kernels for sm_90a. For each, in rounds: `run -- ptxas` (capture), `show` of that capture,
`rename --prefix`, and `diff --entry` of two cubins whose kernel of this name differs; beside them ptxas and nvdisasm
alone. `capture_own` is a capture with a program in the place of ptxas that copies the cubin. Times are processor time,
user and system, of the command with all its child processes: other programs on the machine change them less than wall
time, which is kept too.

`own_s` of a command is its processor time without that of the tools that it runs, the least of the rounds: other
programs can only add to it. The exponent e is fitted to
own_s = floor + c * n ** e, by least squares of the logarithms from 1,000 kernels on; the floor is the least own_s of
at most 100 kernels, where starting Python is nearly all.

Summary: seconds of processor time with the tools, medians of the rounds; `worst_exponent` of the commands' own_s.
"""

from __future__ import annotations

import argparse
import math
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.common import environment, write_json

SIZES = (10, 100, 1000, 3000, 10_000)
PTXAS = "12.8.93"
OPTIONS = ("-arch=sm_90a", "-v")
START, MIDDLE, LARGE = 100, 1000, 3000  # kernels: nearly nothing but starting Python; of the published figures
LARGEST_ASSEMBLED = 3000  # ptxas itself takes long for more kernels in one module
COMMANDS = ("capture_own", "show", "rename", "diff")
_STAND_IN = """#!/bin/sh
[ "$1" = --version ] && { echo "Cuda compilation tools, release 12.8, V12.8.93"; exit 0; }
cp a.cubin x.cubin
"""
_HEADER = ".version 8.5\n.target sm_90a\n.address_size 64\n"
_ENTRY = """
.visible .entry {name}(
	.param .u64 {name}_param_0
)
{{
	.reg .b64 	%rd<4>;
	.reg .f32 	%f<3>;
	.reg .b32 	%r<2>;
	ld.param.u64 	%rd1, [{name}_param_0];
	cvta.to.global.u64 	%rd2, %rd1;
	mov.u32 	%r1, %tid.x;
	mul.wide.u32 	%rd3, %r1, 4;
	add.s64 	%rd2, %rd2, %rd3;
	ld.global.f32 	%f1, [%rd2];
	add.f32 	%f2, %f1, 0f{bits:08X};
	st.global.f32 	[%rd2], %f2;
	ret;
}}
"""


QUICK = ("--rounds", "1")
SMALL = {"SIZES": (5, 40, 80), "START": 5, "MIDDLE": 40, "LARGE": 80}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=int, default=3)


def run(arguments: argparse.Namespace) -> None:
    from tritonhook.ptxas.tool import find_nvdisasm, find_ptxas

    ptxas, nvdisasm = find_ptxas(PTXAS), find_nvdisasm()
    samples: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        modules = {size: Module(Path(folder), size, ptxas.path) for size in SIZES}
        for number in range(arguments.rounds):
            for size, module in modules.items():
                times = module.measure(nvdisasm.path)
                samples += [
                    {"kernels": size, "round": number, "of": name, "cpu_s": cpu_s, "wall_s": wall_s}
                    for name, (cpu_s, wall_s) in times.items()
                ]
                print(
                    f"round {number}, {size:,} kernels:",
                    {name: cpu_s for name, (cpu_s, _) in times.items()},
                    flush=True,
                )
            tools = {"ptxas": ptxas.version, "nvdisasm": nvdisasm.version}
            write_json(arguments.out, document_of(samples, number + 1, tools))  # what is measured is kept
    print(f"wrote {arguments.out}")


def document_of(samples: Sequence[Mapping[str, Any]], rounds: int, tools: Mapping[str, str]) -> dict[str, Any]:
    own = {name: {str(size): own_s(samples, name, size) for size in SIZES} for name in COMMANDS}
    exponents = {name: exponent({int(size): s for size, s in values.items()}) for name, values in own.items()}
    summary = {
        **{f"{name}_1000_s": statistics.median(times_of(samples, name, MIDDLE)) for name in ("capture", *COMMANDS)},
        "rename_3000_s": statistics.median(times_of(samples, "rename", LARGE)),
        "worst_exponent": max(exponents.values()),
    }
    return {
        "format": 1,
        "environment": environment("tritonhook") | tools,
        "time": "processor time, user and system, of a command and its child processes",
        "options": list(OPTIONS),
        "rounds": rounds,
        "exponents": exponents,
        "own_s": own,
        "samples": list(samples),
        "summary": summary,
    }


class Module:
    """A module of so many kernels in a folder: its PTX, its cubin, and a cubin with a change in one kernel."""

    def __init__(self, folder: Path, kernels: int, ptxas: Path) -> None:
        from tritonhook.cubin.image import Cubin

        self.folder = folder / str(kernels)
        self.folder.mkdir()
        self.assemble = [str(ptxas), *OPTIONS, "m.ptx", "-o"]
        self.entry = f"kernel_{kernels // 2}"
        self.is_assembled = kernels <= LARGEST_ASSEMBLED
        (self.folder / "m.ptx").write_text(text_of(kernels))
        self.ptxas = self._timed([*self.assemble, "a.cubin"])
        stand_in = self.folder / "stand-in" / "ptxas"
        stand_in.parent.mkdir()
        stand_in.write_text(_STAND_IN)
        stand_in.chmod(0o755)
        cubin = Cubin.from_bytes((self.folder / "a.cubin").read_bytes())
        self.symbol = cubin.symbols[self.entry]
        code = cubin.section(".text.{kernel}", self.entry)
        assert code is not None
        changed = bytearray(cubin.data)
        changed[code.file_range[0] + 14] ^= 0x10  # a bit of the first instruction's wait mask
        (self.folder / "b.cubin").write_bytes(changed)

    def measure(self, nvdisasm: Path) -> dict[str, tuple[float, float]]:
        """Processor time and wall time of each command and of each tool alone, in seconds."""
        tritonhook = [sys.executable, "-m", "tritonhook"]
        found = {"ptxas": self.ptxas} if self.is_assembled else {}
        folders = {"capture_own": self.folder / "stand-in"}
        if self.is_assembled:
            folders["capture"] = Path(self.assemble[0]).parent
        for name, folder in folders.items():
            shutil.rmtree(self.folder / "out", ignore_errors=True)
            call = [*tritonhook, "run", "--out", "out", "--", "ptxas", *self.assemble[1:], "x.cubin"]
            own_cache = {"XDG_CACHE_HOME": str(self.folder / "cache")}  # where the wrapper of the stand-in goes
            found[name] = self._timed(call, {"PATH": f"{folder}:{os.environ['PATH']}"} | own_cache)
        return found | {
            "nvdisasm": self._timed([str(nvdisasm), "-json", "-fun", str(self.symbol), "a.cubin"]),
            "show": self._timed([*tritonhook, "show", "out"]),
            "rename": self._timed([*tritonhook, "rename", "m.ptx", "--prefix", "cutlass_", "-o", "r.ptx", "--force"]),
            "diff": self._timed([*tritonhook, "diff", "a.cubin", "b.cubin", "--entry", self.entry], exits=(0, 1)),
        }

    def _timed(
        self, command: Sequence[str], extra: Mapping[str, str] | None = None, exits: Sequence[int] = (0,)
    ) -> tuple[float, float]:
        with (self.folder / "log").open("wb") as log:
            started = time.perf_counter()
            child = subprocess.Popen(command, cwd=self.folder, stdout=log, stderr=log, env=os.environ | (extra or {}))
            _, status, usage = os.wait4(child.pid, 0)
            wall_s = time.perf_counter() - started
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode not in exits:
            raise SystemExit(f"{command}: exit {child.returncode}: {(self.folder / 'log').read_text()[-2000:]}")
        return usage.ru_utime + usage.ru_stime, wall_s


def text_of(kernels: int) -> str:
    entries = (_ENTRY.format(name=f"kernel_{n}", bits=0x3F800000 + n) for n in range(kernels))
    return _HEADER + "".join(entries)


def times_of(samples: Sequence[Mapping[str, Any]], of: str, kernels: int) -> list[float]:
    return [s["cpu_s"] for s in samples if (s["of"], s["kernels"]) == (of, kernels)]


def own_s(samples: Sequence[Mapping[str, Any]], command: str, kernels: int) -> float:
    """A command's processor time without its tools': `diff` runs nvdisasm for either side."""
    total = min(times_of(samples, command, kernels))
    return total - 2 * min(times_of(samples, "nvdisasm", kernels)) if command == "diff" else total


def exponent(seconds: Mapping[int, float]) -> float:
    """The exponent of the growth above the start of the command."""
    floor = min(s for n, s in seconds.items() if n <= START)
    points = [(math.log(n), math.log(max(s - floor, 1e-9))) for n, s in seconds.items() if n >= MIDDLE]
    x, y = zip(*points, strict=True)
    return statistics.linear_regression(x, y).slope
