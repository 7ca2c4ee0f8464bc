"""What is on the pages of the kinds of results that have a page of their own."""

from __future__ import annotations

import json

import pytest
from documents import golden, page_of
from html_tree import parse
from screens import Screens

from tritonhook.report.render.html import render_html


@pytest.mark.parametrize("kind", ["ab", "capture", "captures", "diff", "memory"])
def test_a_page_shows_what_its_golden_file_has(kind: str, screens: Screens) -> None:
    """All elements, texts and places, and the values that the script reads. --update writes the file again."""
    page = page_of(golden(kind))
    lines = list(parse(render_html(page, "saved.json")).one("main").outline())
    lines += [f"{key}: {json.dumps(value)}" for key, values in (page.data or {}).items() for value in values]
    screens.check_page(kind, "".join(f"{line}\n" for line in lines))


def test_a_page_has_no_empty_table() -> None:
    text = render_html(page_of(golden("capture") | {"options": {}, "metadata": {}}))
    assert "<h2>Metadata</h2>" in render_html(page_of(golden("capture")))
    assert "<h2>Metadata</h2>" not in text and "<h2>Options</h2>" not in text
