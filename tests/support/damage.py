"""Hypothesis strategies that damage what is whole: bytes, PTX, JSON. And what must hold of a command on the result."""

from __future__ import annotations

import copy
import io
import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from types import FrameType
from typing import Any

from hangs import HANG_S
from hypothesis import strategies as st

from tritonhook.cli import main

# Raw JSON, for json.dumps writes none of the last ones.
ODD_VALUES = (
    *("null", "true", "false", "0", "-1", "1", "7", '""', '"text"', "[]", "{}", "[[]]", '[{"x": [[]]}]', "1.5", "-0.0"),
    *(str(2**53 + 1), str(2**63), str(2**64), "9" * 400, "9" * 5000, "1e308", "-1e308", "1e999", "5e-324"),
    *("NaN", "Infinity", "-Infinity", '"\\ud800"', '"\\u0000"', '"\\u001b[2J\\u202e"', '"12.x"', '"../../etc/passwd"'),
    *("[" * 600 + "]" * 600, "{", "]", '{"a": 1, "a": 2}', '"' + "k" * 5000 + '"', '"<script>"', '"{}"', '"%s%n{0}"'),
)


class NoEnd(BaseException):
    """Something hangs. No Exception, and no OSError as TimeoutError is: a verb would tell of it, and exit with 2."""


@contextmanager
def no_hang() -> Iterator[None]:
    """Raises NoEnd where the body does not end."""

    def late(number: int, frame: FrameType | None) -> None:
        raise NoEnd(f"after {HANG_S} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(HANG_S)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def outcome(*words: str) -> tuple[int, str]:
    """Run a command: its exit code, and what it printed. An error must be one of tritonhook's own."""
    out, err = io.StringIO(), io.StringIO()
    with no_hang(), redirect_stdout(out), redirect_stderr(err):
        code = main(list(words))
    assert code in (0, 1, 2), words
    assert "internal error" not in err.getvalue(), err.getvalue()
    assert code != 2 or err.getvalue().strip(), words
    shown = out.getvalue() + err.getvalue()
    assert not [c for c in shown if not c.isprintable() and c not in "\n\u200b"], repr(shown)  # Markdown breaks links
    return code, shown


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of every value in a JSON document."""
    yield path
    items: Any = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from places(item, (*path, key))


_MARK = "damaged here: "  # stands for raw JSON until the document is text


@st.composite
def damaged_json(draw: st.DrawFn, document: Any, most: int = 3) -> bytes:
    """A document as JSON with up to `most` places damaged: another value, another place's value, gone, or twice."""
    damaged = copy.deepcopy(document)
    for _ in range(draw(st.integers(1, most))):
        paths = list(places(damaged))
        path = draw(st.sampled_from(paths))
        if not path:
            continue
        parent = damaged
        for key in path[:-1]:
            parent = parent[key]
        how = draw(st.sampled_from(("odd", "odd", "odd", "gone", "other", "more")))
        if how == "odd":
            parent[path[-1]] = _MARK + str(draw(st.integers(0, len(ODD_VALUES) - 1)))
        elif how == "gone":
            del parent[path[-1]]
        elif how == "other":
            other = damaged
            for key in draw(st.sampled_from(paths)):
                try:
                    other = other[key]
                except (LookupError, TypeError):  # it has gone in the meantime
                    break
            parent[path[-1]] = copy.deepcopy(other)
        elif isinstance(parent, list):
            parent.append(copy.deepcopy(parent[path[-1]]))
        else:
            parent[f"{path[-1]}x"] = copy.deepcopy(parent[path[-1]])
    text = json.dumps(damaged)
    for number, raw in enumerate(ODD_VALUES):
        text = text.replace(f'"{_MARK}{number}"', raw)
    return text.encode()


@st.composite
def damaged_bytes(draw: st.DrawFn, whole: bytes, most: int = 8) -> bytes:
    """Bytes with some of them replaced, gone or doubled, or cut off."""
    data = bytearray(whole)
    for _ in range(draw(st.integers(1, most))):
        if not data:
            break
        at = draw(st.integers(0, len(data) - 1))
        length = draw(st.sampled_from((1, 1, 2, 4, 8, 64)))
        how = draw(st.sampled_from(("set", "set", "set", "zero", "ones", "gone", "twice", "cut", "copy")))
        if how == "set":
            data[at : at + 1] = bytes([draw(st.integers(0, 255))])
        elif how in ("zero", "ones"):
            data[at : at + length] = (b"\0" if how == "zero" else b"\xff") * min(length, len(data) - at)
        elif how == "gone":
            del data[at : at + length]
        elif how == "twice":
            data[at:at] = data[at : at + length]
        elif how == "cut":
            del data[at:]
        else:
            source = draw(st.integers(0, len(data) - 1))
            data[at : at + length] = data[source : source + length]
    return bytes(data)


@st.composite
def damaged_text(draw: st.DrawFn, whole: str, words: tuple[str, ...], most: int = 6) -> str:
    """Text whose lines and words are replaced by others of it or by `words`, gone, doubled, swapped or cut off."""
    pieces = whole.split(" ")
    for _ in range(draw(st.integers(1, most))):
        if not pieces:
            break
        at = draw(st.integers(0, len(pieces) - 1))
        how = draw(st.sampled_from(("word", "word", "gone", "twice", "swap", "cut", "join")))
        if how == "word":
            pieces[at] = draw(st.sampled_from(words))
        elif how == "gone":
            del pieces[at]
        elif how == "twice":
            pieces.insert(at, pieces[at])
        elif how == "swap":
            other = draw(st.integers(0, len(pieces) - 1))
            pieces[at], pieces[other] = pieces[other], pieces[at]
        elif how == "cut":
            pieces[at] = pieces[at][: draw(st.integers(0, max(0, len(pieces[at]) - 1)))]
        else:
            pieces[at : at + 2] = ["".join(pieces[at : at + 2])]
    return " ".join(pieces)


_SEQUENCE = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"  # of the Itanium ABI


def _reference(number: int) -> str:
    """The substitution of the part with this number."""
    if number == 0:
        return "S_"
    digits, left = "", number - 1
    while True:
        digits, left = _SEQUENCE[left % 36] + digits, left // 36
        if left == 0:
            return f"S{digits}_"


def name_that_doubles(levels: int) -> str:
    """A mangled name: f(A<int, int>, A<A<int, int>, A<int, int>>, ...): each parameter has the one before it twice."""
    return "_Z1f1AIiiE" + "".join(f"S_I{_reference(level + 1) * 2}E" for level in range(levels))
