"""A Summary in a terminal: all of it is shown, at 80 columns too, and nothing in it is markup."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from documents import KINDS, PlainScreen, golden, in_terminal, summary_of
from screens import Screens

from tritonhook.report.render.terminal import render_terminal
from tritonhook.report.result import Summary, Table, Tone


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> PlainScreen:
    """A terminal of 80 columns without colours."""
    for name, value in {"COLUMNS": "80", "TERM": "dumb"}.items():
        monkeypatch.setenv(name, value)
    return PlainScreen()


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_shown_whole_in_80_columns(kind: str, narrow: PlainScreen) -> None:
    summary = summary_of(golden(kind))
    lines = render_terminal(summary, narrow).splitlines()
    assert max(map(len, lines)) <= 80
    shown = "".join("".join(lines).split())
    for text in (summary.verdict[1:], *summary.facts, *summary.notes, *(table.title for table in summary.tables)):
        assert "".join(text.split()) in shown
    tables = [table for table in summary.tables if not table.one_line]
    figures = [cell for t in tables for row in t.rows for i, cell in enumerate(row) if t.is_figure(i)]
    assert all(any(figure in line for line in lines) for figure in figures)  # none is folded


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_has_golden_screens(kind: str, screens: Screens) -> None:
    screens.check(f"document-{kind}", lambda: in_terminal(summary_of(golden(kind))))


@pytest.mark.parametrize("kind", KINDS)
def test_every_cell_is_in_a_file(kind: str) -> None:
    summary = summary_of(golden(kind))
    shown = "".join(render_terminal(summary, io.StringIO(), wide=True).split())
    for table in summary.tables:
        for row in table.rows:
            assert all(cell.split()[0] in shown for cell in row if cell), row


@pytest.mark.parametrize("environment", [{}, {"COLUMNS": "80"}, {"FORCE_COLOR": "1", "TERM": "dumb"}])
def test_in_a_file_nothing_is_folded(environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    path = "/".join(["", *("folder" * 9 for _ in range(9)), "ptxas"])
    text = f"a fact of {path} and {'more words ' * 30}".strip()
    table = Table("t", ("name", "path", "text"), (("n", path, text),), 3)
    summary = Summary("Kind", path, text, Tone.NEUTRAL, (text,), (table, replace(table, one_line=True)), (text,))
    lines = render_terminal(summary, io.StringIO()).splitlines()
    assert sum(text[1:] in line for line in lines) == 5  # verdict, fact, a cell of each table, note
    assert f"Kind: {path}" in lines and lines.count(f"n     {path}  {text}") == 2


def table_of(cells: list[str], columns: int) -> Table:
    return Table("Wide", tuple(f"column {i}" for i in range(columns)), (tuple(cells),), left=1)


def lines_of(table: Table, stream: PlainScreen) -> list[str]:
    return render_terminal(Summary("", "", "v", Tone.NEUTRAL, (), (table,)), stream).splitlines()[2:]


def test_a_table_that_does_not_fit_becomes_lists(narrow: PlainScreen) -> None:
    figures = [f"{10**6 + i:,}" for i in range(12)]
    lines = lines_of(table_of(["kernel", *figures], 13), narrow)
    assert lines[:2] == ["Wide", "kernel"]
    assert [line.split() for line in lines[2:]] == [["column", str(i + 1), figure] for i, figure in enumerate(figures)]


NAMES = ("void_kernel_of_a_long_name_1", "void_kernel_of_a_long_name_2")


def one_line(cells: int, extra: tuple[int, ...] = ()) -> Table:
    rows = tuple((f"a{i}", name, *(f"{10**i + n:,}" for n in range(cells))) for i, name in enumerate(NAMES))
    return Table("Kernels", ("id", "kernel", *(f"n{n}" for n in range(cells))), rows, 2, one_line=True, extra=extra)


def test_a_table_of_one_line_a_row_shortens_texts_and_then_leaves_columns_out(narrow: PlainScreen) -> None:
    for cells in (2, 13, 40):
        lines = render_terminal(Summary("K", "s", "v", Tone.NEUTRAL, (), (one_line(cells),)), narrow).splitlines()
        start = lines.index("Kernels") + 1
        rows = [line.split() for line in lines[start + 1 : start + 3]]
        assert [row[0] for row in rows] == ["a0", "a1"] and max(map(len, lines)) <= 80
        shown = len(lines[start].split()) - 2
        assert [len(row) for row in rows] == [2 + shown] * 2 and (shown == cells) == (cells < 20)
        assert lines[start + 3 :] == [] or lines[start + 3].startswith(f"not shown, for lack of width: n{shown}, ")
        assert rows[0][1][-1] == "1" and rows[1][1][-1] == "2"  # the ends, in which the names differ


def test_wide_shows_all_columns_whole(narrow: PlainScreen) -> None:
    summary = Summary("K", "s", "v", Tone.NEUTRAL, (), (one_line(40, extra=(5,)),))
    lines = render_terminal(summary, narrow, wide=True).splitlines()
    assert lines[4].split() == ["id", "kernel", *(f"n{n}" for n in range(40))]
    assert lines[5].split()[1] == NAMES[0]
    assert "n3" not in render_terminal(summary, narrow).split()


def test_a_tone_has_a_colour_on_a_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "80")
    summary = Summary("Kind", "subject", "worse", Tone.BAD)
    assert "\x1b[1;31mworse" in render_terminal(summary, PlainScreen())
    assert render_terminal(summary, io.StringIO()) == "worse\nKind: subject\n"
