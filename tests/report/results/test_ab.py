"""Documents of timed comparisons whose parts do not fit together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from documents import golden

from tritonhook.errors import UsageError
from tritonhook.report.result import read_result


def without(side: str, blocks: slice) -> Callable[[dict[str, Any]], None]:
    """Take a side's samples out of some blocks."""

    def damage(document: dict[str, Any]) -> None:
        for block in document["blocks"][blocks]:
            del block["times_us"][side]
            block["order"] = []

    return damage


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda document: document["kernels"].pop("candidate"), "the kernels of a side are missing"),
        (lambda document: document["compared"].pop("control"), "the description of a side is missing"),
        (without("control", slice(1)), "its blocks do not all have the same sides"),
        (without("candidate", slice(None)), "its blocks lack the reference or the candidate"),
    ],
)
def test_a_side_that_is_missing_is_damage(damage: Callable[[dict[str, Any]], None], said: str) -> None:
    document = golden("ab")
    damage(document)
    with pytest.raises(UsageError, match=said):
        read_result(document)
