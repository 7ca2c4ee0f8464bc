"""Predict, watch, compare and remove GPU memory that no allocator shows.

tritonhook mem predict CAPTURE|CUBIN|PTX --gpu "RTX 5090" --fail-over 256MiB
tritonhook mem fix kernel.ptx -o fixed.ptx
tritonhook mem watch script.py
tritonhook mem compare --variants plain,tma examples/tma_memory.py
tritonhook mem calibrate
"""

from __future__ import annotations

import argparse

from tritonhook.cli._parser import Parser
from tritonhook.cli._verbs import add_verbs

ACTIONS = ("predict", "fix", "watch", "compare", "calibrate")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True, parser_class=Parser)
    add_verbs(actions, "tritonhook.cli.mem", ACTIONS, to="act")


def run(arguments: argparse.Namespace) -> int:
    return int(arguments.act(arguments))
