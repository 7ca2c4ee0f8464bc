"""Numbers, sizes and names as text for people."""

from __future__ import annotations

from tritonhook.ptx.throughput_pragma import Trigger
from tritonhook.report.result import (
    count,
    grouped,
    number,
    percent_of,
    ratio,
    signed,
    size,
    trigger,
    visible,
)


def test_unknown_is_never_zero() -> None:
    assert number(None) == size(None) == "not known" and (number(0), size(0)) == ("0", "0 B")
    assert ratio(None, 3) == ratio(3, None) == percent_of(None, 3) == signed(None) == ""


def test_a_trigger_is_name_and_pragma_or_not_known() -> None:
    cases = {(False, False): "none", (True, False): "name", (False, True): "pragma", (True, True): "name and pragma"}
    cases |= {(True, None): "name; pragma not known", (False, None): "not known"}
    assert {(n, p): trigger(Trigger(n, p)) for n, p in cases} == cases


def test_numbers_have_their_thousands_separated() -> None:
    assert [number(v) for v in (14_512, 1234.5, True, [], ["a", 2])] == ["14,512", "1,234", "yes", "none", "a, 2"]
    assert (signed(1024), signed(-3), signed(0)) == ("+1,024", "-3", "0")
    assert (ratio(100, 125), percent_of(100, 125)) == ("1.250x", "+25.0%")
    assert (count(1, "block"), count(2, "block"), count(2, "process", "processes")) == (
        "1 block",
        "2 blocks",
        "2 processes",
    )


def test_line_breaks_and_control_characters_are_written_out() -> None:
    assert visible("a\nb\x1b[31m") == r"a\nb\x1b[31m"


def test_names_of_which_the_same_is_said() -> None:
    entries = [("a", "old"), ("b", "new"), ("a", "old"), *((f"k{n}", "old") for n in range(12))]
    assert grouped(entries) == {"old": "a, k0, k1, k2, k3, k4, k5, k6, k7, k8 and 3 more", "new": "b"}
