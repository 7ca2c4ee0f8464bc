"""Pages as HTML: their structure and their values. tests/report/pages/test_browser.py tests how they behave."""

from __future__ import annotations

import json
import re

import pytest
from documents import HOSTILE, KINDS, diff_with_code, golden, large_captures, page_of, replaced
from html_tree import Element, parse

from tests.compare.test_diff import compare
from tritonhook.report.render.html import render_html
from tritonhook.snapshot.changes import ChangeStatus
from tritonhook.tuning.policy_check import State

FETCHES = ("src", "href", "action", "data", "poster", "srcset", "formaction")


def page(document: dict) -> Element:
    return parse(render_html(page_of(document), "saved.json"))


def data_of(tree: Element) -> dict:
    return json.loads(tree.one("script", id="data").text)


def requests_in(tree: Element) -> list[str]:
    """What would fetch something: attributes that lead out of the file, and urls in styles."""
    leaving = [
        f"{e.tag} {name}={e.attributes[name]}"
        for e in tree.all()
        for name in FETCHES
        if name in e.attributes and not e.attributes[name].startswith(("#", "data:"))
    ]
    styles = "".join(e.text for e in tree.all("style")) + "".join(e.attributes.get("style", "") for e in tree.all())
    return leaving + re.findall(r"url\([^)]*\)|@import[^;]*", styles) + [e.tag for e in tree.all("link")]


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_document_has_a_page_that_fetches_nothing(kind: str) -> None:
    tree = page(golden(kind))
    assert requests_in(tree) == []
    assert tree.one("html").attributes["lang"] == "en"
    verdict = tree.one("h1").text
    assert verdict.strip()
    assert verdict[:20] in tree.one("head").one("title").text
    assert "default-src 'none'" in tree.one("meta", **{"http-equiv": "Content-Security-Policy"}).attributes["content"]


@pytest.mark.parametrize("kind", KINDS)
def test_hostile_names_are_text(kind: str) -> None:
    """Every text of the document is hostile at once, but for those that decide what is shown, and numbers."""
    document = golden(kind)
    fixed = {"same code", "different code", "only scheduling differs", "load", "launch", "same", "changed", "assembled"}
    fixed |= {"NVML", "cuMemGetInfo", "reference", "candidate", "control", "crashed", "inline", "syscall", "ab"}
    fixed |= {"emulated", "rejected", "unknown PTX version", document["kind"], "wrong", "DIFFERENT", "HANG", "SAME"}
    fixed |= {"SKIPPED", "WIN", "LEAVE IT", "ASSEMBLED", *State, *ChangeStatus}

    def poison(value):
        if isinstance(value, dict):
            return {k: poison(v) for k, v in value.items()}
        if isinstance(value, list):
            return [poison(v) for v in value]
        if isinstance(value, str) and value not in fixed and not re.fullmatch(r"[\d.]+|registers|stack|code", value):
            return HOSTILE
        return value

    hostile = poison(document)
    html = render_html(page_of(hostile), HOSTILE)
    tree = parse(html)
    scripts = list(tree.all("script"))
    assert [e.attributes.get("type") for e in scripts] in ([None], ["application/json", None])
    assert not list(tree.all("img"))
    assert "owned" not in scripts[-1].text
    assert HOSTILE[:30] in tree.one("body").text
    assert len(html) < max(30 * len(HOSTILE), 3 * len(json.dumps(hostile))) + 400_000


def test_a_long_name_is_folded_and_whole() -> None:
    document = replaced(diff_with_code(), "cutlasz_k", HOSTILE)
    tree = page(document)
    name = next(tree.one("div", id="table-1").all("details"))
    assert "characters" in name.one("summary").text and len(name.one("summary").text) < 200
    assert "k" * 10_000 in name.one("code", "all").text
    assert "\n" not in name.one("code", "all").text and "\\n" in name.one("code", "all").text


# --- the diff page -------------------------------------------------------------------------------


def test_the_diff_page_has_verdict_resources_and_bars_that_add_up() -> None:
    document = diff_with_code("sm_100a.tcgen05.plain", "sm_100a.tcgen05.cutlass")
    tree = page(document)
    assert tree.one("h1").text == "Different code"
    table = tree.one("div", id="table-2").one("table")
    resources = {row[0]: row[1:] for row in table.rows()}
    expected = {r["field"]: (r["a"], r["b"]) for r in document["resources"]}
    assert resources["registers"][:2] == [str(x) for x in expected["registers"]]
    for row in table.one("tbody").all("tr"):
        assert ("worse" in row.text) == ("tone-bad" in row.classes)  # a colour never comes without its word
    bars = list(tree.all("div", "filebar"))
    for bar, side in zip(bars, ("a", "b"), strict=True):
        sizes = [int(t.text.rpartition(": ")[2].removesuffix(" bytes").replace(",", "")) for t in bar.all("title")]
        assert sum(sizes) == document[side]["file_bytes"]
        widths = [float(r.attributes["width"]) for r in bar.all("rect")]
        longest = max(document[s]["file_bytes"] for s in "ab")
        assert sum(widths) == pytest.approx(100 * document[side]["file_bytes"] / longest, abs=0.01)
    *_, whole = tree.one("section", id="file").one("table").rows()
    assert whole[1:3] == [f"{document[s]['file_bytes']:,}" for s in "ab"]


def test_the_listing_has_every_instruction_once_and_links_the_moved() -> None:
    document = diff_with_code()
    sass, ptx = data_of(page(document))["listings"]
    d = compare("sm_90a.exp.plain", "sm_90a.exp.cutlass").sass
    rows = [tuple(sass["rows"][i : i + 3]) for i in range(0, len(sass["rows"]), 3)]
    assert [a for a, _, _ in rows if a >= 0] == list(range(d.a_instructions))
    assert [b for _, b, _ in rows if b >= 0] == list(range(d.b_instructions))
    assert sum(placed for _, _, placed in rows) == d.in_place
    moved = list(zip(sass["moved"][::2], sass["moved"][1::2], strict=True))
    assert len(moved) == d.moved > 0
    texts = [[line[0] for line in side["code"]] for side in sass["sides"]]
    for a, b in moved:
        assert texts[0][a].split()[0] == texts[1][b].split()[0]
    assert sass["sides"][0]["files"] == ["/src/kernels/exp.py"]
    assert sass["sides"][0]["code"][3][2:] == [0, 13, 5]
    loops = [fold for fold in sass["folds"] if fold[2] == "loop"]
    assert len(loops) == len(d.loops) == 1 and loops[0][3].startswith("loop 1 · a 0x")
    assert [line for line in ptx["sides"][1] if line is not None] == [f".entry {document['b']['kernel']}", "ret;"]


def test_a_document_without_code_says_how_to_keep_it() -> None:
    tree = page(golden("diff"))
    assert "--save" in tree.one("section", id="code").one("p", "missing").text
    assert not list(tree.all("script", id="data"))


# --- the other pages -----------------------------------------------------------------------------


def test_a_captures_page_lists_every_kernel_and_draws_the_largest() -> None:
    tree = page(large_captures(200))
    rows = tree.one("div", id="table-1").one("table", "sortable").rows()
    assert len(rows) == 200 and rows[7][:2] == ["000007", "kernel_007"]
    bars = [float(e.attributes["width"]) for e in tree.one("section", id="sizes").all("rect")]
    assert len(bars) == 20 and bars == sorted(bars)


def test_a_name_under_which_ptxas_crashes_has_a_page_without_a_diff() -> None:
    document = golden("names") | {"diff": None}
    crash = {"summary": "ptxas 12.8.93 died of SIGSEGV", "signal": "SIGSEGV", "returncode": -11, "timeout": False}
    document["renamed"] |= {"file_bytes": None, "crash": crash | {"command": "", "stderr": "", "ptxas": "12.8.93"}}
    tree = page(document)
    assert tree.one("h1").text == "ptxas crashes under the renamed name"
    assert "SIGSEGV" in tree.one("section", "hero").text and not list(tree.all("script", id="data"))
