"""The pages in a headless Chromium: they open, filter, unfold, follow a moved instruction, change their theme and
print, without an error in the console and without a request."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from browser import Browser, chromium, why_none
from documents import (
    HOSTILE,
    diff_with_code,
    golden,
    large_captures,
    large_diff,
    large_memory,
    page_of,
    replaced,
)

from tritonhook._util.schema import as_schema
from tritonhook.report.render.html import render_html
from tritonhook.report.results.capture import CodeFields

pytestmark = [pytest.mark.machine, pytest.mark.skipif(why_none() is not None, reason=str(why_none()))]
ENTER, ESCAPE, DOWN, RIGHT = "\ue007", "\ue00c", "\ue015", "\ue014"


@pytest.fixture(scope="module")
def window() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


@pytest.fixture
def show(window: Browser, tmp_path: Path) -> Iterator[Callable[..., Browser]]:
    """Opens the page of a document. Afterwards its console must be empty, and nothing requested."""

    def go(document: dict, theme: str = "light") -> Browser:
        path = tmp_path / "page.html"
        path.write_text(render_html(page_of(document), "saved.json"))
        window.open(path, theme)
        return window

    yield go
    window.forget()
    assert window.logs() == []
    assert window.requests() == []


def rows(browser: Browser) -> list[str]:
    """The visible rows of instructions."""
    return browser.js(
        "const rows = [...document.querySelectorAll('.window .lrow')];"
        "return rows.filter(r => !r.querySelector('.fold')).map(r => r.textContent)"
    )


def shown(browser: Browser) -> tuple[int, int]:
    match = re.match(r"([\d,]+) of ([\d,]+) rows", browser.text(".lbar .status"))
    assert match
    return int(match[1].replace(",", "")), int(match[2].replace(",", ""))


# --- every page ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kind", ["ab", "capabilities", "capture", "captures", "memory", "memory_prediction", "names", "table"]
)
def test_every_page_opens_changes_its_theme_and_shows_its_keys(kind: str, show: Callable[..., Browser]) -> None:
    browser = show(golden(kind), "dark")
    colour = "return getComputedStyle(document.body).backgroundColor"
    dark = browser.js(colour)
    assert browser.text("#theme") == "Light"
    browser.press("t")
    light = browser.js(colour)
    assert light != dark and browser.text("#theme") == "Dark"
    browser.one("#theme").click()
    assert browser.js(colour) == dark
    browser.press("?")
    assert browser.js("return document.querySelector('#help').open") is True
    browser.press(ESCAPE)
    assert browser.js("return document.querySelector('#help').open") is False
    wide = browser.js("return document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert wide == 0  # nothing to scroll sideways


# --- the diff page -------------------------------------------------------------------------------


def test_the_code_filters_unfolds_and_goes_to_changes(show: Callable[..., Browser]) -> None:
    browser = show(diff_with_code())
    folded, total = shown(browser)
    assert folded < total
    (fold,) = browser.all(".fold.loop")
    assert fold.get_attribute("aria-expanded") == "false"
    fold.click()
    assert shown(browser)[0] > folded
    assert browser.one(".fold.loop").get_attribute("aria-expanded") == "true"
    browser.press(ENTER)  # the fold has the focus of the listing: it closes again
    assert shown(browser)[0] == folded
    browser.press("u")
    assert shown(browser)[0] == total

    browser.press("/", "MUFU")
    assert rows(browser) and all("MUFU" in row for row in rows(browser))
    assert shown(browser)[0] == len(rows(browser))
    browser.press(ESCAPE)
    assert shown(browser)[0] == total
    browser.js("const s = document.querySelector('#which'); s.value = 'moved'; s.dispatchEvent(new Event('change'))")
    moved = shown(browser)[0]
    assert 0 < moved < total
    assert all("⇄" in row for row in rows(browser))


def test_a_moved_instruction_leads_to_its_place_on_the_other_side(show: Callable[..., Browser]) -> None:
    document = diff_with_code()
    browser = show(document)
    browser.press("u")
    button = browser.all(".a.moved .go")[0]
    line = browser.js("return arguments[0].closest('.cellv').querySelector('.ins').textContent.slice(1)", button)
    button.click()
    landed = browser.js("return document.querySelector('.lrow.cur .b.moved .ins').textContent.slice(1)")
    assert landed.split()[0] == line.split()[0]
    assert "Moved: it is at 0x" in browser.text(".inspector")
    browser.press("m")  # and back
    assert browser.js("return document.querySelector('.lrow.cur .a.moved .ins').textContent.slice(1)") == line


def test_keys_alone_reach_changes_ptx_and_source(show: Callable[..., Browser]) -> None:
    browser = show(diff_with_code())
    browser.press("n")
    first = browser.js("return document.querySelector('.lrow.cur').dataset.item")
    browser.press("n")
    assert browser.js("return document.querySelector('.lrow.cur').dataset.item") != first
    assert browser.js("return document.querySelector('.lrow.cur .moved, .lrow.cur .only') !== null")
    assert browser.js("return document.activeElement.id") == "code-view"
    assert "/src/kernels/exp.py:1" in browser.text(".inspector")
    assert "stall" in browser.text(".inspector") and "PTX line" in browser.text(".inspector")
    browser.all(".inspector .link")[0].click()
    assert browser.one("#tab-ptx").get_attribute("aria-selected") == "true"
    assert "// line" in browser.text(".inspector")
    browser.js("document.querySelector('#tab-ptx').focus()")
    browser.press(RIGHT)
    assert browser.js("return document.activeElement.id") == "tab-sass"
    browser.press(RIGHT)
    assert browser.one("#tab-ptx").get_attribute("aria-selected") == "true"


def test_control_fields_are_what_the_instruction_has(show: Callable[..., Browser]) -> None:
    document = diff_with_code()
    browser = show(document)
    browser.press("u")
    code = as_schema(document["code"]["a"], CodeFields).sass().instructions
    found = browser.js(
        "const found = [...document.querySelectorAll('.cellv.a .ctl')];"
        "return found.map(c => [c.previousSibling.textContent, c.textContent])"
    )
    assert len(found) > 20
    for offset, text in found:
        i = code[int(offset, 16) // 16]
        assert int(text.split()[-1]) == i.stall
        assert (text.split()[-2] == "Y") == i.yield_bit
        assert {int(c) for c in text.split()[0] if c != "-"} == {bit for bit in range(6) if i.wait_mask >> bit & 1}


# --- the other pages -----------------------------------------------------------------------------


def test_a_timeline_reads_out_values_by_pointer_and_by_keys(show: Callable[..., Browser]) -> None:
    browser = show(golden("memory"))
    chart = browser.one("svg[data-timeline]")
    browser.js("arguments[0].focus()", chart)
    browser.press(RIGHT, RIGHT)
    assert re.match(r"0\.5\d* s: used 1 GiB", browser.text(".timeline .status"))


def test_captures_filter_and_sort(show: Callable[..., Browser]) -> None:
    browser = show(large_captures(200))
    registers = next(each for each in browser.all("#table-1 th .sort") if each.text.strip().lower() == "regs")
    registers.click()
    registers.click()
    assert "kernel_199" in browser.text("#table-1 tbody tr")
    browser.press("/", "kernel_01")
    visible = "return [...document.querySelectorAll('#table-1 tbody tr')].filter(r => !r.hidden).length"
    assert browser.js(visible) == 10
    assert "10 of 200" in browser.text(".filterbar .status")


# --- colours ---


# --- a telephone ---------------------------------------------------------------------------------


# --- large and hostile ---------------------------------------------------------------------------


def test_thirty_thousand_instructions_put_few_rows_into_the_page(show: Callable[..., Browser]) -> None:
    browser = show(large_diff(30_000))
    browser.press("u")
    assert shown(browser)[0] == shown(browser)[1] > 30_000
    browser.js("document.querySelector('#code-view').focus()")
    browser.press("\ue010")  # End
    assert "0x752f0" in "".join(rows(browser))  # the last instruction, at byte 16 * 29,999
    assert len(browser.all(".window .lrow")) < 120
    browser.press("/", "hmma", ENTER)
    assert all("HMMA" in row for row in rows(browser))


def test_ten_thousand_samples_are_drawn_with_their_extremes(show: Callable[..., Browser]) -> None:
    document = large_memory()
    browser = show(document)
    path = browser.one("path.p-used").get_attribute("d")
    assert 1000 < path.count("H") < 4 * 900 + 10
    points = browser.js(
        "return JSON.parse(document.querySelector('#data').textContent).timelines[0].series[0][1].map(p => p[1])"
    )
    used = [s["used_bytes"] / (1 << 30) for s in document["timelines"][0]["samples"]]
    assert max(points) == pytest.approx(max(used), abs=1e-3) and min(points) == pytest.approx(min(used), abs=1e-3)
    assert "10,000 samples" in browser.text(".timeline")


def test_hostile_names_stay_text_in_the_browser(show: Callable[..., Browser]) -> None:
    document = replaced(replaced(diff_with_code(), "cutlasz_k", HOSTILE), "exp.py", HOSTILE)
    for side in document["code"].values():
        side["instructions"][0][2] = HOSTILE
    browser = show(document)
    assert browser.js("return document.title").startswith("Only scheduling differs")
    assert browser.all("img") == []
    assert browser.js("return document.documentElement.scrollWidth - document.documentElement.clientWidth") == 0
    assert "<script>" in browser.text("#listings .window")


def test_an_error_on_the_console_would_be_seen(window: Browser, tmp_path: Path) -> None:
    path = tmp_path / "wrong.html"
    path.write_text(
        "<html data-ready=yes><script>throw new Error('seen'); </script><img src='http://127.0.0.1:9/x.png'>"
    )
    window.open(path)
    assert any("seen" in line for line in window.logs())
    assert window.requests() == ["http://127.0.0.1:9/x.png"]
