"""The words that errors are made of."""

from __future__ import annotations

import pickle

from tritonhook.errors import NotUnderstood


def test_what_is_not_understood_keeps_its_parts_and_comes_from_another_process_whole() -> None:
    error = NotUnderstood("frob.b32", line=7, why="register %r1")
    for one in (error, pickle.loads(pickle.dumps(error))):
        assert (str(one), one.opcode, one.line) == ("line 7: frob.b32 (register %r1)", "frob.b32", 7)
        assert one.args == ("frob.b32", 7, "register %r1")
    assert str(NotUnderstood("frob.b32", line=0)) == "line 0: frob.b32" and str(NotUnderstood("x", why="y")) == "x (y)"
