"""What results show of themselves in a notebook."""

from __future__ import annotations

import subprocess
import sys

from documents import HOSTILE, golden
from html_tree import parse

from tests.compare.test_diff import compare
from tritonhook._util.schema import as_schema
from tritonhook.report.render.notebook import _MOST_ROWS, render_fragment, result_of
from tritonhook.report.result import Summary, Table, Tone
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


def test_a_summary_as_html_part_by_part() -> None:
    """Verdict, subject, facts, a table with its tones cut at 30 rows, and notes; an empty table is left out."""
    rows = tuple((f"k{n}", f"{n}", "w") for n in range(_MOST_ROWS + 2))
    tones = (Tone.BAD, Tone.GOOD, *(Tone.CHANGED,) * _MOST_ROWS)
    many = Table("Many", ("name", "n", "why"), rows, words=(2,), tones=tones)
    summary = Summary("Kind<", "sub", "v" * 401, Tone.UNSURE, ("fact",), (many, Table("none", ("a",), ())), ("note",))
    tree = parse(render_fragment(summary))
    lines = list(tree.outline())
    short = "v" * 266 + "…" + "v" * 100
    assert lines[1:9] == [
        " <div style='font-family:system-ui,sans-serif;line-height:1.45;max-width:960px'>",
        f"  <div style='font-size:1.35em;font-weight:600;color:#b07a10'> {short}",
        "  <div style='opacity:.75'> Kind<:",
        *("   <code> sub", "  <ul>", "   <li> fact", "  <p>", "   <b> Many"),
    ]
    left, right = ("style='text-align:left;{}'", "style='text-align:right;{}'")
    assert lines[9:15] == [
        *("  <table>", "   <thead>", "    <tr>"),
        f"     <th {left.format('')}> name",
        f"     <th {right.format('')}> n",
        f"     <th {left.format('')}> why",
    ]
    for n, style in enumerate(("color:#d0433a;font-weight:600", "color:#1f8f55;font-weight:600", "")):
        cells = ((left, f"k{n}"), (right, f"{n}"), (left, "w"))
        assert lines[17 + 4 * n : 20 + 4 * n] == [f"     <td {side.format(style)}> {text}" for side, text in cells]
    assert len(tree.one("tbody").children) == _MOST_ROWS
    assert lines[-2:] == ["  <div> 2 further rows", "  <div style='opacity:.75'> note"]
    whole = Summary("K", "s", "v", Tone.NEUTRAL, (), (Table("T", ("a",), rows[:_MOST_ROWS]),))
    assert "further" not in render_fragment(whole) and "<ul>" not in render_fragment(whole)
    assert result_of("no result") is None
