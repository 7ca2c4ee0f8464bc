"""How one value shows itself: what its repr keeps, shortens and leaves out."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from tritonhook._display import Brief, Notebook


class Colour(Enum):
    RED = "red"


class Odd:
    def __init__(self, length: int) -> None:
        self.length = length

    def __repr__(self) -> str:
        return "o" * self.length


LONG = [Odd(40), Odd(40)]  # few items, and a long repr


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "None"),
        (Colour.RED, "'red'"),
        (bytearray(12345), "<12,345 bytes>"),
        ("a'b", '"a\'b"'),
        ("x" * 58, f"'{'x' * 58}'"),
        ("x" * 59, f"'{'x' * 55}'..."),
        (Path("a/b"), "'a/b'"),
        (Path("z" + "y" * 59), f"'...{'y' * 55}'"),
        ([1, 2, 3], "[1, 2, 3]"),
        ([1, 2, 3, 4], "<4 items>"),
        (LONG, "<2 items>"),
        (Odd(60), "o" * 60),
        (Odd(61), "<Odd>"),
    ],
)
def test_a_value_has_at_most_60_characters(value: Any, shown: str) -> None:
    class One(Brief):
        _shown = ("value",)

    one = One()
    vars(one)["value"] = value
    assert repr(one) == f"One(value={shown})"


def test_attributes_of_attributes_are_shown_by_their_last_name() -> None:
    class Deep(Brief):
        _shown: ClassVar[tuple[str, ...]] = ("a.b.c", "none.b.c")

        def __init__(self) -> None:
            self.a, self.none = SimpleNamespace(b=SimpleNamespace(c=5)), None

    assert repr(Deep()) == "Deep(c=5, c=None)"


@dataclass(repr=False)
class Fields(Notebook):
    a: int
    hidden: int = field(repr=False, default=2)
    b: str = "text"


@dataclass(repr=False)
class Chosen(Fields):
    _shown: ClassVar[tuple[str, ...]] = ("hidden",)


def test_a_dataclass_shows_its_fields_unless_others_are_chosen() -> None:
    assert repr(Fields(1)) == "Fields(a=1, b='text')"
    assert repr(Chosen(1)) == "Chosen(hidden=2)"
    assert repr(Brief()) == "Brief()"  # no dataclass, and nothing chosen


@pytest.mark.parametrize(("last", "shown"), [(42, f"four={'o' * 42}"), (43, "...")])
def test_a_repr_that_would_be_too_long_with_an_ellipsis_ends_with_it(last: int, shown: str) -> None:
    class Some(Brief):
        _shown = ("one", "two", "three", "four")
        one = two = Odd(60)
        three = Odd(0)
        four = Odd(last)

    assert repr(Some()) == f"Some(one={'o' * 60}, two={'o' * 60}, three=, {shown})"


def test_a_view_in_a_notebook_is_that_of_the_renderer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tritonhook.report.render.notebook.fragment", lambda value: f"<p>{value.a}")
    assert Fields(7)._repr_html_() == "<p>7"
