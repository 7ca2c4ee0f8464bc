"""Rename the kernels of a PTX file, token for token.

tritonhook rename in.ptx --prefix cutlass_ -o out.ptx
tritonhook rename in.ptx --strip
tritonhook rename in.ptx --to old=new
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tritonhook.cli._files import read_bytes, write_new
from tritonhook.cli._streams import add_json, show_json, write_out
from tritonhook.errors import PtxError, UsageError
from tritonhook.ptx.module import Ptx
from tritonhook.rename import TRIGGER, Rename, make_rename


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("ptx", help="PTX file")
    add_rename(parser)
    parser.add_argument("--entry", help="rename only this entry (default: all of them)")
    parser.add_argument("-o", "--output", metavar="FILE", help="write here (default: standard output)")
    parser.add_argument("--force", action="store_true", help="replace the output file if it exists")
    add_json(parser)


def add_rename(parser: argparse.ArgumentParser) -> None:
    """The options that say how to rename; shared by rename, ab and run."""
    parser.add_argument("--prefix", help='put this in front of kernel names, e.g. "cutlass_"')
    words = parser.add_mutually_exclusive_group()
    words.add_argument("--strip", action="store_true", help=f'remove "{TRIGGER}" from names')
    words.add_argument("--strip-word", metavar="WORD", help="remove this word from names")
    parser.add_argument("--to", action="append", default=[], metavar="OLD=NEW", help="rename exactly; may be repeated")


def wanted_rename(arguments: argparse.Namespace) -> Rename | None:
    """The Rename the options ask for; None if they ask for none."""
    pairs = [item.partition("=") for item in arguments.to]
    if wrong := [old for old, equals, new in pairs if not (old and equals and new)]:
        raise UsageError(f"--to {wrong[0]}: write OLD=NEW")
    if "" in (arguments.prefix, arguments.strip_word):
        raise UsageError(f"{'--prefix' if arguments.prefix == '' else '--strip-word'} '': give at least one letter")
    strip = arguments.strip_word or arguments.strip
    if pairs and (arguments.prefix or strip):
        raise UsageError("--to names kernels exactly; do not mix it with --prefix or --strip")
    if pairs:
        return make_rename({old: new for old, _, new in pairs})
    return make_rename(arguments.prefix, strip)


def check_mapping(rename: Rename, ptx: Ptx, label: str) -> None:
    """Raises PtxError if `rename` maps a name that no entry has."""
    if missing := [old for old, _ in rename.mapping if old not in ptx.entries]:
        raise PtxError(f"{label}: no entry {missing[0]!r}; it has: {', '.join(ptx.entries) or 'none'}")


def run(arguments: argparse.Namespace) -> int:
    rename = wanted_rename(arguments)
    if rename is None:
        raise UsageError("say how: --prefix cutlass_, --strip, or --to OLD=NEW")
    ptx = Ptx.from_bytes(read_bytes(Path(arguments.ptx)), arguments.ptx)
    chosen = ptx.entries if arguments.entry is None else (ptx.only_entry(arguments.entry),)
    check_mapping(rename, ptx, arguments.ptx)
    names = {name: rename.new_name(name) for name in chosen}
    changes = ptx.entry_changes(names)
    renamed = ptx.substitute(changes)
    if arguments.output:
        write_new(Path(arguments.output), renamed.text, arguments.force)
    elif not arguments.json:
        write_out(renamed.text)
    tokens = sum(map(ptx.uses, changes))
    if arguments.json:
        document = {"format": 1, "names": names, "tokens": tokens, "output": arguments.output}
        show_json(document if arguments.output else document | {"ptx": renamed.text})
    else:
        for old, new in names.items():
            print(f"{old} -> {new}" if old != new else f"{old}: stays", file=sys.stderr)
        if arguments.output:
            print(f"{tokens} tokens replaced; wrote {arguments.output}", file=sys.stderr)
    return 0
