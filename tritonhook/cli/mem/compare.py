"""Run a script once per variant, each in a fresh process, and compare the GPU memory they take.

  tritonhook mem compare --variants plain,tma examples/tma_memory.py
  tritonhook mem compare --variants 64,128 script.py --size       # runs script.py --size 64, then script.py --size 128

The variant is the script's last argument. "used" counts all processes on the GPU (from NVML, if it has figures):
nothing else should run there. Exit codes: 0, or the exit status of the first variant that failed; 2 error.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass

from tritonhook.cli._parser import Group, argument, option, part
from tritonhook.cli._programs import script_command, watched
from tritonhook.cli._results import Results, give
from tritonhook.errors import DeviceError, UsageError
from tritonhook.memory.timeline import MemoryTimeline


@dataclass(frozen=True, kw_only=True)
class Options(Group):
    variants: str = option(required=True, metavar="A,B", help="values of the script's last argument, baseline first")
    results: Results = part(Results)
    command: tuple[str, ...] = argument(nargs=argparse.REMAINDER, help="script and its arguments before the variant")


def run(options: Options) -> int:
    names = [name.strip() for name in options.variants.split(",") if name.strip()]
    if len(names) < 2 or len(set(names)) < len(names):
        raise UsageError(f"--variants {options.variants}: give at least two different names, e.g. plain,tma")
    command = script_command(options.command, False)
    seen: dict[str, list[MemoryTimeline]] = {}
    for name in names:
        ended, timelines, notes = watched([*command, name], options.results.is_printed)
        for note in notes:
            print(f"  {name}: {note}", file=sys.stderr)
        if ended.status:
            print(f"{name}: the script ended with status {ended.status}; nothing to compare", file=sys.stderr)
            return ended.status
        seen[name] = timelines
    from tritonhook.report.results.memory import Variants

    result = Variants.of(seen)
    if all(variant.used_bytes is None and variant.growth_bytes is None for variant in result.variants.values()):
        raise DeviceError(
            f"nothing was measured for {' or '.join(names)}, so nothing can be compared; see the reasons above. "
            "The script must load Triton"
        )
    give(options.results, result)
    return 0
