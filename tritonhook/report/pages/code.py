"""HTML pages with code listings: of a diff, of a kernel under several names, of a capture, of a file with GPU code.

The page of a diff also draws the layout of both cubins as bars.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from msgspec import UNSET

from tritonhook.cubin.byte_map import CATEGORIES, category
from tritonhook.report.pages.listing import sass_listing, single_listing, text_listing
from tritonhook.report.result import Page, Summary, Table, count, flat, number, short, signed
from tritonhook.report.results.capture import CapturedOne, source_summary
from tritonhook.report.results.diff import Diff, DiffSide
from tritonhook.report.results.file import File
from tritonhook.report.results.names import Demo, Names

_MOST = 20  # maximum number of kernels of a file whose code is listed
_NO_CODE = "This document has no code."
Listing = dict[str, Any]


def _page(summary: Summary, listings: Iterable[Listing], no_code: str, layout: dict[str, Any] | None = None) -> Page:
    shown = list(listings)
    parts = {"layout": layout, "categories": CATEGORIES, "no_code": None if shown else no_code}
    return Page(summary, "code", parts, {"listings": shown} if shown else None)


# --- two kernels ---------------------------------------------------------------------------------


def diff_page(diff: Diff, summary: Summary | None = None) -> Page:
    """Make the page of a diff. summary: the Summary of the whole page, if the page shows more than the diff."""
    no_code = f"{_NO_CODE} `tritonhook diff A B` includes it with `--save FILE` or `--html FILE`."
    return _page(summary or diff.summary(), _of_diff(diff), no_code, _layout(diff.a, diff.b))


def names_page(names: Names, summary: Summary | None = None) -> Page:
    """Make the page of a kernel that was assembled under several names. It lists the code under the two names of equal
    length, unless ptxas crashed under one of them."""
    summary = summary or names.summary()
    return Page(summary) if names.diff is None else diff_page(names.diff, summary)


def demo_page(demo: Demo) -> Page:
    return names_page(demo.first, demo.summary())


def _of_diff(diff: Diff) -> Iterator[Listing]:
    if diff.code:
        a, b = diff.code.a, diff.code.b
        yield {"id": "sass", "title": "SASS", "kind": "sass", **sass_listing(a, b, diff.sass.loops)}
        if a.ptx is not None and b.ptx is not None:
            yield {"id": "ptx", "title": "PTX", "kind": "text", **text_listing(a.ptx, b.ptx, (a.kernel, b.kernel))}


def _layout(a_side: DiffSide, b_side: DiffSide) -> dict[str, Any] | None:
    """Describe both cubin files as bars on one scale, divided into labelled parts, with a table of the parts' sizes.
    Return None if a side has no layout."""
    if a_side.layout is UNSET or b_side.layout is UNSET:
        return None
    longest = max(a_side.file_bytes, b_side.file_bytes) or 1
    a, b = (_sizes(layout) for layout in (a_side.layout, b_side.layout))
    labels = sorted({**a, **b}, key=lambda label: -max(a[label], b[label]))
    parts = (
        [(label, end - start, 100 * start / longest, 100 * (end - start) / longest) for label, start, end in layout]
        for layout in (a_side.layout, b_side.layout)
    )
    rows = [(label, number(a[label]), number(b[label]), signed(b[label] - a[label])) for label in labels]
    rows.append(("the file", number(a.total()), number(b.total()), signed(b.total() - a.total())))
    return {
        "bars": list(zip(("a", "b"), parts, (a.total(), b.total()), strict=True)),
        "table": Table("Parts of the files, bytes", ("part", "a", "b", "change"), tuple(rows)),
        "categories": {label: CATEGORIES.index(category(label)) for label in labels},
    }


def _sizes(layout: Iterable[tuple[str, int, int]]) -> Counter[str]:
    """Add up the bytes of each part, by label."""
    sizes: Counter[str] = Counter()
    for label, start, end in layout:
        sizes[label] += end - start
    return sizes


# --- one kernel, one file ------------------------------------------------------------------------


def capture_page(capture: CapturedOne) -> Page:
    """Make the page of one captured kernel, with listings of its machine code and its stages if the result includes
    them."""
    summary = capture.summary()
    metadata = tuple((name, short(text, 300)) for name, text in flat(capture.metadata))
    tables, notes = [*summary.tables, Table("Metadata", ("", ""), metadata, 2)], list(summary.notes)
    if capture.code:
        source = source_summary(capture.code)
        tables, notes = [*tables, *source.tables], [*notes, *source.notes]
    no_code = f"{_NO_CODE} `tritonhook show CAPTURE --html FILE` reads the code from the capture's folder."
    return _page(replace(summary, tables=tuple(tables), notes=tuple(notes)), _of_capture(capture), no_code)


def _of_capture(capture: CapturedOne) -> Iterator[Listing]:
    if capture.code:
        yield {"id": "sass", "title": "SASS", "kind": "sass", **single_listing(capture.code)}
    for stage, text in (capture.artifacts or {}).items():
        yield {"id": stage, "title": "PTX" if stage == "ptx" else stage, "kind": "text", **text_listing(text)}


def file_page(file: File) -> Page:
    names, summary = file.names(), file.summary()
    coded = [(f"{names[k.kernel]}, {k.arch}", number, k.code) for number, k in enumerate(file.kernels) if k.code]
    listings = (
        {"id": f"sass-{number}", "title": title, "kind": "sass", **single_listing(code)}
        for title, number, code in coded[:_MOST]
    )
    if (left_out := len(coded) - _MOST) > 0:
        note = f"code of {count(left_out, 'further kernel')} left out; --entry NAME shows the code of one kernel"
        summary = replace(summary, notes=(*summary.notes, note))
    return _page(summary, listings, _NO_CODE)
