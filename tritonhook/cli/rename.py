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
from typing import TYPE_CHECKING, Any

from tritonhook.capture.settings import REWRITES, rewrite_by_name
from tritonhook.capture.store import read_capture
from tritonhook.cli._files import write_new
from tritonhook.cli._inputs import place, read_bytes
from tritonhook.cli._parser import Group, flag, option, part
from tritonhook.cli._results import Results, give
from tritonhook.cli._streams import write_out
from tritonhook.errors import PtxError, UsageError, listed
from tritonhook.ptx.module import Ptx
from tritonhook.rename import TRIGGER, Rename, make_rename

if TYPE_CHECKING:
    from tritonhook.report.result import Summary
    from tritonhook.report.results.tools import Renamed


@dataclass(frozen=True, kw_only=True)
class RenameOptions(Group):
    """How kernels are renamed: for rename, run, diff and ab."""

    prefix: str | None = option(help='prefix for kernel names, e.g. "cutlass_"')
    strip: bool = flag(help=f'remove "{TRIGGER}" from names')
    to: tuple[str, ...] = option(action="append", default=[], metavar="OLD=NEW", help="rename exactly; may be repeated")

    def wanted(self) -> Rename | None:
        """Build the rename from the options; None if they contain none. Raises UsageError."""
        pairs = [item.partition("=") for item in self.to]
        if wrong := [old for old, equals, new in pairs if not (old and equals and new)]:
            raise UsageError(f"--to {wrong[0]}: write OLD=NEW")
        if self.prefix == "":
            raise UsageError("--prefix '': give at least one letter")
        if pairs and (self.prefix or self.strip):
            raise UsageError("--to names kernels exactly; do not combine it with --prefix or --strip")
        if pairs:
            return make_rename({old: new for old, _, new in pairs})
        return make_rename(self.prefix, self.strip)


def rewrite_option(what: str) -> Any:
    """Declare --rewrite NAME, which may be repeated. what: its effect, for the help."""
    return option(
        action="append",
        default=[],
        choices=REWRITES,
        metavar="NAME",
        help=f"{what}: {' or '.join(REWRITES)}; may be repeated",
    )


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
        raise UsageError("say how: --prefix cutlass_, --strip, --to OLD=NEW, or --rewrite NAME")
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
    """Print the PTX, unless a file was named for it; report on standard error."""
    write_out(result.ptx or "", exact=True)
    for line in summary.facts:
        print(line, file=sys.stderr)
    if result.output:
        done = f"{summary.verdict}; " if result.tokens else ""
        print(f"{done}wrote {result.output}", file=sys.stderr)


def check_mapping(rename: Rename, ptx: Ptx, label: str) -> None:
    """Raise PtxError if `rename` maps a name that no entry has."""
    entries = set(ptx.entries)
    if missing := [old for old, _ in rename.mapping if old not in entries]:
        raise PtxError(f"{label}: no entry {missing[0]!r}; it has: {listed(ptx.entries)}")
