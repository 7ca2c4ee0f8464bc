"""The level that options of ptxas ask for, in each way to write it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tritonhook.ptxas.command_line import level_of


@pytest.mark.parametrize(
    ("options", "level"),
    [
        (None, "-O3"),
        ((), "-O3"),
        (("-lineinfo", "-v"), "-O3"),
        (("-O0",), "-O0"),
        (("-O", "1", "-v"), "-O1"),
        (("-O=2",), "-O2"),
        (("-v", "--opt-level", "0"), "-O0"),
        (("--opt-level=0",), "-O0"),
        (("-O0", "-O3"), "-O3"),
    ],
)
def test_level(options: Sequence[str] | None, level: str) -> None:
    assert level_of(options) == level
