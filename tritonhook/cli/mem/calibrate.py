"""Measure how much this GPU's local-memory pool grows per byte of stack, and keep that for predictions.

A child process launches kernels of known frames (2 to 16 KiB per thread) and reads the free memory before and after.
That needs 16 KiB for each thread that the GPU can hold: 4.2 GiB on an H100. Nothing else should use the GPU meanwhile.

  tritonhook mem calibrate
  tritonhook mem calibrate --device 1 --ptxas 12.9.86
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass

from tritonhook.cli._parser import Group, flag, option, part
from tritonhook.cli._streams import Results, give, working
from tritonhook.errors import DeviceError
from tritonhook.memory.calibration import MeasuredPool, Point, store
from tritonhook.ptxas.discovery import find_ptxas

_LIMIT_S = 120
_CHILD = """
import json, sys
from dataclasses import asdict
from tritonhook.memory.calibration import measure_here
from tritonhook.device.cuda_driver import Driver
from tritonhook.errors import TritonHookError
from tritonhook.ptxas.discovery import find_ptxas
try:
    print(json.dumps(asdict(measure_here(Driver(), find_ptxas(sys.argv[1]), int(sys.argv[2])))))
except TritonHookError as error:
    print(json.dumps({"error": str(error)}))
"""


@dataclass(frozen=True, kw_only=True)
class Options(Group):
    device: int = option(type=int, default=0, metavar="N", help="CUDA device number (default: 0)")
    ptxas: str | None = option(metavar="VERSION|PATH", help="assemble with this ptxas (default: the newest)")
    dry_run: bool = flag(help="measure, but keep nothing")
    results: Results = part(Results)


def run(options: Options) -> int:
    tool = find_ptxas(options.ptxas)
    with working(f"measuring on GPU {options.device}, for up to {_LIMIT_S} s"):
        measured = _measure(str(tool.path), options.device)
    path = None if options.dry_run else str(store(measured.calibration))
    from tritonhook.report.results.stacks import Calibrated

    give(options.results, Calibrated.of(measured, path))
    return 0


def _measure(ptxas: str, device: int) -> MeasuredPool:
    """Measure in a child: this process keeps no context, and the child's pool ends with it."""
    command = [sys.executable, "-c", _CHILD, ptxas, str(device)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_LIMIT_S, check=False)
    except subprocess.TimeoutExpired:
        raise DeviceError(f"no answer from the GPU within {_LIMIT_S} s; is it in use?") from None
    lines = done.stdout.splitlines()
    if not lines:
        last = (done.stderr.strip().splitlines() or ["it printed nothing"])[-1]
        raise DeviceError(f"the child process ended with {done.returncode}: {last}")
    document = json.loads(lines[-1])
    if "error" in document:
        raise DeviceError(document["error"])
    points = tuple(Point(**point) for point in document["points"])
    return MeasuredPool(**document | {"points": points})
