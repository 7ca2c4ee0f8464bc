"""A Summary as Markdown: every kind has one, and no text of a result becomes markup."""

from __future__ import annotations

import re

import pytest
from documents import HOSTILE, KINDS, golden, summary_of

from tritonhook.report.render.markdown import code_span, escaped, render_markdown
from tritonhook.report.result import Summary, Table, Tone


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_has_a_markdown_summary(kind: str) -> None:
    text = render_markdown(summary_of(golden(kind)))
    assert text.startswith("### :") and text.endswith("\n")
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
    assert text.startswith("### :red_circle: Diff: different code\n")
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


ROWS = tuple((f"k{n}", f"{n:,}", "" if n else "a|b") for n in range(62))
TONES = (Tone.BAD, *(Tone.GOOD,) * 61)
SUMMARY = Summary(
    "Kind",
    "s`" * 150,
    "worse_now",
    Tone.BAD,
    ("a *fact*", "`code` and <b>"),
    (
        Table("Many", ("", "n", "why"), ROWS, words=(2,), tones=TONES),
        Table("None", ("a",), ()),
        Table("", ("a",), (("x" * 201,),)),
    ),
    ("one", "two://three"),
)


def test_a_summary_as_markdown_line_by_line() -> None:
    """The heading, the subject cut and in its fence, lists, a table cut at 60 rows, and notes as one quotation."""
    lines = render_markdown(SUMMARY).split("\n")
    subject = ("s`" * 150)[:133] + "…" + ("s`" * 150)[-50:]
    assert lines[:8] == [
        *(
            "### :red_circle: Kind: worse\\_now",
            "",
            f"`` {subject} ``",
            "",
            "- a \\*fact\\*",
            "- `code` and \\<b\\>",
            "",
        ),
        "**Many**",
    ]
    assert lines[8:13] == [
        "",
        "| &nbsp; | n | why |",
        "|---|---:|---|",
        "| **k0** | **0** | **a\\|b** |",
        "| k1 | 1 |  |",
    ]
    assert lines[70:75] == ["| k59 | 59 |  |", "", "2 further rows are left out.", "", "| a |"]
    long = "x" * 133 + "…" + "x" * 50
    assert lines[75:] == ["|---|", f"| {long} |", "", "> one\\", "> two:\u200b//three", ""]
    assert render_markdown(Summary("K", "", "v", Tone.UNSURE)) == "### :yellow_circle: K: v\n"
    assert [escaped("x" * 1001), code_span("a`")] == ["x" * 666 + "…" + "x" * 250, "`` a` ``"]
