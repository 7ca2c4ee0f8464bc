"""The page of one file with GPU code: its tables, and a listing for each kernel whose code the result holds."""

from __future__ import annotations

from tritonhook.report.pages.listing import single_listing
from tritonhook.report.results.file import File
from tritonhook.report.summary import Page

_MOST = 20  # listings; the page holds the code of each


def file_page(file: File) -> Page:
    names = file.names()
    coded = [(f"{names[k.kernel]}, {k.arch}", number, k.code) for number, k in enumerate(file.kernels) if k.code]
    listings = [
        {"id": f"sass-{number}", "title": title, "kind": "sass", **single_listing(code)}
        for title, number, code in coded[:_MOST]
    ]
    why = None if listings else "This document holds no code."
    parts = {"why_no_code": why, "left_out": len(coded) - len(listings)}
    return Page(file.summary(), "file", parts, {"listings": listings} if listings else None)
