"""Rename or rewrite the kernels of a PTX file, token for token.

tritonhook rename in.ptx --prefix cutlass_ -o out.ptx
tritonhook rename in.ptx --strip
tritonhook rename in.ptx --to old=new
tritonhook rename in.ptx --rewrite mma-throughput -o out.ptx
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from tritonhook.capture.settings import rewrite_by_name
from tritonhook.capture.store import read_capture
from tritonhook.cli._inputs import place, read_bytes
from tritonhook.cli._parser import Group, option, part
from tritonhook.cli._renames import RenameOptions, check_mapping, rewrite_option
from tritonhook.cli._results import Results, give, write_new
from tritonhook.cli._streams import write_out
from tritonhook.errors import UsageError
from tritonhook.ptx.module import Ptx

if TYPE_CHECKING:
    from tritonhook.report.result import Summary
    from tritonhook.report.results.tools import Renamed


@dataclass(frozen=True, kw_only=True)
class Options(Group):
    ptx: str = place(help="PTX file, or captured kernel or its id")
    rename: RenameOptions = part(RenameOptions)
    rewrite: tuple[str, ...] = rewrite_option("rewrite kernels, after a rename")
    entry: str | None = option(metavar="NAME", help="change only this kernel (default: all)")
    output: str | None = option("-o", "--output", metavar="FILE", help="output file (default, and -: standard output)")
    results: Results = part(Results)


def run(options: Options) -> int:
    from msgspec import UNSET

    from tritonhook.report.results.tools import Renamed

    rename = options.rename.wanted()
    if rename is None and not options.rewrite:
        raise UsageError("nothing to change; give --prefix cutlass_, --strip, --to OLD=NEW, or --rewrite NAME")
    options = replace(options, output=None) if options.output == "-" else options
    ptx = _read(Path(options.ptx))
    if not ptx.entries:
        raise UsageError(f"{options.ptx}: no kernel (.entry) in it, only functions; there is nothing to change")
    chosen = ptx.entries if options.entry is None else (ptx.only_entry(options.entry),)
    names: dict[str, str] = {}
    if rename is not None:
        check_mapping(rename, ptx, options.ptx)
        names = rename.new_names(chosen)
    changes = ptx.entry_changes(names)
    renamed = ptx.substitute(changes)
    entries = None if options.entry is None else tuple(names.get(name, name) for name in chosen)
    remarks: list[str] = []
    for name in options.rewrite:
        renamed, said = rewrite_by_name(renamed, name, entries)
        remarks += said
    if options.output:
        write_new(Path(options.output), renamed.text, options.results.force)
    tokens = ptx.uses(*changes)
    text = UNSET if options.output else renamed.text
    result = Renamed(options.ptx, names, tokens, options.output, tuple(remarks), text)
    give(options.results, result, show=lambda summary: _show(summary, result))
    return 0


def _read(path: Path) -> Ptx:
    if (path / "capture.json").exists():
        return read_capture(path).ptx
    return Ptx.from_bytes(read_bytes(path), str(path))


def _show(summary: Summary, result: Renamed) -> None:
    """Print the PTX on standard output unless it was written to a file, and the report on standard error."""
    write_out(result.ptx or "", exact=True)
    for line in summary.facts:
        print(line, file=sys.stderr)
    if result.output:
        done = f"{summary.verdict}; " if result.tokens else ""
        print(f"{done}wrote {result.output}", file=sys.stderr)
