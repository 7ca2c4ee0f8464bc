"""Documents against their schemas: what is read, and the words for what does not fit."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Annotated, Any

import msgspec
import pytest

from tritonhook._util.schema import (
    Arch,
    Count,
    DocumentError,
    Fields,
    NewerFormat,
    as_schema,
    like,
    one_of,
    read_json,
    read_toml,
)


class Part(Fields):
    seen: list[str]


class Whole(Fields):
    size: Count = 0
    arch: Arch = "sm_90"
    kind: str | None = msgspec.field(default=None, name="type")
    parts: list[Part] = msgspec.field(default_factory=list)
    rest: Any = None


DEEP = 100_000
WRONG = {
    '{"size": "a"}': "size: expected a whole number, got text",
    '{"size": -1}': "size: expected a whole number >= 0",
    '{"size": 1.5}': "size: expected a whole number, got a number",
    '{"arch": "sm_9000"}': "arch: expected an architecture such as sm_90a",
    '{"type": 1}': "type: expected text or null, got a whole number",
    '{"parts": [{"seen": ["a"]}, {"seen": {}}]}': "parts[1].seen: expected a list, got an object",
    '{"parts": [{}]}': "parts[0].seen is missing",
    "[]": "expected an object, got a list",
    "{": "not JSON: Input data was truncated",
    '{"rest": ' + "[" * DEEP + "]" * DEEP + "}": "nested too deep",
}


@pytest.mark.parametrize("text", WRONG, ids=lambda text: text[:30])
def test_what_does_not_fit_is_said_with_its_place(text: str) -> None:
    with pytest.raises(DocumentError) as raised:
        read_json(text, Whole)
    assert str(raised.value) == WRONG[text]
    if text[-1] in "}]" and "nested" not in WRONG[text]:
        with pytest.raises(DocumentError) as raised:
            as_schema(msgspec.json.decode(text), Whole)
        assert str(raised.value) == WRONG[text]


def test_what_fits_is_read() -> None:
    expected = Whole(7, "sm_100a", "x", [Part(["a"])], [1])
    text = '{"size": 7, "arch": "sm_100a", "type": "x", "parts": [{"seen": ["a"]}], "rest": [1], "later": 0}'
    assert read_json(text, Whole) == read_json(text.encode(), Whole) == as_schema(msgspec.json.decode(text), Whole)
    assert read_json(text, Whole) == expected
    toml = b'format = 2\nsize = 7\narch = "sm_100a"\ntype = "x"\nparts = [{seen = ["a"]}]\nrest = [1]'
    assert read_toml(toml, Whole, 2) == expected


def test_one_of_several_texts() -> None:
    with pytest.raises(DocumentError, match=r"^expected one of a\.b, c$"):
        read_json('"axb"', Annotated[str, one_of(["a.b", "c"])])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("data", "error", "words"),
    [
        (b"a = ", DocumentError, "Invalid value (at end of document)"),
        (b'a = "\xff"', DocumentError, "'utf-8' codec can't decode byte 0xff in position 5: invalid start byte"),
        (
            b"a = " + b"1" * 5000,
            DocumentError,
            "Exceeds the limit (4300 digits) for integer string conversion: value has 5000 digits",
        ),
        (b"rest = " + b"[" * DEEP + b"]" * DEEP, DocumentError, "nested too deep"),
        (b"format = 3", NewerFormat, "its format is 3, this version reads 2; update tritonhook"),
        (b"size = -1", DocumentError, "size: expected a whole number >= 0"),
    ],
    ids=range(6),
)
def test_toml_that_is_not_read(data: bytes, error: type[Exception], words: str) -> None:
    with pytest.raises(error) as raised:
        read_toml(data, Whole, 2)
    assert str(raised.value) == words


def test_a_value_of_the_same_names() -> None:
    value = SimpleNamespace(size=7, arch="sm_80", kind="x", parts=[SimpleNamespace(seen=["a"])])
    assert like(value, Whole, rest=1) == Whole(7, "sm_80", "x", [Part(["a"])], 1)
    assert like(value, Whole, size=8, kind=msgspec.UNSET) == Whole(8, "sm_80", None, [Part(["a"])])
    assert like(SimpleNamespace(seen=["b"]), Part) == Part(["b"])
