"""The page of one file with GPU code: its tables, and a listing for each kernel whose code the document holds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tritonhook.report.documents.code import read_code
from tritonhook.report.pages.listing import single_listing
from tritonhook.report.summaries.captures import names_of
from tritonhook.report.summaries.file import file_summary
from tritonhook.report.summary import Page

_MOST = 20  # listings; the page holds the code of each


def file_page(document: Mapping[str, Any]) -> Page:
    """The document must fit its schema (report/schema)."""
    names = names_of(document["kernels"])
    listings = [
        {
            "id": f"sass-{number}",
            "title": f"{names[kernel['kernel']]}, {kernel['arch']}",
            "kind": "sass",
            **single_listing(read_code(kernel["code"])),
        }
        for number, kernel in enumerate(document["kernels"])
        if "code" in kernel
    ]
    shown = listings[:_MOST]
    why = None if shown else "This document holds no code."
    parts = {"why_no_code": why, "left_out": len(listings) - len(shown)}
    return Page(file_summary(document), "file", parts, {"listings": shown} if shown else None)
