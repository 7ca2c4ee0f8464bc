"""What results show of themselves in a notebook."""

from __future__ import annotations

import subprocess
import sys

from documents import HOSTILE, golden
from html_tree import parse

from tests.compare.test_diff import compare
from tritonhook._util.schema import as_schema
from tritonhook.report.results.ab import TimedComparison
from tritonhook.report.results.memory import Memory


def test_results_show_themselves_in_notebooks() -> None:
    diff = compare("sm_90a.exp.plain", "sm_90a.exp.cutlass")
    (timeline,) = as_schema(golden("memory"), Memory).values()
    for value, words in (
        (diff, "only scheduling differs"),
        (as_schema(golden("ab"), TimedComparison), "Slower by"),
        (timeline, "that no allocator shows"),
    ):
        html = value._repr_html_()
        assert html is not None
        tree = parse(html)
        assert words in tree.text and list(tree.all("table"))
        assert not list(tree.all("script")) and not list(tree.all("style"))


def test_hostile_names_are_text_in_notebooks(tmp_path) -> None:
    from tritonhook.capture.model import Capture, Stage

    html = Capture(HOSTILE, HOSTILE, "sm_90a", {Stage.PTX: "x"}, note=HOSTILE)._repr_html_()
    assert html is not None
    tree = parse(html)
    assert not list(tree.all("script")) and not list(tree.all("img")) and "<script>" in tree.text


def test_a_notebook_needs_neither_jinja2_nor_reports_before_it_asks() -> None:
    code = (
        "import sys, tritonhook.compare.diff, tritonhook.memory.timeline\n"
        "assert not [m for m in sys.modules if m.startswith('tritonhook.report')]\n"
        "sys.modules['jinja2'] = None\n"
        "import tritonhook.report.render.notebook\n"
        "print('jinja2' in sys.modules and sys.modules['jinja2'] is None)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "True"
