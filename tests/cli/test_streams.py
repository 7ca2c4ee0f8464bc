"""No foreign text reaches the terminal as control characters: names, notes, options, ptxas fields, paths, messages."""

from __future__ import annotations

import io
import json
import os
import re
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from documents import KINDS, golden, in_terminal, summary_of

from tritonhook._util.text import say, visible
from tritonhook.cli import _streams, main
from tritonhook.cli._parser import Parser, add_options, from_namespace
from tritonhook.cli._streams import (
    Results,
    _csv,
    check_new,
    complain,
    near,
    streams,
    to_json,
    write_new,
    write_out,
    write_paged,
)
from tritonhook.errors import UsageError
from tritonhook.report.render.markdown import render_markdown
from tritonhook.report.result import Summary, Table, Tone, read_result

# Escape sequences (title, clear, colours), C1 controls, the erasing carriage return and backspace, bidi overrides and
# isolates, line and paragraph separators, a lone surrogate.
HOSTILE = "k\x1b]0;owned\x07\x1b[2J\x9b31m\r\b\x7f\x85\u202e\u2066\u2028\u200f\udc9b"
SGR = re.compile(r"\x1b\[[\d;]*m")


class Ascii(io.TextIOWrapper):
    """Standard output in ASCII, as in the C locale."""

    def __init__(self) -> None:
        self._bytes = io.BytesIO()
        super().__init__(self._bytes, encoding="ascii", newline="")

    @property
    def written(self) -> bytes:
        self.flush()
        return self._bytes.getvalue()


def test_a_result_is_shown_where_the_encoding_has_no_arrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", out := Ascii())
    with streams():
        write_out("a \u2192 b \u00e9\n")
        print("\u2026")
    assert out.written == b"a -> b \\xe9\n\\u2026\n"


def test_ptx_that_the_encoding_cannot_hold_is_refused(tmp_path: Path, capsys, monkeypatch) -> None:
    monkeypatch.setattr(sys, "stdout", out := Ascii())
    kernel = tmp_path / "k.ptx"
    kernel.write_text(".version 8.0\n.target sm_90\n.address_size 64\n// \u00e9\n.visible .entry k() { ret; }\n")
    assert main(["rename", str(kernel), "--prefix", "x_"]) == 2
    assert "takes ascii only; write to a file with -o FILE" in capsys.readouterr().err
    assert out.written == b""


def controls(text: str) -> set[str]:
    return {c for c in SGR.sub("", text) if not c.isprintable() and c != "\n"}


def hostile(value: Any) -> Any:
    """A JSON value with the hostile text at the end of every text but those that choose what is read."""
    if isinstance(value, dict):
        fixed = ("kind", "format", "verdict", "stages", "mode", "version", "ptxas", "field", "control_of")
        return {key: item if key in fixed else hostile(item) for key, item in value.items()}
    if isinstance(value, list):
        return [hostile(item) for item in value]
    return value + HOSTILE if isinstance(value, str) else value


@pytest.fixture
def captures(tmp_path: Path) -> Path:
    """A capture folder with one hostile record and one damaged one."""
    record = tmp_path / "c" / "kernels" / "k-0"
    (tmp_path / "c" / "index").mkdir(parents=True)
    document = {
        "format": 1,
        "kernel": HOSTILE[:-1],
        "hash": HOSTILE[:-1],
        "arch": HOSTILE[:-1],
        "files": {},
        "ptxas": {"path": HOSTILE[:-1], "version": None, "arguments": [HOSTILE[:-1]]},
        "options": {HOSTILE[:-1]: HOSTILE[:-1], "constants": {"N": HOSTILE[:-1]}},
        "metadata": {"front_end": HOSTILE[:-1], "function": HOSTILE[:-1]},
        "cache_hit": None,
        "rewritten_from": HOSTILE[:-1],
        "note": HOSTILE[:-1],
    }
    for name, values in (("k-0", document), ("k-1", document | {"note": [HOSTILE[:-1]]})):
        record = tmp_path / "c" / "kernels" / name
        record.mkdir(parents=True)
        (record / "capture.json").write_text(json.dumps(values))
    lines = [{"format": 1, "host": HOSTILE[:-1], "argv": [HOSTILE[:-1]]}, {"notes": [HOSTILE[:-1]]}]
    (tmp_path / "c" / "index" / "x.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return tmp_path / "c"


def said(capsys: pytest.CaptureFixture, *words: str) -> str:
    with suppress(SystemExit):  # of argparse
        main(list(words))
    return "".join(capsys.readouterr())


def test_a_hostile_capture_folder_prints_no_control_character(captures: Path, capsys: pytest.CaptureFixture) -> None:
    one = str(captures / "kernels" / "k-0")
    commands = [["show", str(captures)], ["show", one], ["show", str(captures / "kernels" / "k-1")]]
    commands += [[*words, flag] for words in commands[:2] for flag in ("--json", "--markdown")]
    commands += [
        ["diff", one, one],
        ["diff", "--rename", one],
        ["mem", "fix", one],
        ["mem", "predict", one, "--gpu", "H100"],
    ]
    commands += [["show", str(captures), "--rank", "0"], ["show", str(captures / HOSTILE)], ["show", HOSTILE]]
    commands += [["diff", str(captures), HOSTILE], ["rename", HOSTILE, "--prefix", HOSTILE], [HOSTILE], ["ab", HOSTILE]]
    commands += [["ptxas", "add", HOSTILE], ["ptxas", "status", HOSTILE], ["lab", "probe", one, "--ptxas", HOSTILE]]
    for words in commands:
        text = said(capsys, *words)
        assert text and controls(text) == set(), words


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("markdown", [False, True], ids=["terminal", "markdown"])
def test_a_hostile_document_prints_no_control_character(
    kind: str, markdown: bool, tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    document = golden(kind)
    if kind == "ab":
        document["blocks"] = document["blocks"][:2]
    path = tmp_path / "d.json"
    path.write_text(json.dumps(hostile(document)))
    if markdown:
        assert controls(said(capsys, "show", str(path), "--markdown")) == set()
    else:
        from tritonhook.errors import TritonHookError
        from tritonhook.report.render.terminal import render_terminal

        class Terminal(io.StringIO):
            def isatty(self) -> bool:
                return True

        try:
            assert controls(render_terminal(summary_of(hostile(document)), Terminal())) == set()
        except TritonHookError as error:
            assert "damaged" in str(error)


def test_print_is_escaped_while_a_command_runs_and_not_after(capsys: pytest.CaptureFixture) -> None:
    with streams():
        print(f"a\tb {HOSTILE}")
        print(HOSTILE, file=sys.stderr)
    captured = capsys.readouterr()
    assert captured.out.startswith("a\tb k\\x1b]0;owned\\x07") and controls(captured.out) == {"\t"}
    assert captured.err.count("\n") == 1 and controls(captured.err) == set()
    print("\x1b[0m", end="")
    assert capsys.readouterr().out == "\x1b[0m"


def test_a_foreign_line_cannot_look_like_one_of_ours(capsys: pytest.CaptureFixture) -> None:
    say("tritonhook show: k\ntritonhook: all is well\n  indented")
    assert capsys.readouterr().err == "tritonhook show: k\n  tritonhook: all is well\n  indented\n"


def test_what_is_printable_stays() -> None:
    assert visible("größe ∅ 核 → %r1") == "größe ∅ 核 → %r1"
    assert visible("a\nb\t", keep="\n") == "a\nb\\t"


@pytest.mark.parametrize("character", sorted(set(HOSTILE) - set("k]0;owned[2J31m")), ids=lambda c: f"U+{ord(c):04X}")
def test_each_control_character_is_escaped_by_itself(character: str) -> None:
    assert controls(visible(f"a{character}b")) == set() and visible(f"a{character}b") != "ab"


def test_csv_has_numbers_as_programs_read_them(capsys: pytest.CaptureFixture) -> None:
    table = Table(
        "T", ("kernel", "spills", "bytes", "note"), (("a,123", "4,248/3,952", "12,345,678", "1,234 is"),), 1, words=(3,)
    )
    assert _csv(Summary("T", "s", "v", Tone.NEUTRAL, tables=(table,))) == (
        'kernel,spills,bytes,note\n"a,123",4248/3952,12345678,"1,234 is"\n'
    )


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (UsageError("give a file"), "give a file"),
        (KeyboardInterrupt(), "interrupted"),
        (OSError(2, "No such file", "k.ptx"), "k.ptx: No such file"),
        (OSError(28, "No space left"), "No space left"),
        (
            ValueError("a\n b"),
            "internal error: ValueError: a b; please report it (TRITONHOOK_DEBUG=1 shows where it is)",
        ),
    ],
)
def test_an_error_is_one_line_and_its_traceback_only_if_wanted(error, text, capsys, monkeypatch) -> None:
    monkeypatch.delenv("TRITONHOOK_DEBUG", raising=False)
    complain("diff", error)
    complain("", error)
    assert capsys.readouterr().err == f"tritonhook diff: {text}\ntritonhook: {text}\n"
    monkeypatch.setenv("TRITONHOOK_DEBUG", "1")
    complain("diff", error)
    assert (type(error).__name__ in capsys.readouterr().err.partition("\n")[2]) is not isinstance(error, UsageError)


def test_a_path_is_near_where_it_lies_in_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert near(tmp_path / "a" / "b") == Path("a/b")
    assert (
        near(tmp_path) == tmp_path and near(Path("/elsewhere")) == Path("/elsewhere") and near(Path("x")) == Path("x")
    )


def test_where_a_new_file_cannot_be_is_said_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("there").write_text("old")
    Path("link").symlink_to("absent/file")
    for path, force, said in (
        (".", True, "a folder; name a file in it"),
        ("-", True, "-: standard output has the verb's own text"),
        ("there", False, "there: exists; pass --force"),
        ("no/file", False, "no/file: cannot write: the folder .*/no does not exist"),
        ("link", False, "link: cannot write: the folder .*/absent does not exist"),
    ):
        with pytest.raises(UsageError, match=said):
            check_new(Path(path), force)
    check_new(Path("there"), True)
    check_new(Path("new"), False)
    write_new(Path("new"), "text", False)
    write_new(Path("there"), "text", True)
    assert Path("new").read_text() == Path("there").read_text() == "text"
    monkeypatch.setattr("os.access", lambda path, mode: (str(path), mode) != (str(tmp_path), os.W_OK))
    with pytest.raises(UsageError, match=f"^other: cannot write: you may not write to the folder {tmp_path}"):
        check_new(Path("other"), False)
    check_new(Path("there"), True)


def test_a_long_text_goes_through_the_pager_of_a_terminal(monkeypatch, capsys: pytest.CaptureFixture) -> None:
    calls: list[tuple[list[str], bytes]] = []
    monkeypatch.setattr(_streams.subprocess, "run", lambda words, input, check: calls.append((words, input)))
    monkeypatch.setenv("LINES", "3")
    monkeypatch.setenv("COLUMNS", "80")
    write_paged("1\n2\n3\n")
    assert capsys.readouterr().out == "1\n2\n3\n" and calls == []
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    write_paged("1\n2\n")
    assert capsys.readouterr().out == "1\n2\n" and calls == []
    monkeypatch.setenv("PAGER", "more -d 'a b'")
    write_paged("1\n2\n3\n")
    monkeypatch.setenv("PAGER", "")
    write_paged("1\n2\n\u2192\n")
    assert calls == [(["more", "-d", "a b"], b"1\n2\n3\n"), (["less", "-FRX"], "1\n2\n\u2192\n".encode())]
    assert capsys.readouterr().out == ""


def test_a_result_is_printed_once_and_written_as_asked(tmp_path: Path, monkeypatch, capsys) -> None:
    """With its code in the files only; a folder gets a page for each kernel, and its index leads to them."""
    monkeypatch.chdir(tmp_path)
    asked: list[bool] = []
    result = read_result(golden("table"))

    def make(full: bool) -> Any:
        asked.append(full)
        return result

    def give(*words: str, pages: Any = ()) -> Any:
        options = from_namespace(Results, parsed(words))
        _streams.give(options, make, "source.json", pages=pages)
        return capsys.readouterr()

    def parsed(words: Any) -> Any:
        parser = Parser()
        add_options(parser, Results)
        return parser.parse_args(list(words))

    assert give("--json") == (to_json(result.document()), "") and asked == [False]
    assert give("--markdown").out == render_markdown(result.summary())
    shown = give("--save", "r.json", "--html", "r.html")
    assert shown.err == "wrote r.json\nwrote r.html\n" and shown.out == in_terminal(result.summary())
    assert asked == [False, False, False, True, True]
    assert json.loads(Path("r.json").read_text()) == json.loads(to_json(result.document()))
    assert "from <code>source.json</code>" in Path("r.html").read_text()

    def damaged() -> Any:
        raise UsageError("no code")

    assert give("--html", "site/", pages=[("k1", lambda: result), ("k2", damaged)]).err == (
        "tritonhook: no page of one kernel: no code\nwrote site/index.html\n"
    )
    assert sorted(str(path) for path in Path("site").rglob("*.html")) == ["site/index.html", "site/kernels/k1.html"]
    page = Path("site/kernels/k1.html").read_text()
    assert 'href="../index.html"' in page and "from <code>source.json</code>" in page
    assert "from <code>source.json</code>" in Path("site/index.html").read_text()


def test_the_flags_of_a_result_are_checked_before_any_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    none = Results(json=False, markdown=False, csv=False, html=None, save=None, force=False)
    none.check()
    assert [replace(none, **{name: True}).is_printed for name in ("json", "markdown", "csv", "force")] == [True] * 3 + [
        False
    ]
    Path("there").touch()
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "index.html").touch()
    for given, said in (
        ({"csv": True, "json": True}, "--csv: not with"),
        ({"csv": True, "markdown": True}, "--csv: not with"),
        ({"save": "there"}, "there: exists"),
        ({"html": "there"}, "there: exists"),
        ({"html": "site"}, "site/index.html: exists"),
    ):
        with pytest.raises(UsageError, match=said):
            replace(none, **given).check()
        if "csv" not in given:
            replace(none, **given, force=True).check()
    with pytest.raises(UsageError, match="--csv: this result has no table"):
        _csv(Summary("K", "s", "v", Tone.NEUTRAL))
