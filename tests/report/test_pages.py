"""What pages are made of: charts' arithmetic, opcode classes, summaries as Markdown and in notebooks."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest
from documents import HOSTILE, KINDS, golden
from html_tree import parse
from hypothesis import given
from hypothesis import strategies as st

from tests.compare.test_diff import compare
from tests.compare.test_diff import golden as golden_code
from tritonhook.cubin.opcode_classes import CLASSES, class_counts, opcode_class
from tritonhook.report.markdown import code_span, escaped, render_markdown
from tritonhook.report.pages import summary_of
from tritonhook.report.pages.charts import Scale, decimals, histogram, round_values, thin
from tritonhook.report.pages.common import Summary, Table, Tone, sentence, short, size
from tritonhook.report.pages.memory import timelines_of
from tritonhook.timing.result import from_document

# --- charts --------------------------------------------------------------------------------------


@given(st.floats(-1e9, 1e9), st.floats(1e-6, 1e9), st.integers(2, 10))
def test_ticks_are_few_round_and_inside(low: float, span: float, about: int) -> None:
    values = round_values(low, low + span, about)
    slack = span * 1e-6 + abs(low) * 1e-9
    assert len(values) <= about + 3
    assert all(low - slack <= v <= low + span + slack for v in values)


def test_ticks_are_written_in_full() -> None:
    assert round_values(0, 2, 8) == (0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 1.75, 2.0)
    assert decimals((0.0, 0.25, 0.5)) == 2
    assert decimals((0.0, 500.0)) == 0
    assert Scale(0, 10, 100, 200)(5) == 150
    assert Scale(3, 3, 100, 200)(3) == 150  # all values equal: the middle


def test_thinning_keeps_extremes_and_ends() -> None:
    points = [(float(i), float(i % 10)) for i in range(10_000)] + [(10_000.0, 99.0), (10_001.0, -5.0)]
    kept = thin(points, 50)
    assert len(kept) <= 200
    assert kept[0] == points[0] and kept[-1] == points[-1]
    assert (10_000.0, 99.0) in kept and kept == sorted(kept)
    assert thin(points[:20], 50) == points[:20]


def test_a_histogram_counts_what_is_inside() -> None:
    assert histogram([0.0, 0.4, 0.6, 1.0, 7.0], 0.0, 1.0, 2) == [2, 2]


# --- opcodes -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("opcode", "kind"),
    [
        *[(name, "tensor") for name in ("HMMA", "QMMA", "HGMMA", "UTCHMMA", "UTCQMMA", "IMMA")],
        *[(name, "global memory") for name in ("LDG", "STG", "UTMALDG", "UBLKCP", "LDGSTS", "RED", "LDC")],
        *[(name, "shared memory") for name in ("LDS", "STS", "LDSM", "SHFL", "LDTM")],
        *[(name, "floating point") for name in ("FFMA", "FFMA2", "MUFU", "HFMA2", "FADD", "FSETP", "DFMA", "I2F")],
        *[(name, "synchronisation") for name in ("BAR", "SYNCS", "WARPSYNC", "DEPBAR")],
        *[(name, "control") for name in ("BRA", "EXIT", "BSSY", "NOP")],
        *[(name, "integer and moves") for name in ("MOV", "IADD3", "IMAD", "LOP3", "FLO", "R2UR", "UIADD3", "ISETP")],
    ],
)
def test_opcodes_have_a_class(opcode: str, kind: str) -> None:
    assert opcode_class(opcode) == kind


def test_classes_count_every_instruction_of_real_code() -> None:
    for name in ("sm_80.exp.plain", "sm_100a.tcgen05.cutlass"):
        _, codes = golden_code(name)
        for sass in codes.values():
            counts = class_counts(sass.opcode_counts())
            assert tuple(counts) == CLASSES and sum(counts.values()) == len(sass.instructions)


# --- words ---------------------------------------------------------------------------------------


def test_sizes_sentences_and_cuts() -> None:
    assert [size(n) for n in (None, 0, 1023, 1536, 3728 << 20)] == ["not known", "0 B", "1,023 B", "1.5 KiB", "3.6 GiB"]
    assert sentence("the name") == "The name"
    assert sentence("attention_fwd") == "attention_fwd" and sentence("ptxas crashes here") == "ptxas crashes here"
    assert len(short("k" * 10_000, 80)) <= 81 and short("short") == "short"


# --- Markdown ------------------------------------------------------------------------------------


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


# --- notebooks -----------------------------------------------------------------------------------


def test_results_show_themselves_in_notebooks() -> None:
    diff = compare("sm_90a.exp.plain", "sm_90a.exp.cutlass")
    (timeline,) = timelines_of(golden("memory"))
    for value, words in (
        (diff, "only scheduling differs"),
        (from_document(golden("ab")), "Slower by"),
        (timeline, "GiB"),
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
        "import tritonhook.report.notebook\n"
        "print('jinja2' in sys.modules and sys.modules['jinja2'] is None)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "True"


def test_a_trace_of_a_saved_timeline_is_chromes(tmp_path, capsys) -> None:
    from tritonhook.cli import main

    saved, trace = tmp_path / "memory.json", tmp_path / "trace.json"
    saved.write_text(json.dumps(golden("memory")))
    assert main(["report", str(saved), "--trace", str(trace), "-o", str(tmp_path / "m.html")]) == 0
    events = json.loads(trace.read_text())["traceEvents"]
    assert {e["ph"] for e in events} == {"M", "C", "i"}
    marks = golden("memory")["timelines"][0]["marks"]
    assert [e["ts"] for e in events if e["ph"] == "i"] == [m["t_ns"] / 1000 for m in marks]
