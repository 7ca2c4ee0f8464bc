"""Which kinds of results have a page of their own, and what is on it."""

from __future__ import annotations

import json
from functools import partial
from importlib import import_module

import pytest
from documents import KINDS, golden, page_of
from html_tree import parse
from odd_documents import ODD
from screens import Screens

from tritonhook.report import pages
from tritonhook.report.render.html import render_html
from tritonhook.report.result import kinds

DRAWN = {kind: partial(golden, kind) for kind in KINDS if kind in pages._PAGES} | ODD


def test_every_page_is_of_a_kind_and_is_there() -> None:
    assert pages._PAGES.keys() <= kinds().keys()
    for module, function in pages._PAGES.values():
        assert callable(getattr(import_module(f"{pages.__name__}.{module}"), function))


@pytest.mark.parametrize("name", DRAWN)
def test_a_page_shows_what_its_golden_file_has(name: str, screens: Screens) -> None:
    """All elements, texts and places, and the values that the script reads. --update writes the file again."""
    page = page_of(DRAWN[name]())
    lines = list(parse(render_html(page, "saved.json")).one("main").outline())
    lines += [f"{key}: {json.dumps(value)}" for key, values in (page.data or {}).items() for value in values]
    screens.check_page(name, "".join(f"{line}\n" for line in lines))
