"""The options that say how kernels are renamed."""

from __future__ import annotations

import argparse

from tritonhook.capture.settings import REWRITES
from tritonhook.errors import PtxError, UsageError, listed
from tritonhook.ptx.module import Ptx
from tritonhook.rename import TRIGGER, Rename, make_rename


def add_rename(parser: argparse.ArgumentParser) -> None:
    """Add the options that say how to rename; for rename, ab and run."""
    parser.add_argument("--prefix", help='put this in front of kernel names, e.g. "cutlass_"')
    words = parser.add_mutually_exclusive_group()
    words.add_argument("--strip", action="store_true", help=f'remove "{TRIGGER}" from names')
    words.add_argument("--strip-word", metavar="WORD", help="remove this word from names")
    parser.add_argument("--to", action="append", default=[], metavar="OLD=NEW", help="rename exactly; may be repeated")


def add_rewrite(parser: argparse._ActionsContainer, what: str) -> None:
    """Add --rewrite NAME, which may be repeated. what: what it does, for the help."""
    parser.add_argument(
        "--rewrite",
        action="append",
        default=[],
        choices=REWRITES,
        metavar="NAME",
        help=f"{what}: {' or '.join(REWRITES)}; may be repeated",
    )


def wanted_rename(arguments: argparse.Namespace) -> Rename | None:
    """The rename that the options ask for; None if they ask for none. Raises UsageError."""
    pairs = [item.partition("=") for item in arguments.to]
    if wrong := [old for old, equals, new in pairs if not (old and equals and new)]:
        raise UsageError(f"--to {wrong[0]}: write OLD=NEW")
    if "" in (arguments.prefix, arguments.strip_word):
        raise UsageError(f"{'--prefix' if arguments.prefix == '' else '--strip-word'} '': give at least one letter")
    strip = arguments.strip_word or arguments.strip
    if pairs and (arguments.prefix or strip):
        raise UsageError("--to names kernels exactly; do not combine it with --prefix or --strip")
    if pairs:
        return make_rename({old: new for old, _, new in pairs})
    return make_rename(arguments.prefix, strip)


def check_mapping(rename: Rename, ptx: Ptx, label: str) -> None:
    """Raises PtxError if `rename` maps a name that no entry has."""
    entries = set(ptx.entries)
    if missing := [old for old, _ in rename.mapping if old not in entries]:
        raise PtxError(f"{label}: no entry {missing[0]!r}; it has: {listed(ptx.entries)}")
