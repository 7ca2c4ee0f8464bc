"""Show a saved result again, or make an HTML page of it: captures, a diff, a timed comparison, a memory timeline.

The page is one file: it needs no network and no GPU. PATH is a capture folder, one capture, or a file that a verb
wrote with --save or --json.

  tritonhook report tritonhook-captures --html captures.html
  tritonhook report diff.json
  tritonhook report diff.json --markdown >> $GITHUB_STEP_SUMMARY
  tritonhook report memory.json --trace trace.json     # ui.perfetto.dev opens the trace
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tritonhook.cli._inputs import load_captures, place, read_bytes
from tritonhook.cli._parser import Group, option, part
from tritonhook.cli._streams import Results, check_new, give, to_json, write_new
from tritonhook.errors import UsageError

if TYPE_CHECKING:
    from tritonhook.report.result import Result


@dataclass(frozen=True, kw_only=True)
class Options(Group):
    path: str = place(metavar="PATH", help="capture folder, captured kernel or its id, or saved result")
    trace: str | None = option(metavar="FILE", help="also write a trace for Perfetto (memory timelines only)")
    pick: str | None = option(metavar="NAME|N", help="which comparison, if the file has several")
    results: Results = part(Results)


def run(options: Options) -> int:
    from tritonhook.report.result import fitting

    place = Path(options.path)
    if options.trace:
        check_new(Path(options.trace), options.results.force)
    try:
        result = _read(place, options.pick)
        fitting(result.page)  # raises, before anything is printed or written, if the document is damaged
        if options.trace:
            _write_trace(result, Path(options.trace), options.results.force)
    except UsageError as error:
        raise UsageError(f"{place}: {error}") from None
    give(options.results, result, place.name)
    return 0


def _read(place: Path, pick: str | None) -> Result:
    from tritonhook._util.schema import MOST_JSON, read_json
    from tritonhook.report.result import read_result

    if place.is_dir():
        _refuse_pick(pick)
        return load_captures(place)
    if not place.exists():
        raise UsageError("no such file or folder")
    data = read_bytes(place, MOST_JSON)
    try:
        document = read_json(data, Any)
    except ValueError as error:
        raise UsageError(_no_json(data, error)) from None
    if not isinstance(document, dict):
        raise UsageError("JSON, but no result; give what a verb wrote with --save or --json")
    return read_result(_picked(document, pick))


def _no_json(data: bytes, error: Exception) -> str:
    """What kind of file it is if not JSON, and which command makes a report of it."""
    elf = data[:4] == b"\x7fELF"
    if elf or (b".version" in data[:4096] and data.lstrip()[:1] not in b"{["):
        what = "an ELF image" if elf else "PTX"
        return f"{what}, no saved result; `tritonhook diff A B --html FILE` makes a page of two kernels"
    if "\ufffd" in data[:4096].decode("utf-8", "replace")[:-1]:
        return "a binary file, no saved result; give what a verb wrote with --save or --json"
    return f"no JSON, or only a part of it ({error}); give what a verb wrote with --save or --json"


def _refuse_pick(pick: str | None) -> None:
    if pick is not None:
        raise UsageError("holds one result; leave --pick out")


def _picked(document: dict[str, Any], pick: str | None) -> dict[str, Any]:
    """One comparison of a file that has several, as some in benchmarks/results/ have."""
    samples = document.get("samples")
    rows = samples if isinstance(samples, list) else []
    comparisons = [s for s in rows if isinstance(s, Mapping) and "comparison" in s]
    if not comparisons:
        _refuse_pick(pick)
        return document
    labels = [
        ", ".join(str(s[key]) for key in ("kernel", "ptxas") if key in s) or str(n) for n, s in enumerate(comparisons)
    ]
    fitting = [n for n, label in enumerate(labels) if pick in (label, label.partition(",")[0], str(n))]
    if len(fitting) != 1:
        shown = fitting or range(len(labels))
        listed = "".join(f"\n  {n}  {labels[n]}" for n in shown)
        what = "" if pick is None else f"--pick {pick}: {len(fitting) or 'none'} of "
        raise UsageError(f"{what}{len(comparisons)} comparisons; choose one with --pick:{listed}")
    return dict(comparisons[fitting[0]]["comparison"])


def _write_trace(result: Result, path: Path, force: bool) -> None:
    from tritonhook.report.export.perfetto import chrome_trace
    from tritonhook.report.results.memory import Memory

    if not isinstance(result, Memory):
        raise UsageError("--trace is for memory timelines, and this result is not one")
    write_new(path, to_json(chrome_trace(result.values())), force)
    print(f"wrote {path}", file=sys.stderr)
