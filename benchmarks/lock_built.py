"""How fast does `tritonhook lock` read every kernel of a built library, and `check` compare it?

    pip download --no-deps --only-binary :all: bitsandbytes==0.50.2
    python -m benchmarks lock_built FILE ... [--member REGEX] [--out FILE]

Needs no GPU. FILE: a wheel or a library. --member: only these members of wheels. The verbs run in processes of their
own; the time is that of the whole process, its processors' seconds, and the most memory that it held.
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path
from typing import Any

from benchmarks.common import environment
from tritonhook.snapshot.lockfile import read_lock

COLUMNS = ("file", "bytes", "kernels", "codes", "lock_s", "lock_cpu_s", "check_s", "memory_mib")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE")
    parser.add_argument("--member", type=re.compile, metavar="REGEX", help="only these members of wheels")


NEEDS = ()
QUICK = ("tests/golden/sm_90a.exp.plain.cubin",)


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as temporary:
        work = Path(temporary)
        places = [place for file in arguments.files for place in _unpacked(file, arguments.member, work)]
        rows = [_measured(place, work / f"{n}.lock") for n, place in enumerate(places)]
    found = summary(rows) | {"processors": len(os.sched_getaffinity(0))}
    return {"environment": environment(), "summary": found, "columns": list(COLUMNS), "samples": rows}


def summary(rows: list[list[Any]]) -> dict[str, float]:
    sums = {
        name: sum(row[at] for row in rows) for at, name in enumerate(COLUMNS) if name[-1] == "s" or name == "kernels"
    }
    per_1000 = {name: round(1000 * sums[f"{name}_s"] / sums["kernels"], 2) for name in ("lock", "lock_cpu", "check")}
    return {
        "kernels": sums["kernels"],
        "lock_1000_s": per_1000["lock"],
        "lock_1000_cpu_s": per_1000["lock_cpu"],
        "check_1000_s": per_1000["check"],
        "memory_mib": max(row[-1] for row in rows),
    }


def _unpacked(file: Path, member: re.Pattern[str] | None, work: Path) -> list[Path]:
    """The file itself, or the members of a wheel that are wanted."""
    if member is None:
        return [file]
    with zipfile.ZipFile(file) as wheel:
        return [Path(wheel.extract(name, work)) for name in wheel.namelist() if member.search(name)]


def _measured(file: Path, lock: Path) -> list[Any]:
    locked = _run("lock", str(file), "-o", str(lock))
    checked = _run("check", str(lock), str(file))
    kernels = read_lock(lock)
    codes = len({code for kernel in kernels for code in kernel.codes})
    memory = max(locked[2], checked[2])
    return [file.name, file.stat().st_size, len(kernels), codes, locked[0], locked[1], checked[0], memory]


def _run(*words: str) -> tuple[float, float, int]:
    """Seconds, seconds of processors, and MiB of one command, which must end with 0."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run([sys.executable, "-m", "tritonhook", *words], check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return round(time.perf_counter() - start, 2), round(cpu, 2), after.ru_maxrss // 1024
