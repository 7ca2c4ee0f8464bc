"""No foreign text reaches the terminal as control characters: names, notes, options, ptxas fields, paths, messages."""

from __future__ import annotations

import io
import json
import os
import re
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from documents import KINDS, golden, summary_of

from tritonhook.cli import main
from tritonhook.cli._results import check_new, write_new
from tritonhook.cli._streams import streams, write_out, write_paged
from tritonhook.errors import UsageError
from tritonhook.report.render.csv import render_csv
from tritonhook.report.result import Table

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


def test_csv_has_numbers_as_programs_read_them(capsys: pytest.CaptureFixture) -> None:
    table = Table(
        "T", ("kernel", "spills", "bytes", "note"), (("a,123", "4,248/3,952", "12,345,678", "1,234 is"),), 1, words=(3,)
    )
    assert render_csv(table) == ('kernel,spills,bytes,note\n"a,123",4248/3952,12345678,"1,234 is"\n')


def test_where_a_new_file_cannot_be_is_said_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("there").write_text("old")
    Path("link").symlink_to("absent/file")
    for path, force, said in (
        (".", True, "a folder; name a file in it"),
        ("-", True, "-: standard output is for the verb's own text"),
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


def test_a_long_text_goes_through_the_pager_of_a_terminal(tmp_path: Path, monkeypatch, capsys) -> None:
    pager = tmp_path / "pager"
    pager.write_text(f'#!/bin/sh\ncat > "{tmp_path}/$1"\n')
    pager.chmod(0o755)
    for name, value in {"LINES": "3", "COLUMNS": "80", "PAGER": f"{pager} 'a file'"}.items():
        monkeypatch.setenv(name, value)
    write_paged("1\n2\n3\n")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    write_paged("1\n2\n")
    assert capsys.readouterr().out == "1\n2\n3\n1\n2\n" and not (tmp_path / "a file").exists()
    write_paged("1\n2\n\u2192\n")
    assert (tmp_path / "a file").read_text() == "1\n2\n\u2192\n" and capsys.readouterr().out == ""
