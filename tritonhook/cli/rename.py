"""Rename or rewrite the kernels of a PTX file, token for token.

tritonhook rename in.ptx --prefix cutlass_ -o out.ptx
tritonhook rename in.ptx --strip
tritonhook rename in.ptx --to old=new
tritonhook rename in.ptx --rewrite mma-throughput -o out.ptx
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tritonhook.capture.settings import rewrite_by_name
from tritonhook.capture.store import read_capture
from tritonhook.cli._files import read_bytes, write_new
from tritonhook.cli._places import add_place
from tritonhook.cli._renames import add_rename, add_rewrite, check_mapping, wanted_rename
from tritonhook.cli._results import add_results, give
from tritonhook.cli._streams import write_out
from tritonhook.errors import UsageError
from tritonhook.ptx.module import Ptx

if TYPE_CHECKING:
    from tritonhook.report.summary import Summary


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_place(parser, "ptx", help="PTX file, or captured kernel or its id")
    add_rename(parser)
    add_rewrite(parser, "rewrite kernels, after a rename")
    parser.add_argument("--entry", metavar="NAME", help="change only this kernel (default: all)")
    parser.add_argument("-o", "--output", metavar="FILE", help="write here (default: standard output)")
    add_results(parser)


def run(arguments: argparse.Namespace) -> int:
    rename = wanted_rename(arguments)
    if rename is None and not arguments.rewrite:
        raise UsageError("say how: --prefix cutlass_, --strip, --to OLD=NEW, or --rewrite NAME")
    ptx = _read(Path(arguments.ptx))
    if not ptx.entries:
        raise UsageError(f"{arguments.ptx}: no kernel (.entry) in it, only functions; there is nothing to change")
    chosen = ptx.entries if arguments.entry is None else (ptx.only_entry(arguments.entry),)
    names: dict[str, str] = {}
    if rename is not None:
        check_mapping(rename, ptx, arguments.ptx)
        names = rename.new_names(chosen)
    changes = ptx.entry_changes(names)
    renamed = ptx.substitute(changes)
    entries = None if arguments.entry is None else tuple(names.get(name, name) for name in chosen)
    remarks: list[str] = []
    for name in arguments.rewrite:
        renamed, said = rewrite_by_name(renamed, name, entries)
        remarks += said
    if arguments.output:
        write_new(Path(arguments.output), renamed.text, arguments.force)
    tokens = ptx.uses(*changes)
    document = {"format": 1, "kind": "rename", "file": arguments.ptx, "names": names, "tokens": tokens}
    document |= {"output": arguments.output, "remarks": remarks}
    document |= {} if arguments.output else {"ptx": renamed.text}
    give(arguments, lambda full: document, show=lambda summary: _show(summary, document))
    return 0


def _read(path: Path) -> Ptx:
    if (path / "capture.json").exists():
        return read_capture(path).ptx
    return Ptx.from_bytes(read_bytes(path), str(path))


def _show(summary: Summary, document: Mapping[str, Any]) -> None:
    """Print the PTX, if no file was named for it, and what was done on standard error."""
    write_out(document.get("ptx", ""), exact=True)
    for line in summary.facts:
        print(line, file=sys.stderr)
    if document["output"]:
        done = f"{summary.verdict}; " if document["tokens"] else ""
        print(f"{done}wrote {document['output']}", file=sys.stderr)
