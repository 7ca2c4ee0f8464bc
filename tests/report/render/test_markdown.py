"""A Summary as Markdown: every kind has one, and no text of a result becomes markup."""

from __future__ import annotations

import re

import pytest
from documents import HOSTILE, KINDS, golden, summary_of

from tritonhook.report.render.markdown import SIGNS, code_span, escaped, render_markdown
from tritonhook.report.result import Summary, Table, Tone


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_has_a_markdown_summary(kind: str) -> None:
    text = render_markdown(summary_of(golden(kind)))
    assert text.startswith(tuple(f"### {sign} " for sign in SIGNS.values())) and text.endswith("\n")
    widths: list[int] = []
    for line in text.splitlines():
        if line.startswith("|"):
            widths.append(line.replace("\\|", "").count("|"))
        else:
            assert len(set(widths)) <= 1
            widths = []


def test_the_markdown_of_a_diff_says_what_got_worse() -> None:
    document = golden("diff")
    document["resources"][0] |= {"a": 100, "b": 125}
    text = render_markdown(summary_of(document))
    assert text.startswith("### 🔴 Diff: different code\n")
    assert "| **registers** | **100** | **125** | **+25** | **worse, +25.0%** |" in text


@pytest.mark.parametrize(
    "text", [HOSTILE, "@everyone", "a|b", "`x`", "[a](http://b)", "![i](x)", "line\nbreak", "<b>", "#1"]
)
def test_markdown_stays_text(text: str) -> None:
    table = Table(text, (text,), ((text,),))
    rendered = render_markdown(Summary(text, text, text, Tone.BAD, (text,), (table,), (text,)))
    outside = re.sub(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)", "", rendered)
    assert "http://" not in outside
    for special in "<[@!#":
        for line in outside.splitlines():
            found = line.removeprefix("### ").replace(f"\\{special}", "")
            assert special not in found, (special, line[:80])
    assert len(rendered.splitlines()) < 20


def test_code_spans_hold_backquotes() -> None:
    assert code_span("a``b") == "```a``b```"
    assert code_span("`") == "`` ` ``"
    assert escaped("use `--save` now") == "use `--save` now"
