"""Values that people touch have a repr of at most 200 characters, whatever is in them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from documents import HOSTILE, golden

import tritonhook
from tritonhook._display import Brief
from tritonhook._util.schema import as_schema
from tritonhook.ptxas.toolchain import Toolchain
from tritonhook.report.results.ab import TimedComparison
from tritonhook.report.results.memory import Memory


@dataclass(repr=False)
class Shown(Brief):
    value: Any
    last: int = 1


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (b"\x7fELF" * 1000, "<4,000 bytes>"),
        (tuple(range(40)), "<40 items>"),
        ("k" * 1000, f"{'k' * 55!r}..."),
        (Path("/a") / ("b" * 100) / "end.ptx", f"'...{'b' * 47}/end.ptx'"),
        ([object()] * 2, "<2 items>"),
        (None, "None"),
    ],
)
def test_a_large_field_is_shortened(value: Any, shown: str) -> None:
    assert repr(Shown(value)) == f"Shown(value={shown}, last=1)"


def test_values_with_many_or_hostile_fields(tools: Toolchain) -> None:
    for value in (
        tools,
        as_schema(golden("ab"), TimedComparison),
        as_schema(golden("memory"), Memory).values()[0],
        tritonhook.Capture(HOSTILE, HOSTILE, HOSTILE, {}, note=HOSTILE),
    ):
        shown = repr(value)
        assert shown.startswith(type(value).__name__ + "(") and len(shown) <= 200 and "\n" not in shown
