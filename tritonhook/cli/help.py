"""Explain a verb, as its --help does; without a verb, list all verbs.

tritonhook help diff
tritonhook help mem predict
"""

from __future__ import annotations

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("words", nargs="*", metavar="VERB", help="a verb, and an action of it")


def run(arguments: argparse.Namespace) -> int:
    from tritonhook.cli import parser

    parser().parse_args([*arguments.words, "--help"])
    return 0
