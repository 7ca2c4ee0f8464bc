"""The words that errors are made of."""

from __future__ import annotations

import pickle

import pytest

from tritonhook.errors import NotUnderstood


@pytest.mark.parametrize(
    ("given", "line", "why", "text"),
    [
        ({}, None, "", "frob.b32"),
        ({"line": 0}, 0, "", "line 0: frob.b32"),
        ({"line": 7, "why": "register %r1"}, 7, "register %r1", "line 7: frob.b32 (register %r1)"),
        ({"why": "register %r1"}, None, "register %r1", "frob.b32 (register %r1)"),
    ],
)
def test_what_is_not_understood_keeps_its_parts_and_comes_from_another_process_whole(given, line, why, text):
    error = NotUnderstood("frob.b32", **given)
    for one in (error, pickle.loads(pickle.dumps(error))):
        assert (str(one), one.opcode, one.line, one.why) == (text, "frob.b32", line, why)
        assert one.args == ("frob.b32", line, why)
