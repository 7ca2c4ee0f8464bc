"""GPU memory that no allocator shows: predict, remove, watch, compare and calibrate it.

tritonhook mem predict CAPTURE|CUBIN|PTX --gpu "RTX 5090" --fail-over 256MiB
tritonhook mem fix kernel.ptx -o fixed.ptx
tritonhook mem watch script.py
tritonhook mem compare --variants plain,tma examples/tma_memory.py
tritonhook mem calibrate
"""

from __future__ import annotations

import argparse
from importlib import import_module

ACTIONS = ("predict", "fix", "watch", "compare", "calibrate")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    for name in ACTIONS:
        module = import_module(f"tritonhook.cli.mem.{name}")
        text = (module.__doc__ or "").strip()
        sub = actions.add_parser(
            name,
            help=text.splitlines()[0],
            description=text,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        module.add_arguments(sub)
        sub.set_defaults(act=module.run)


def run(arguments: argparse.Namespace) -> int:
    return int(arguments.act(arguments))
