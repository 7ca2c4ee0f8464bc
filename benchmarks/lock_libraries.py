"""What do two upgrades do to the kernels of Liger and flash-linear-attention? Seen by `lock`, `check` and `diff`.

    pip install torch liger-kernel fla-core; pip install --no-deps --target SITE triton==3.9.0
    python -m benchmarks lock_libraries SITE [--work DIR] [--out FILE]

Needs no GPU; torch's CPU build is enough. The programs are those of verify/programs.py, with tensors on the CPU and a
driver without a GPU behind it: a launch runs all of Triton's own code for an H100, and computes nothing. Of a
kernel's autotuned configurations the first one that an H100 has room for is compiled, as nothing can be timed.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import traceback
from contextlib import nullcontext
from importlib.metadata import distributions
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from benchmarks.common import REPOSITORY, environment
from benchmarks.lock import STORY, STORY_PTXAS, lock, story_rows, verb

GROUPS = ("liger", "fla-1", "fla-2", "fla-3", "fla-4")
ARCH = 90
_H100 = SimpleNamespace(name="NVIDIA H100", multi_processor_count=132, major=9, minor=0, total_memory=80 << 30)
_ANSWERS: dict[str, Any] = {  # of torch.cuda, to libraries that ask for the GPU
    "is_available": True,
    "device_count": 1,
    "current_device": 0,
    "get_device_name": _H100.name,
    "get_device_capability": (_H100.major, _H100.minor),
    "get_device_properties": _H100,
    "device": nullcontext(),
    "synchronize": None,
}


def compile_libraries() -> None:
    """Run the programs in this process."""
    import fake_driver
    import torch

    from benchmarks.verify import programs

    for name, answer in _ANSWERS.items():
        setattr(torch.cuda, name, lambda *_, answer=answer: answer)
    programs.GPU = "cpu"
    programs.take_first_configurations()
    torch.manual_seed(0)
    with fake_driver.active(ARCH):
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
        command = [sys.executable, "-m", "tritonhook", "run", "--out", str(out)]
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
