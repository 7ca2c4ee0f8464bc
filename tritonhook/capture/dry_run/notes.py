"""What a process of a dry run has to say at its end. Few imports: sessions ask for it in every process."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterator

from tritonhook._util.variables import EMULATE


class Notes:
    """Remarks, and how often the program asked for values that a dry run does not have."""

    def __init__(self) -> None:
        self._texts: dict[str, None] = {}
        self._reads: Counter[str] = Counter()

    def add(self, text: str) -> None:
        """Keep a remark, once."""
        self._texts[text] = None

    def count(self, what: str) -> None:
        """Count one reading of values, such as "item"."""
        self._reads[what] += 1

    def __iter__(self) -> Iterator[str]:
        yield from tuple(self._texts)
        if self._reads and EMULATE not in os.environ:
            named = ", ".join(f"{what} {times:,}" for what, times in self._reads.most_common())
            times = sum(self._reads.values())
            often = "once" if times == 1 else f"{times:,} times"
            judged = isinstance(getattr(sys, "last_value", None), AssertionError)
            more = "; so its failed assertion says nothing about the kernels" if judged else ""
            yield f"the program read values of tensors {often} ({named}): what a kernel would store is 0{more}"


notes = Notes()  # of this process
