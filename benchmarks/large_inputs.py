"""Single inputs that are large in one way, for `benchmarks/large_modules.py`: locks of very many kernels of one name, a
kernel with very many specialisations, modules of very many TMA loads or labels, a command line of 128 KB."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

_PTX = """.version 8.5
.target sm_90a
.address_size 64
.visible .entry add(.param .u64 p) { .reg .b64 %rd<4>; ld.param.u64 %rd1, [p]; st.global.u64 [%rd1], %rd1; ret; }
"""
_LOADING = """.version 8.8
.target sm_120a
.address_size 64
.extern .shared .align 128 .b8 smem[];
.visible .entry add(.param .u64 p)
{{
    .reg .b32 %r<4>; .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [p]; mov.u32 %r1, smem; add.u32 %r2, %r1, 128; mov.u32 %r3, 0;
    {body}
    ret;
}}
"""
_LOAD = (
    "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
    "[%r2], [%rd1, {%r3, %r3}], [%r1];\n"
)
_STAND_IN = """#!/bin/sh
[ "$1" = --version ] && { echo "Cuda compilation tools, release 12.8, V12.8.93"; exit 0; }
for last; do :; done
cp "${0%/*}/a.cubin" "$last"
"""
_AS_NVCC = "import subprocess, sys; sys.exit(subprocess.call(['ptxas', *sys.argv[1:]]))"  # whose caller is "nvcc"
_HARD_TO_SPLIT = (" ", '"', "\\", "-", "=", "'", "a=", "-O ")
# wait4's ru_maxrss has the memory of the parent in it; this is the process's own.
_COMMAND = """
import re, sys
from pathlib import Path
from tritonhook.cli import main
code = main(sys.argv[1:])
Path("peak").write_text(re.search(r"VmHWM:\\s*(\\d+) kB", Path("/proc/self/status").read_text())[1])
sys.exit(code)
"""


def cases(ptxas: Path, scale: float) -> list[dict[str, Any]]:
    """Measure each: its size, the seconds of processor time of the command and its children, its memory at most."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "m.ptx").write_text(_PTX)
        subprocess.run([str(ptxas), "-arch=sm_90a", "m.ptx", "-o", "a.cubin"], cwd=folder, check=True)
        (folder / "ptxas").write_text(_STAND_IN)
        (folder / "ptxas").chmod(0o755)
        return [_measured(case, *make(folder, scale), folder) for case, make in _CASES.items()]


def _lock(folder: Path, kernels: int, specialisations: int = 0) -> tuple[Path, list[str]]:
    """Kernels of one name and one PTX, each with a code that no ptxas gives."""
    from tritonhook.snapshot.facts import FIGURES, Identity, KernelFacts, sha256
    from tritonhook.snapshot.lockfile import write_lock

    path = folder / f"{kernels}-{specialisations}.lock"
    facts = (
        KernelFacts(
            Identity("add", "sm_90a", "Triton", tuple(f"{number}{n}={n}" for n in range(specialisations)), number),
            "add",
            {},
            sha256(_PTX),
            "12.8.93",
            ("-v",),
            (f"{number:016x}",),
            dict.fromkeys(FIGURES, number),
        )
        for number in range(1, kernels + 1)
    )
    write_lock(path, [(one, _PTX) for one in facts])
    return path, ["check", path.name]


def _module(folder: Path, name: str, body: str) -> tuple[Path, list[str]]:
    path = folder / f"{name}.ptx"
    path.write_text(_LOADING.format(body=body))
    return path, ["rename", path.name, "--rewrite", "tma-cta"]


def _long_command(folder: Path, scale: float) -> tuple[Path, list[str]]:
    words = ["-v"] * int(scale * (1 << 17) / len("-v "))
    path = folder / "words"
    path.write_text(" ".join(words))
    ptxas = [str(folder / "ptxas"), "-arch=sm_90a", *words, "m.ptx", "-o", "x.cubin"]
    return path, ["run", "--out", "out", "--", *ptxas]


def _nvcc_command(folder: Path, scale: float) -> tuple[Path, list[str]]:
    """128 KB of words that are hard to split, by an nvcc that gives them all to the ptxas of its linked toolkit."""
    toolkit = folder / "toolkit" / "bin"
    toolkit.mkdir(parents=True)
    (toolkit / "nvcc.profile").write_text("TOP = $(_HERE_)/..\n")
    (toolkit / "nvcc").symlink_to(Path(sys.executable).resolve())
    (toolkit / "ptxas").write_text(_STAND_IN)
    (toolkit / "ptxas").chmod(0o755)
    (toolkit / "a.cubin").write_bytes((folder / "a.cubin").read_bytes())
    length = int(scale * (1 << 17) / len(_HARD_TO_SPLIT))
    words = [f"-D{part * (length // len(part))}" for part in _HARD_TO_SPLIT]
    path = folder / "nvcc words"
    path.write_text(" ".join(words))
    return path, ["run", "--out", "nvcc out", "--", "nvcc", "-c", _AS_NVCC, *words, "m.ptx", "-o", "x.cubin"]


_CASES: dict[str, Callable[[Path, float], tuple[Path, list[str]]]] = {
    "check_2000": lambda folder, scale: _lock(folder, int(2_000 * scale)),
    "check_20000": lambda folder, scale: _lock(folder, int(20_000 * scale)),
    "specialisations_100000": lambda folder, scale: _lock(folder, 2, int(100_000 * scale)),
    "tma_cta_loads": lambda folder, scale: _module(folder, "loads", _LOAD * int(19_000 * scale)),
    "tma_cta_labels": lambda folder, scale: _module(
        folder, "labels", "".join(f"$label_{n}:\n" for n in range(int(190_000 * scale))) + _LOAD
    ),
    "command_line_128k": _long_command,
    "nvcc_command_line_128k": _nvcc_command,
}


def _measured(case: str, path: Path, words: Sequence[str], folder: Path) -> dict[str, Any]:
    environment = os.environ | {
        "PATH": f"{folder / 'toolkit' / 'bin'}:{folder}:{os.environ['PATH']}",
        "XDG_CACHE_HOME": str(folder / "cache"),
    }
    with (folder / "log").open("wb") as log:
        child = subprocess.Popen(
            [sys.executable, "-c", _COMMAND, *words], cwd=folder, stdout=log, stderr=log, env=environment
        )
        _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode not in (0, 1):
        raise SystemExit(f"{case}: exit {child.returncode}: {(folder / 'log').read_text()[-2000:]}")
    seconds, peak_mb = usage.ru_utime + usage.ru_stime, int((folder / "peak").read_text()) >> 10
    print(f"{case}: {seconds:.2f} s, {peak_mb} MB", flush=True)
    return {"case": case, "bytes": path.stat().st_size, "cpu_s": seconds, "peak_mb": peak_mb}
