"""Text that is safe to print, lines on standard error, and documents as strict JSON."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from tritonhook._util.text import say, to_json, visible
from tritonhook._util.toml import toml_value


@pytest.mark.parametrize(
    ("text", "keep", "shown"),
    [
        ("aé 1", "", "aé 1"),
        (7, "", "7"),
        ("a\nb\x1b[1m\x7f", "", r"a\nb\x1b[1m\x7f"),
        ("a\nb\t", "\n", "a\nb\\t"),
        ("\u202e\udcff", "", r"\u202e\udcff"),
    ],
)
def test_control_characters_are_written_out(text: object, keep: str, shown: str) -> None:
    assert visible(text, keep) == shown


def test_no_further_line_begins_as_one_of_ours(capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    say("tritonhook: a\nb\n   c\n\x1b")
    assert capsys.readouterr() == ("", "tritonhook: a\n  b\n   c\n  \\x1b\n")
    monkeypatch.setattr(sys, "stderr", None)
    say("nowhere")
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("indent", [None, 2])
def test_a_document_is_strict_json(indent: int | None) -> None:
    """As Python writes it, where it can; else with texts in place of what JSON has no form for."""
    usual = {"name": "é😀", "numbers": [1, 2.5, None, True], "path": Path("/a")}
    assert to_json(usual, indent) == json.dumps(usual | {"path": "/a"}, indent=indent)
    assert to_json({"a": "\x7f"}, indent) == json.dumps({"a": "?"}, indent=indent).replace("?", "\\u007f")


@pytest.mark.parametrize(
    ("value", "read"),
    [
        (float("nan"), "nan"),
        ([float("-inf"), (1.5, float("inf"))], ["-inf", [1.5, "inf"]]),
        ({"a\udcff": ["b\udcff", "é😀"], 7: Path("/\udcff")}, {"a\\udcff": ["b\\udcff", "é😀"], "7": "/\udcff"}),
        ("\ud83d", "\\ud83d"),
    ],
)
def test_what_json_has_no_form_for_becomes_text(value: Any, read: Any) -> None:
    text = to_json({"value": value, "path": Path("/a")}, indent=1)
    assert text.isascii() and "NaN" not in text and json.loads(text) == {"value": read, "path": "/a"}
    assert text.startswith('{\n "value"')


def test_bytes_of_a_path_that_are_no_utf_8_are_written_out_in_toml() -> None:
    tomllib = pytest.importorskip("tomllib", reason="needs Python 3.11")
    text = f"name = {toml_value(os.fsdecode(b'a' + bytes([255]) + b'.py'))}"
    assert tomllib.loads(text) == {"name": "a\\udcff.py"}
