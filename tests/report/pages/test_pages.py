"""Which kinds of results have a page of their own."""

from __future__ import annotations

from importlib import import_module

from tritonhook.report import pages
from tritonhook.report.result import kinds


def test_every_page_is_of_a_kind_and_is_there() -> None:
    assert pages._PAGES.keys() <= kinds().keys()
    for module, function in pages._PAGES.values():
        assert callable(getattr(import_module(f"{pages.__name__}.{module}"), function))
