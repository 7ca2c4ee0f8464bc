"""The words that errors are made of."""

from __future__ import annotations

import pickle

import pytest

from tritonhook.errors import DeviceError, NotUnderstood, did_you_mean, listed


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


def test_an_error_of_a_device_has_the_drivers_code():
    assert [DeviceError("no", *code).code for code in ((), (3,), ("CUDA_ERROR",))] == [None, 3, "CUDA_ERROR"]
    assert str(DeviceError("no GPU", 100)) == "no GPU"


@pytest.mark.parametrize(
    ("count", "between", "text"),
    [
        (0, ", ", "none"),
        (1, ", ", "0"),
        (10, ", ", "0, 1, 2, 3, 4, 5, 6, 7, 8, 9"),
        (11, ", ", "0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 1 more"),
        (3008, ", ", "0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 2,998 more"),
        (11, "; ", "0; 1; 2; 3; 4; 5; 6; 7; 8; 9; and 1 more"),
    ],
)
def test_ten_names_are_listed_and_the_others_counted(count, between, text):
    names = [str(number) for number in range(count)]
    assert listed(names, between) == text
    assert between != ", " or listed(names) == text


def test_the_closest_known_word_is_meant():
    known = ("--ptx", "--out", "--ptxas")
    assert did_you_mean("--ptxsa", known) == "; did you mean --ptxas?"
    assert did_you_mean("--nothing-near", iter(known)) == ""
