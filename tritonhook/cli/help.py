"""Explain a verb, as --help does; without a verb, list all verbs.

tritonhook help diff
tritonhook help mem predict
"""

from __future__ import annotations

from dataclasses import dataclass

from tritonhook.cli._parser import Group, argument


@dataclass(frozen=True, kw_only=True)
class Options(Group):
    words: tuple[str, ...] = argument(nargs="*", metavar="VERB", help="a verb, or a verb and its action")


def run(options: Options) -> int:
    from tritonhook.cli import parser

    parser().parse_args([*options.words, "--help"])
    return 0
