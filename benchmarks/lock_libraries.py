"""What do two upgrades do to the kernels of Liger and flash-linear-attention? Seen by `lock`, `check` and `diff`.

    pip install torch liger-kernel fla-core; pip install --no-deps --target SITE triton==3.9.0
    python -m benchmarks lock_libraries SITE [--work DIR] [--out FILE]

Needs no GPU; torch's CPU build is enough. The programs are those of verify/programs.py, in a dry run for an H100: of a
kernel's autotuned configurations the first one that it has room for is compiled.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import traceback
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

from benchmarks.common import REPOSITORY, environment
from benchmarks.lock import STORY, STORY_PTXAS, lock, story_rows, verb

GROUPS = ("liger", "fla-1", "fla-2", "fla-3", "fla-4")
ARCH = "sm_90a"


def compile_libraries() -> None:
    """Run the programs in this process."""
    import torch

    from benchmarks.verify import programs

    torch.manual_seed(0)
    for group in GROUPS:
        for name, launch in programs.GROUPS[group]().items():
            try:
                launch()
            except Exception as error:  # as where a library refuses this Triton
                traceback.print_exc(limit=-3)
                print(f"{group} {name}: failed: {type(error).__name__}: {error}".splitlines()[0], file=sys.stderr)


def captured(out: Path, site: str | None = None) -> Path:
    """Captures of all kernels, made in a child process. site: where another Triton is."""
    if not out.is_dir():
        command = [sys.executable, "-m", "tritonhook", "run", "--arch", ARCH, "--out", str(out)]
        command += ["-m", "benchmarks", "lock_libraries", "--compile"]
        path = ":".join([*([site] if site else []), str(REPOSITORY)])
        own = {"PYTHONPATH": path, "TRITON_CACHE_DIR": f"{out}.cache"}
        subprocess.run(command, env=os.environ | own, check=True)
    return out


NEEDS = ("torch", "triton", "liger_kernel", "fla")
QUICK = ("site",)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("site", metavar="SITE", nargs="?", help="a folder with another Triton")
    parser.add_argument("--compile", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--work", type=Path, help="keep captures there, for the next run")


def run(arguments: argparse.Namespace) -> dict[str, Any] | None:
    if arguments.compile:
        return compile_libraries()
    (newer,) = (one.version for one in distributions(name="triton", path=[arguments.site]))
    with tempfile.TemporaryDirectory() as temporary:
        work = (arguments.work or Path(temporary)).resolve()
        before, after = captured(work / "before"), captured(work / "after", arguments.site)
        locked = lock(before, work / "libraries.lock")
        story = {
            "triton": story_rows(verb("diff", before, after)),
            "ptxas": story_rows(verb("check", locked, "--ptxas", STORY_PTXAS[1])),
        }
    return {
        "what": "kernels of Liger and flash-linear-attention before and after an upgrade of Triton, and of ptxas",
        "summary": {name: len(rows) for name, rows in story.items()},
        "environment": environment("triton", "torch", "liger-kernel", "fla-core", "tritonhook")
        | {"triton_after": newer},
        "columns": {"story": list(STORY)},
        "samples": {"story": story},
    }
